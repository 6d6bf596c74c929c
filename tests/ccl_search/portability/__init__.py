"""Portability: lint, metric, `run --portable`."""
