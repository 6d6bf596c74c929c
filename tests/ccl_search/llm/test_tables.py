"""The tables of models and prices, budgets, secrets."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from ccl_search.llm.budget import DollarBudget
from ccl_search.llm.canonical import body_diff, canonical, same_body
from ccl_search.llm.errors import LlmBudgetError, error_for, error_from_text, failure_text
from ccl_search.llm.models import capability, deprecation_notice, matches
from ccl_search.llm.prices import PriceTable, Usage
from ccl_search.llm.redact import HIDDEN, redact
from runs.errors import BadInputError

DAY = date(2026, 11, 30)


class TestModels:
    def test_an_unknown_model_is_treated_with_caution(self) -> None:
        found = capability("claude-next-9")
        assert (found.forced_tool, found.thinking_when_forced, found.deprecated) == (False, "omit", None)

    def test_a_successor_is_not_taken_for_its_predecessor(self) -> None:
        assert capability("claude-opus-5").forced_tool
        assert not capability("claude-opus-5-5").forced_tool
        assert not capability("claude-opus-5-6").forced_tool
        assert capability("claude-opus-5-20260724").forced_tool

    def test_matching(self) -> None:
        assert matches("claude-haiku-4-5-20251001", "claude-haiku-4-5")
        assert matches("claude-haiku-4-5-latest", "claude-haiku-4-5")
        assert not matches("claude-haiku-4-50", "claude-haiku-4-5")
        assert matches("claude-fable-5-9", "claude-fable-5", family=True)
        assert not matches("claude-fable-50", "claude-fable-5", family=True)

    @pytest.mark.parametrize(
        ("model", "day", "notice"),
        [
            ("claude-opus-4-5", date(2026, 11, 30), "will be retired on 2027-01-22"),
            ("claude-opus-4-5-20251101", date(2027, 1, 22), "was retired on 2027-01-22"),
            ("claude-sonnet-4-5", date(2026, 11, 29), "will be retired on 2026-11-30"),
            ("claude-mythos-preview", DAY, "deprecated"),
        ],
    )
    def test_retirement_is_announced(self, model: str, day: date, notice: str) -> None:
        assert notice in (deprecation_notice(model, day) or "")

    def test_nothing_is_announced_for_current_and_unknown_models(self) -> None:
        assert deprecation_notice("claude-opus-5-5", DAY) is None
        assert deprecation_notice("claude-next-9", DAY) is None


class TestPrices:
    # 15 iterations of 12,000 tokens in and 6,000 out, in dollars
    @pytest.mark.parametrize(
        ("model", "dollars"),
        [
            ("claude-opus-5-5", "2.52"),
            ("claude-opus-4-6", "3.15"),
            ("claude-sonnet-5-5", "1.26"),
            ("claude-haiku-5-5", "0.063"),
        ],
    )
    def test_a_usual_search(self, model: str, dollars: str) -> None:
        _, cost = PriceTable.load().cost(model, Usage(12_000, 6_000), DAY)
        assert cost is not None
        assert 15 * cost == Decimal(dollars)

    def test_a_price_holds_from_its_first_day(self) -> None:
        usage = Usage(0, 0, cache_read=1_000_000)
        table = PriceTable.load()
        assert table.cost("claude-sonnet-5-5", usage, date(2026, 10, 6)) == ("claude-sonnet-5-5@start", Decimal("0.20"))
        after = ("claude-sonnet-5-5@2026-10-07", Decimal("0.10"))
        assert table.cost("claude-sonnet-5-5", usage, date(2026, 10, 7)) == after

    def test_a_long_prompt_is_billed_by_its_own_row(self) -> None:
        table = PriceTable.load()
        short = table.cost("claude-haiku-5-5", Usage(50_000, 1000, cache_read=50_000), DAY)
        long = table.cost("claude-haiku-5-5", Usage(50_000, 1000, cache_read=50_001), DAY)
        assert short == (
            "claude-haiku-5-5@start",
            (50_000 * Decimal("0.10") + 1000 * Decimal("0.50") + 500) / 1_000_000,
        )
        assert long[0] == "claude-haiku-5-5@start>100000"
        assert long[1] == (50_000 * Decimal("0.50") + 1000 * Decimal("2.50") + 50_001 * Decimal("0.05")) / 1_000_000

    def test_unknown_is_none_and_never_nothing(self) -> None:
        table = PriceTable.load()
        assert table.cost("claude-next-9", Usage(1, 1), DAY) == (None, None)
        assert table.ceiling({"model": "claude-next-9", "max_tokens": 1, "messages": []}, DAY) is None

    def test_a_kind_of_token_without_a_price_makes_the_cost_unknown(self, tmp_path: Path) -> None:
        own = tmp_path / "prices.yaml"
        own.write_text('- {id: claude-own, input: "1", output: "2"}\n')
        table = PriceTable.load(own)
        assert table.cost("claude-own", Usage(1_000_000, 1_000_000), DAY)[1] == 3
        assert table.cost("claude-own", Usage(1, 1, cache_read=1), DAY) == ("claude-own@start", None)

    def test_a_file_of_the_user_replaces_a_model_s_rows_and_no_others(self, tmp_path: Path) -> None:
        own = tmp_path / "prices.yaml"
        own.write_text('- {id: claude-sonnet-5-5, input: "7", output: "7"}\n')
        table = PriceTable.load(own)
        assert table.cost("claude-sonnet-5-5", Usage(1_000_000, 0), DAY)[1] == 7
        assert table.cost("claude-opus-5-5", Usage(1_000_000, 0), DAY)[1] == 4

    @pytest.mark.parametrize(
        "text",
        [
            "a: 1",
            "- {id: x}",
            '- {id: x, input: "1", output: "-1"}',
            '- {id: x, input: "1", output: "NaN"}',
            "- {id: x, input: one, output: 1}",
            '- {id: x, input: "1", output: "1", colour: red}',
            '- {id: x, input: "1", output: "1", since: "soon"}',
            "- 5",
            "- [",
        ],
    )
    def test_a_bad_file_is_bad_input(self, tmp_path: Path, text: str) -> None:
        own = tmp_path / "prices.yaml"
        own.write_text(text)
        with pytest.raises(BadInputError, match=r"prices\.yaml"):
            PriceTable.load(own)
        with pytest.raises(BadInputError):
            PriceTable.load(tmp_path / "absent.yaml")

    def test_the_ceiling_is_characters_and_all_of_max_tokens(self) -> None:
        body = {"model": "claude-opus-5-5", "max_tokens": 16_000, "messages": "x" * 350_000}
        ceiling = PriceTable.load().ceiling(body, DAY)
        assert ceiling is not None
        assert abs(ceiling - (Decimal("0.4") + Decimal("0.32"))) < Decimal("0.001")

    def test_writing_the_cache_is_reserved_for(self) -> None:
        table = PriceTable.load()
        plain = {"model": "claude-opus-5-5", "max_tokens": 0, "messages": "x" * 350_000}
        system = [{"type": "text", "text": "", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
        costs = [table.ceiling(body, DAY) or Decimal(0) for body in (plain, plain | {"system": system})]
        assert Decimal("1.99") < costs[1] / costs[0] < Decimal("2.01")

    def test_usage_is_none_when_the_answer_reports_none(self) -> None:
        assert Usage.of({}) is None
        assert Usage.of({"usage": {"output_tokens": 1}}) is None


class TestBudget:
    def test_without_a_limit_it_counts(self) -> None:
        budget = DollarBudget()
        budget.reserve(None)
        budget.settle(Decimal("1.5"))
        assert (budget.spent, budget.left) == (Decimal("1.5"), None)

    def test_exactly_the_limit_is_allowed(self) -> None:
        budget = DollarBudget(Decimal(1), Decimal("0.25"))
        budget.reserve(Decimal("0.75"))
        budget.settle(Decimal("0.75"))
        assert budget.left == 0
        with pytest.raises(LlmBudgetError):
            budget.reserve(Decimal("0.01"))

    def test_an_unknown_cost_keeps_the_reservation(self) -> None:
        budget = DollarBudget(Decimal(1))
        budget.reserve(Decimal("0.4"))
        budget.settle(None)
        assert budget.spent == Decimal("0.4")


class TestRedact:
    @pytest.mark.parametrize(
        "text",
        [
            "sk-ant-api03-abcdefghijklmnop",
            "sk-ant-12345678",
            "Authorization: Bearer abcdefgh12345678",
            "curl said Bearer abcdefgh12345678",
            "HF_TOKEN=hf_abcdefghijklmnopqrst",
            "export WANDB_API_KEY='0123456789abcdef'",
            '"aws_secret_access_key": "wJalrXUtnFEMI/K7MDENG"',
            "ghp_abcdefghijklmnopqrstuvwxyz012345",
            "AKIAABCDEFGHIJKLMNOP",
        ],
    )
    def test_what_looks_like_a_secret_goes(self, text: str) -> None:
        shown = redact(f"before {text} after")
        assert HIDDEN in shown
        assert text.split("=")[-1].split(" ")[-1].strip("'\"") not in shown
        assert redact(shown) == shown
        assert shown.startswith("before ")
        assert shown.endswith(" after")

    @pytest.mark.parametrize(
        "text",
        [
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB",
            "tokens per second: 12345678.9",
            "num_tokens=163840000",
            "AssertionError: risk-free desk-top-application-something",
            "RuntimeError: NCCL error in ProcessGroupNCCL.cpp:1970, unhandled system error",
        ],
    )
    def test_errors_stay_as_they_are(self, text: str) -> None:
        assert redact(text) == text


class TestCanonical:
    def test_order_does_not_matter_and_types_do(self) -> None:
        assert same_body({"a": 1, "b": [True]}, {"b": [True], "a": 1})
        assert not same_body({"a": 1}, {"a": True})
        assert not same_body({"a": 1}, {"a": 1.0})

    def test_nan_is_refused(self) -> None:
        with pytest.raises(ValueError, match="not JSON compliant"):
            canonical({"a": float("nan")})

    def test_a_long_diff_is_cut_and_says_so(self) -> None:
        shown = body_diff(list(range(500)), list(range(1000, 1500)), lines=10).splitlines()
        assert len(shown) == 11
        assert shown[-1].endswith("more lines")


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422, 529, None])
def test_a_stored_error_comes_back_as_the_same_kind(status: int | None) -> None:
    text = failure_text(status, "some_kind", "some reason")
    assert type(error_from_text(text)) is type(error_for(status, text))
    assert "some reason" in error_from_text(text).message
