"""Migration 2 as it was written: decisions of screens. A later change is a migration of its own."""

from __future__ import annotations

TABLES = (
    """CREATE TABLE screenings (
        id {id},
        trial_id INTEGER NOT NULL UNIQUE REFERENCES trials (id),
        verdict VARCHAR(32) NOT NULL,
        reason TEXT NOT NULL,
        predicted TEXT NOT NULL,
        expected TEXT NOT NULL,
        score DOUBLE PRECISION,
        threshold DOUBLE PRECISION,
        factor DOUBLE PRECISION,
        reference INTEGER,
        candidates INTEGER NOT NULL,
        backend VARCHAR(64) NOT NULL,
        backend_version VARCHAR(64) NOT NULL,
        calibration VARCHAR(128) NOT NULL,
        seconds DOUBLE PRECISION,
        created VARCHAR(32) NOT NULL
    )""",
)
