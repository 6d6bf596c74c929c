"""What went wrong with a TPU slice, told from the texts of Cloud TPU, gcloud and ssh, and what it means for a job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any

import yaml

from runs.trial import FailureClass


class Trouble(StrEnum):
    """Kinds of trouble a launcher treats differently. `FAILED` is a failure whose text no rule knows."""

    STOCKOUT = "stockout"
    RESERVATION = "reservation"
    QUOTA = "quota"
    RATE = "rate"
    AUTH = "auth"
    PERMISSION = "permission"
    EXISTS = "exists"
    PREEMPTED = "preempted"
    SUSPENDED = "suspended"
    STOPPED = "stopped"
    CONFIG = "config"
    NOT_FOUND = "not_found"
    UNAVAILABLE = "unavailable"
    SSH = "ssh"
    UNHEALTHY = "unhealthy"
    FAILED = "failed"


@dataclass(frozen=True)
class Rule:
    """A text that tells a trouble; `source` says where it was seen."""

    trouble: Trouble
    pattern: re.Pattern[str]
    source: str


@dataclass(frozen=True)
class Remedy:
    """What a trouble means: whether another zone (`next_zone`) or the same request later (`again`) may do.

    `fatal` troubles only the user can mend; `failure` is the class of a job that ends with it, `hint` what to do.
    """

    next_zone: bool
    again: bool
    fatal: bool
    failure: FailureClass
    hint: str


class ControlError(Exception):
    """The control plane refused or did not answer. `text` is its own words."""

    def __init__(self, trouble: Trouble, text: str) -> None:
        super().__init__(text)
        self.trouble = trouble
        self.text = text


@cache
def _table() -> dict[str, Any]:
    text = resources.files("launchers.tpu_vm").joinpath("troubles.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@cache
def rules() -> tuple[Rule, ...]:
    """The rules of `troubles.yaml`, in their order."""
    return tuple(
        Rule(Trouble(row["trouble"]), re.compile(row["pattern"], re.IGNORECASE | re.DOTALL), row["source"])
        for row in _table()["rules"]
    )


@cache
def remedy(trouble: Trouble) -> Remedy:
    """What a trouble means for a job."""
    row = _table()["remedies"][trouble.value]
    return Remedy(row["next_zone"], row["again"], row["fatal"], FailureClass(row["class"]), row["hint"])


def classify(text: str) -> Trouble:
    """The trouble a text tells; `FAILED` where no rule knows it."""
    return next((rule.trouble for rule in rules() if rule.pattern.search(text)), Trouble.FAILED)


def essence(text: str, longest: int = 400) -> str:
    """The telling part of a text on one line: gcloud's error without progress dots and without its own JSON braces."""
    message = re.search(r'"message": "((?:[^"\\]|\\.)*)"', text)
    if message:
        return message.group(1).replace('\\"', '"')[:longest]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return " ".join(errors or lines[-3:])[:longest]
