"""Workload cards: reading real ones, checking them, turning them into facts for a run, and writing them."""

from __future__ import annotations

from runs.card.card import WorkloadCard
from runs.card.codes import CODES
from runs.card.findings import CardError, Finding, Severity
from runs.card.loading import LoadedCard, load_card, parse_card
from runs.card.repairs import Repair
from runs.card.writing import card_from, to_yaml, with_plan

__all__ = [
    "CODES",
    "CardError",
    "Finding",
    "LoadedCard",
    "Repair",
    "Severity",
    "WorkloadCard",
    "card_from",
    "load_card",
    "parse_card",
    "to_yaml",
    "with_plan",
]
