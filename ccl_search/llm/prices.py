"""What calls cost: price rows with effective dates, exact decimals, and None wherever a price is not known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from ccl_search.llm.models import matches
from runs.errors import BadInputError
from runs.yaml_file import read_yaml

_MOST_TOKENS = 10**12
_MILLION = Decimal(1_000_000)
_CHARS_PER_TOKEN = Decimal("3.5")
_MONEY = ("input", "output", "cache_read", "write_5m", "write_1h")


@dataclass(frozen=True)
class Usage:
    """Tokens of one answer by kind. `output` includes thinking; the prompt is the sum of the other four."""

    input: int
    output: int
    cache_read: int = 0
    write_5m: int = 0
    write_1h: int = 0

    @property
    def prompt(self) -> int:
        """Tokens of the whole prompt."""
        return self.input + self.cache_read + self.write_5m + self.write_1h

    @classmethod
    def of(cls, response: Mapping[str, Any]) -> Usage | None:
        """The usage an answer reports; None when it reports none, or counts that cannot be (a broken gateway)."""
        usage = response.get("usage")
        if not isinstance(usage, Mapping) or not {"input_tokens", "output_tokens"} <= set(usage):
            return None
        split = usage.get("cache_creation")
        long = split.get("ephemeral_1h_input_tokens") if isinstance(split, Mapping) else 0
        kinds = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        counts = [count or 0 for count in (*map(usage.get, kinds), long)]
        if any(type(count) is not int or not 0 <= count <= _MOST_TOKENS for count in counts):
            return None
        read, wrote, cached, written, long = counts
        return cls(read, wrote, cached, write_5m=max(0, written - long), write_1h=long)


@dataclass(frozen=True)
class PriceRow:
    """Dollars for a million tokens of one model, from `since` on, for prompts longer than `above_prompt_tokens`."""

    id: str
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    write_5m: Decimal | None = None
    write_1h: Decimal | None = None
    since: date | None = None
    above_prompt_tokens: int = 0

    @property
    def price_id(self) -> str:
        """What the ledger keeps: model, day and tier, `claude-sonnet-5-5@2026-10-07`."""
        tier = f">{self.above_prompt_tokens}" if self.above_prompt_tokens else ""
        return f"{self.id}@{self.since.isoformat() if self.since else 'start'}{tier}"

    def cost(self, usage: Usage) -> Decimal | None:
        """Dollars of `usage`; None when it has tokens of a kind this row does not price."""
        total = Decimal(0)
        for kind in _MONEY:
            tokens, price = getattr(usage, kind), getattr(self, kind)
            if tokens and price is None:
                return None
            total += tokens * (price or Decimal(0))
        return total / _MILLION


@dataclass(frozen=True)
class PriceTable:
    """All price rows. Rows of an override come first and hide bundled rows of the same model."""

    rows: tuple[PriceRow, ...]

    @classmethod
    def load(cls, override: Path | None = None) -> PriceTable:
        """The bundled table, with the models of a user's file (same form) replacing those of the table.

        Raises:
            BadInputError: the file cannot be read or a row is not a price.
        """
        bundled = _read(Path(__file__).with_name("prices.yaml"))
        if override is None:
            return cls(bundled)
        own = _read(override)
        named = {row.id for row in own}
        return cls((*own, *(row for row in bundled if row.id not in named)))

    def find(self, model: str, day: date, prompt_tokens: int) -> PriceRow | None:
        """The row that bills a request of `prompt_tokens` to `model` on `day`; None when there is none."""
        fitting = [
            row
            for row in self.rows
            if matches(model, row.id)
            and (row.since is None or row.since <= day)
            and (not row.above_prompt_tokens or prompt_tokens > row.above_prompt_tokens)
        ]
        return max(fitting, key=_precedence, default=None)

    def cost(self, model: str, usage: Usage, day: date) -> tuple[str | None, Decimal | None]:
        """The id of the price row and the dollars of a finished call; None for what is not known."""
        row = self.find(model, day, usage.prompt)
        return (row.price_id, row.cost(usage)) if row else (None, None)

    def ceiling(self, body: Mapping[str, Any], day: date) -> Decimal | None:
        """The most a request should cost: its characters / 3.5 as prompt tokens, and all of `max_tokens` as output."""
        prompt = int(len(json.dumps(body, ensure_ascii=False)) / _CHARS_PER_TOKEN) + 1
        row = self.find(str(body["model"]), day, prompt)
        if row is None:
            return None
        dearest = max(row.input, _write_price(row, json.dumps(body.get("system", ""))))
        return (prompt * dearest + int(body["max_tokens"]) * row.output) / _MILLION


def _write_price(row: PriceRow, system: str) -> Decimal:
    if "cache_control" not in system:
        return Decimal(0)
    return (row.write_1h if '"1h"' in system else row.write_5m) or Decimal(0)


def _precedence(row: PriceRow) -> tuple[int, date, int]:
    return len(row.id), row.since or date.min, row.above_prompt_tokens


def _read(path: Path) -> tuple[PriceRow, ...]:
    entries = read_yaml(path, "the price file", "give a YAML list of price rows (docs/llm.md)")
    if not isinstance(entries, list):
        raise BadInputError(f"{path} is no list of price rows", "see docs/llm.md for the form")
    return tuple(_rows(entries, path))


def _rows(entries: list[Any], path: Path) -> Iterable[PriceRow]:
    for entry in entries:
        try:
            money = {kind: Decimal(str(entry[kind])) for kind in _MONEY if entry.get(kind) is not None}
            row = PriceRow(**(entry | money))
        except (AttributeError, KeyError, TypeError, InvalidOperation) as error:
            raise BadInputError(f"{path}: {entry!r} is no price row ({error})", "see docs/llm.md") from error
        if any(not price.is_finite() or price < 0 for price in money.values()):
            raise BadInputError(f"{path}: a price of {row.id} is negative or not finite", "see docs/llm.md")
        if row.since is not None and not isinstance(row.since, date):
            raise BadInputError(
                f"{path}: `since` of {row.id} is {row.since!r}, not a day", "write 2026-10-07, unquoted"
            )
        yield row
