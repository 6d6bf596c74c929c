"""`docs/llm.md` says what the code does: its examples run, its tables are the data's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from ccl_search.llm.models import capability
from ccl_search.llm.prices import PriceTable, Usage
from ccl_search.llm.redact import redact
from tests.ccl_search.llm.ledger import GOOD, MemoryLedger, context
from tests.ccl_search.llm.messages_api import KEY, MessagesApi, policy

TEXT = (Path(__file__).parents[3] / "docs" / "llm.md").read_text(encoding="utf-8")
DAY = date(2026, 11, 30)
KINDS = ("input", "output", "cache_read", "write_5m", "write_1h")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    return found.group(1)


def rows(heading: str) -> Iterator[list[str]]:
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "model":
            yield cells


def models(cell: str) -> list[str]:
    """`claude-opus-5`, `-4-8` means claude-opus-5 and claude-opus-4-8."""
    names = re.findall(r"`([^`…]+)…?`", cell)
    base = re.match(r"claude-[a-z]+", names[0]) if names else None
    return [base.group(0) + name if base and name.startswith("-") else name for name in names]


def test_the_python_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"ledger": MemoryLedger(), "context": context()}
    with MessagesApi([policy(GOOD)]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        exec(block("python"), names)
    assert names["proposal"].source == GOOD  # type: ignore[attr-defined]


def test_the_price_example_is_a_price_file(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(block("yaml"), encoding="utf-8")
    assert PriceTable.load(path).cost("claude-opus-5-5", Usage(1_000_000, 0), DAY)[1] == Decimal("3.20")


def test_the_price_table_is_the_data() -> None:
    told: set[str] = set()
    for cell, *prices in rows("Prices and budgets"):
        prompt = 100_001 if "longer prompt" in cell else 1
        shown = [
            Decimal(number) for number in re.findall(r"[\d.]+", " ".join(re.sub(r"\(.*?\)", "", p) for p in prices))
        ]
        for model in models(cell):
            row = PriceTable.load().find(model, DAY, prompt)
            assert row is not None, model
            assert shown == [getattr(row, kind) for kind in KINDS], model
            told.add(model)
    assert told == {row.id for row in PriceTable.load().rows}


def test_the_model_table_is_the_data() -> None:
    for cell, tool, thinking in rows("Models"):
        for model in models(cell):
            found = capability(model)
            assert found.forced_tool == tool.startswith("forced"), model
            assert (found.thinking_when_forced == "disabled") == ("disabled" in thinking), model


def test_the_page_itself_holds_nothing_like_a_secret() -> None:
    assert redact(TEXT) == TEXT
