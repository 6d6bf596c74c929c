"""A config that the framework's version cannot be told: refused with the reason, not the end of the search."""

from __future__ import annotations

from pathlib import Path

from tests.ccl_search import local_runs
from tests.ccl_search.cli import Cli

STANDIN = Path(__file__).parents[2] / "cluster" / "standin" / "torchrun"
SPACE = """
name: small
world_size: tp * dp
knobs:
  - {key: tp, type: int, choices: [4], description: tensor-parallel degree}
  - {key: dp, type: int, choices: [1], description: data-parallel degree}
  - {key: micro_batch_size, type: int, choices: [1], description: sequences}
  - {key: all2all_backend, type: str, choices: [standard, deepep], description: "0.2.0 knows the first alone"}
"""


def test_it_is_refused_with_the_reason(cli: Cli, tmp_path: Path) -> None:
    words = local_runs.write_torchtitan(tmp_path, STANDIN, SPACE, "0.2.0")
    done = cli(*words, "--iterations", "1", "--no-profiler-cost")

    assert done.code == 0, done.err
    rows = cli("show", "latest", "--json").document["trial_rows"]
    states = {row["config"]["all2all_backend"]: (row["state"], row["failure"]) for row in rows}
    assert states == {"standard": ("succeeded", None), "deepep": ("pruned", "invalid_config")}
    (reason,) = (row["evidence"] for row in rows if row["state"] == "pruned")
    assert "torchtitan (toml-0.2.0) cannot be told all2all_backend='deepep'" in reason


def test_what_no_config_suits_ends_the_search_at_once(cli: Cli, tmp_path: Path) -> None:
    """The target's own fault is told, and costs no proposals."""
    words = local_runs.write_torchtitan(tmp_path, STANDIN, SPACE.replace("tp: 4", "tp"), "0.2.0")
    target = tmp_path / "target.yaml"
    target.write_text(target.read_text().replace('"version": "0.2.0"', '"version": "0.1.0"'))
    done = cli(*words, "--iterations", "3")

    assert done.code == 2
    assert "has no argument for the knob 'all2all_backend'" in done.err
