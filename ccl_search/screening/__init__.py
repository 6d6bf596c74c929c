"""Screening: a cheap simulation looks at every proposal before it costs a launch (docs/searching.md)."""
