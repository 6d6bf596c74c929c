"""Programs of the user's own: templates, the environment contract, and the documentation of both."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from launchers.frameworks.commands.own import filled
from launchers.frameworks.commands.settings import read_settings
from launchers.shell.command import Slot
from runs.errors import BadInputError
from tests.launchers.frameworks.commands import command, run_locally, training

PAGE = (Path(__file__).parents[3] / "docs" / "frameworks.md").read_text(encoding="utf-8")
CONFIG: dict[str, Any] = {"tp": 2, "dp": 2, "micro_batch_size": 1, "collective_algorithm": "tree", "fast": True}
PROGRAM = """
import json, os, sys
told = dict(item for item in os.environ.items() if item[0].startswith("CCL_SEARCH_"))
print(json.dumps([sys.argv[1:], told]))
"""


def own(config: dict[str, Any] | None = None, **settings: Any) -> Any:
    settings.setdefault("command", [sys.executable, "-S", "-c", PROGRAM])
    return command("command", CONFIG if config is None else config, "1", path=None, **settings)


def test_a_template_is_filled_word_by_word(tmp_path: Path) -> None:
    words = [
        "--tp={tp}",
        "{micro_batch_size}x{global_batch}",
        "{{{collective_algorithm}}}",
        "{fast}",
        "{trace_dir}/a b",
    ]
    made = own(command=[sys.executable, "-S", "-c", PROGRAM, *words])

    seen = json.loads(run_locally(made, tmp_path / "a job"))

    assert seen[0] == ["--tp=2", "1x4", "{tree}", "true", f"{tmp_path}/a job/trace/a b"]
    assert made.trace_globs == ("**/*.json", "**/*.json.gz", "**/*.sqlite", "**/*.xplane.pb")
    assert made.trace_count is None and made.env["NCCL_ALGO"] == "Tree"


def test_the_environment_tells_everything_that_the_page_lists(tmp_path: Path) -> None:
    made = own(model="/models/x")
    serving = command("command", {"tp": 4, "dp": 1}, "1", "wl1", command=["x"], model="m")

    seen = json.loads(run_locally(made, tmp_path / "job"))[1]

    numbers = {
        name: seen[f"CCL_SEARCH_{name}"] for name in ("GLOBAL_BATCH", "NUM_MICROBATCHES", "SEQ_LEN", "WORLD_SIZE")
    }
    assert list(numbers.values()) == ["4", "2", "512", "4"]
    assert (seen["CCL_SEARCH_KNOB_TP"], seen["CCL_SEARCH_KNOB_FAST"]) == ("2", "true")
    assert (seen["CCL_SEARCH_NODE_RANK"], seen["CCL_SEARCH_NUM_NODES"]) == ("0", "1")
    assert seen["CCL_SEARCH_TRACE_DIR"] == str(tmp_path / "job" / "trace")
    document = json.loads(Path(seen["CCL_SEARCH_CONFIG_FILE"]).read_text())
    assert document["config"] == CONFIG and document["plan"]["num_microbatches"] == 2
    table = PAGE.split("| variable | value |", 1)[1].split("\n\n", 1)[0]
    listed = set(re.findall(r"`(CCL_SEARCH_\w+)`", table)) - {"CCL_SEARCH_KNOB_NAME"}
    ours = ("CCL_SEARCH_KNOB_", "CCL_SEARCH_REQUIRE_")
    named = (name for name in (*seen, *serving.env) if name.startswith("CCL_SEARCH_"))
    told = {name for name in named if not name.startswith(ours)}
    assert told == listed


def test_the_pages_example_is_a_section_that_works() -> None:
    examples = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    section = next(example for example in examples if "command" in example["framework"]["command"])
    settings = read_settings("command", section["framework"])

    made = command("command", CONFIG, "1", **settings.model_dump(exclude_none=True, exclude={"version", "path"}))

    assert made.argv == ("python3", "train.py", "--tp=2", "--batch=4", "--trace", str(Slot.TRACE_DIR))
    assert (made.trace_globs, made.trace_count) == (("*.json.gz",), 16)


@pytest.mark.parametrize(
    "word", ["{nothing}", "{}", "{0}", "{tp.real}", "{tp!r}", "{tp:>9}", "{tp[0]}", "{", "}", "{tp"]
)
def test_templates_name_what_there_is_and_nothing_more(word: str) -> None:
    with pytest.raises(BadInputError, match="command"):
        filled(word, {"tp": "2"})


@pytest.mark.parametrize(
    "config",
    [
        {"dp": 4, "micro_batch_size": 1, "name": "a\nb"},
        {"dp": 4, "micro_batch_size": 1, "name": "\0"},
        {"dp": 4, "micro_batch_size": 1, "name": "@CCL_JOB_DIR@"},
        {"dp": 4, "micro_batch_size": 1, "name": ["a"]},
        {"dp": 4, "micro_batch_size": 1, "näme": "a"},
        {"dp": 4, "micro_batch_size": 1, "name": 1, "NAME": 2},
    ],
)
def test_values_and_names_that_are_not_plain_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        own(config)


def test_no_knob_can_become_a_variable_outside_its_prefix() -> None:
    config = {"dp": 4, "micro_batch_size": 1, "PATH": "/evil", "LD_PRELOAD": "x.so", "global_batch": "999"}

    made = own(config)

    assert all(name.startswith("CCL_SEARCH_") for name in made.env)
    assert made.env["CCL_SEARCH_GLOBAL_BATCH"] == "4" and made.env["CCL_SEARCH_KNOB_PATH"] == "/evil"


def test_a_target_without_a_program_is_told_so() -> None:
    with pytest.raises(BadInputError, match="needs a program") as caught:
        own(command=[])
    assert "command:" in caught.value.hint


def test_one_process_a_device_and_the_moe_study() -> None:
    made = own(per_node=False, trace_count=4)
    study = command(
        "command", {"tp": 4, "ep": 8, "tp_algorithm": "ring", "network_mode": "ib-none"}, "1", "moe-prefill-glm-5",
        "h100-32", command=["run", "{tp_algorithm}", "{network_mode}"],
    )  # fmt: skip

    assert (made.per_node, made.tasks_per_node, made.trace_count) == (False, 4, 4)
    assert made.steps == {}, "only the program knows"
    assert study.argv == ("run", "ring", "ib-none") and study.world_size == 32
    assert replace(training(), batch_size=4).batch_size == 4
