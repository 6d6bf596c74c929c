"""Traces become numbers: readers for each trace family and one module a metric."""

from __future__ import annotations

from metrics.api import compute

__all__ = ["compute"]
