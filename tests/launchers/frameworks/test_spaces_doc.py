"""docs/spaces.md: the example is a space, the expressions are expressions, the generated part is current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from launchers.frameworks import describe
from runs import expressions
from runs.errors import BadInputError
from runs.space import ConfigSpace

TEXT = (Path(__file__).parents[3] / "docs" / "spaces.md").read_text(encoding="utf-8")
WORKLOAD, ENVIRONMENT = {"batch_size": 4}, {"total_gpus": 16}


def example() -> ConfigSpace:
    blocks = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 1
    return ConfigSpace.from_dict(yaml.safe_load(blocks[0]))


def test_the_example_is_a_space_whose_rules_bite() -> None:
    space = example()
    config = {"tp": 4, "pp": 1, "dp": 4, "micro_batch_size": 1, "activation_checkpointing": "none"}

    assert space.violations(config, WORKLOAD, ENVIRONMENT) == []
    assert space.world_size(config, WORKLOAD, ENVIRONMENT) == 16
    broken = space.violations({**config, "pp": 2, "micro_batch_size": 2}, WORKLOAD, ENVIRONMENT)
    assert [violation.rule for violation in broken] == [
        "devices",
        "global_batch",
        "pp == 1 or workload.batch_size // (dp * micro_batch_size) >= pp",
    ]


def test_the_generated_part_is_current() -> None:
    generated = TEXT.split("<!-- generated -->\n", 1)[1]

    assert generated == describe.document(), "run python -m launchers.frameworks.describe"


def test_the_language_is_as_the_page_says() -> None:
    for text in (
        "1 < tp <= 4",
        "tp in (1, 2)",
        "not tp == 1",
        "tp if pp > 1 else dp",
        "ceil(tp / 2) // 1 % 3 - abs(pp)",
    ):
        expressions.parse(text)
    for text in ("tp ** 2", "tp.real", "tp[0]", "[x for x in (1,)]", "print(tp)"):
        with pytest.raises(BadInputError):
            expressions.parse(text)
    for name in ("min", "max", "abs", "ceil", "floor", "workload", "environment"):
        with pytest.raises(BadInputError):
            ConfigSpace.from_dict({"knobs": [{"key": name, "choices": [1]}]})
    assert yaml.safe_load("none") == "none" and yaml.safe_load("1f1b") == "1f1b"
