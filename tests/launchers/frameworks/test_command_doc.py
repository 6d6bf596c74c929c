"""docs/frameworks.md: the generated part is current, and the rest says what the code does."""

from __future__ import annotations

from pathlib import Path

from launchers.frameworks.commands import describe, request
from launchers.frameworks.commands.eras import read

TEXT = (Path(__file__).parents[3] / "docs" / "frameworks.md").read_text(encoding="utf-8")


def test_the_generated_part_is_current() -> None:
    generated = TEXT.split("<!-- generated -->\n", 1)[1]

    assert generated == describe.document(), "run python -m launchers.frameworks.commands.describe"


def test_every_era_knob_and_argument_is_in_the_tables() -> None:
    for framework in describe.FRAMEWORKS:
        section = TEXT.split(f"\n### {framework}\n", 1)[1].split("\n### ", 1)[0]
        for era in read(framework).eras:
            assert f"| `{era.name}` |" in section and era.source in section
            for name, spelling in (*era.knobs.items(), *era.facts.items()):
                assert f"| `{name}` |" in section
                assert str(spelling.get("flag", "")).strip() in section


def test_the_page_names_the_figures_of_the_protocol_and_of_nccl() -> None:
    page = " ".join(TEXT.split())
    assert f"at least {request.WARMUP_STEPS} warm-up steps, then {request.PROFILED_STEPS} profiled ones" in page
    assert f"at least {request.DECODE_STEPS} steps" in page and f"{request.DECODE_STEPS + 1} output tokens" in page
    for name in (
        "ring",
        "tree",
        "collnet_direct",
        "collnet_chain",
        "nvls",
        "nvls_tree",
        "pat",
        "ll",
        "ll128",
        "simple",
    ):
        assert f"`{name}`" in page
