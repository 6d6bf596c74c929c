"""docs/supported.md is what the code says."""

from __future__ import annotations

from pathlib import Path

from ccl_search import supported
from launchers import frameworks
from runs import catalogue

DOC = Path(__file__).parents[2] / "docs" / "supported.md"


def test_the_page_is_up_to_date() -> None:
    assert DOC.read_text(encoding="utf-8") == supported.document(), (
        "run python -m ccl_search.supported > docs/supported.md"
    )


def test_cells_say_where_support_begins() -> None:
    sizes = supported.families()["perlmutter-a100"]
    megatron = frameworks.get("megatron-lm")

    assert [size.total_xpus for size in sizes] == [16, 32, 64, 128, 256]
    assert supported.cell(catalogue.workload("wl4"), sizes, megatron) == "all"
    assert supported.cell(catalogue.workload("wl1"), sizes, megatron) == "-"
    assert supported.cell(catalogue.workload("wl7"), sizes[:1], megatron).startswith("needs ")
