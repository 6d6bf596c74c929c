"""Traces become numbers: readers for each trace family and one module a metric."""
