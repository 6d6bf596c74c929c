"""Run a config on a target: launchers and the framework adapters they share."""
