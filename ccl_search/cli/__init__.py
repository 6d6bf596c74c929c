"""The command line: one module a verb (or a family of verbs), thin over the packages below."""
