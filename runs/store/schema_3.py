"""Migration 3 as it was written: when a trace file was dropped. A later change is a migration of its own."""

from __future__ import annotations

STATEMENTS = ("ALTER TABLE trace_files ADD COLUMN dropped VARCHAR(32)",)
