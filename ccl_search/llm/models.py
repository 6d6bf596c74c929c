"""What each model can do, as data (`models.yaml`); an unknown model gets the choices that work everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

Effort = Literal["low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
_NO_DISABLING = ("xhigh", "max")
_VARIANT = re.compile(r"-(\d{8}|latest)")


@dataclass(frozen=True)
class ModelCapability:
    """What a model accepts. `max_output` in tokens; `deprecated` is a day, True (no day is known) or None."""

    id: str
    family: bool = False
    forced_tool: bool = False
    thinking_when_forced: Literal["omit", "disabled"] = "omit"
    max_output: int = 32_000
    deprecated: date | bool | None = None

    def can_force(self, effort: Effort | None) -> bool:
        """Whether a tool may be forced; where thinking must be off for it, not at the highest efforts."""
        return self.forced_tool and not (self.thinking_when_forced == "disabled" and effort in _NO_DISABLING)


def capability(model: str) -> ModelCapability:
    """The row of `model`: the longest id that matches, else the conservative default under the model's own name."""
    rows = [row for row in _rows() if matches(model, row.id, row.family)]
    return max(rows, key=lambda row: len(row.id), default=ModelCapability(model))


def matches(model: str, row_id: str, family: bool = False) -> bool:
    """Whether a row speaks of `model`: the same id, a dated spelling of it, or (`family`) any id that begins with it.

    `claude-opus-5` does not speak of `claude-opus-5-7`: a successor may differ in capabilities and in price.
    """
    if not model.startswith(row_id):
        return False
    rest = model[len(row_id) :]
    return not rest or bool(_VARIANT.fullmatch(rest)) or (family and rest.startswith("-"))


def deprecation_notice(model: str, today: date) -> str | None:
    """One line for the user when `model` is retired or will be; None otherwise."""
    row = capability(model)
    if row.deprecated is None or row.deprecated is False:
        return None
    if row.deprecated is True:
        return f"{model} is deprecated; choose another model soon"
    verb = "was retired on" if today >= row.deprecated else "will be retired on"
    return f"{model} {verb} {row.deprecated.isoformat()}; choose another model"


@cache
def _rows() -> tuple[ModelCapability, ...]:
    text = Path(__file__).with_name("models.yaml").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = yaml.safe_load(text)
    return tuple(ModelCapability(**entry) for entry in entries)
