"""What a config can reach: only numbers and listed values become words, nothing becomes a variable's name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launchers import frameworks
from launchers.frameworks.commands.settings import read_settings
from launchers.frameworks.deployment import Deployment
from runs import catalogue
from runs.errors import BadInputError
from tests.launchers.frameworks.commands import command, run_locally, training

PLAIN = {"dp": 4, "micro_batch_size": 1}
SERVING = {"tp": 4, "dp": 1}
VERSIONS = {
    "torchtitan": "0.2.2",
    "megatron-lm": "0.12.0",
    "maxtext": "0.2.5",
    "vllm": "0.19.0",
    "sglang": "0.5.10",
}
HOSTILE = ["$(touch owned)", "none; touch owned", "none\ntouch owned", "--job.config_file=/etc/passwd", "none\0", "é"]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(
    ("framework", "key", "workload", "environment"),
    [
        ("torchtitan", "all2all_backend", "wl4", "perlmutter-a100-16"),
        ("megatron-lm", "all2all_backend", "wl4", "perlmutter-a100-16"),
        ("torchtitan", "collective_algorithm", "wl4", "perlmutter-a100-16"),
        ("megatron-lm", "collective_protocol", "wl4", "perlmutter-a100-16"),
        ("maxtext", "collective_algorithm", "wl4", "h100-8"),
        ("vllm", "all2all_backend", "wl3", "perlmutter-a100-16"),
        ("sglang", "communication_library", "wl3", "perlmutter-a100-16"),
    ],
)
def test_texts_that_no_table_lists_are_refused(
    framework: str, key: str, workload: str, environment: str, value: str
) -> None:
    config = {**(PLAIN if workload == "wl4" else SERVING), key: value}
    with pytest.raises(BadInputError) as caught:
        command(framework, config, VERSIONS[framework], workload, environment)
    assert key in caught.value.message


@pytest.mark.parametrize("framework", ["torchtitan", "megatron-lm", "maxtext"])
@pytest.mark.parametrize("key", ["PATH", "LD_PRELOAD", "extra_flag", "path", "model"])
def test_knobs_that_an_era_has_no_word_for_are_refused(framework: str, key: str) -> None:
    with pytest.raises(BadInputError, match=f"no argument for the knob '{key}'"):
        command(framework, {**PLAIN, key: 1}, VERSIONS[framework], environment="h100-8")


@pytest.mark.parametrize("value", ["4", True, 4.5, None, [4], "4 --x"])
def test_degrees_are_whole_numbers(value: Any) -> None:
    what, where = catalogue.workload("wl4"), catalogue.environment("perlmutter-a100-16")
    adapter = frameworks.get("torchtitan")
    plan = adapter.plan(PLAIN, what, where)
    with pytest.raises(BadInputError):
        adapter.command(Deployment({**PLAIN, "zero_stage": value}, plan, what, where, {"version": "0.2.2"}))
    if not isinstance(value, float):
        with pytest.raises(BadInputError):
            adapter.command(Deployment({**PLAIN, "tp": value}, plan, what, where, {"version": "0.2.2"}))


def test_a_plan_of_another_batch_is_refused() -> None:
    what, where = catalogue.workload("wl4"), catalogue.environment("perlmutter-a100-16")
    adapter = frameworks.get("megatron-lm")
    plan = replace(adapter.plan(PLAIN, what, where), num_microbatches=2)

    with pytest.raises(BadInputError, match="runs 8 sequences a step, the workload has 4"):
        adapter.command(Deployment(PLAIN, plan, what, where, {"version": "0.12.0"}))


@pytest.mark.parametrize(
    ("framework", "precision"),
    [("torchtitan", "fp8"), ("megatron-lm", "fp8"), ("maxtext", "fp16"), ("torchtitan", "x;y")],
)
def test_precisions_that_cannot_be_told_are_refused(framework: str, precision: str) -> None:
    with pytest.raises(BadInputError, match="precision"):
        command(framework, PLAIN, VERSIONS[framework], training(precision=precision), "h100-8")


def test_models_of_another_shape_are_refused() -> None:
    what = training()
    short = replace(what, model=replace(what.model, num_layers=16))

    for framework, words in (("torchtitan", "32 layers, the workload 16"), ("maxtext", "of 16 layers")):
        with pytest.raises(BadInputError, match=words):
            command(framework, PLAIN, VERSIONS[framework], short, "h100-8")
    assert "16" in command("megatron-lm", PLAIN, "0.12.0", short).argv


def test_knobs_that_an_old_release_lacks_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"\(toml-0.1\) cannot be told ep=2"):
        command("torchtitan", {**PLAIN, "ep": 2, "dp_shard": 4}, "0.1.0")


def test_collective_choices_become_variables_of_the_library() -> None:
    config = {**PLAIN, "collective_algorithm": "ring", "collective_protocol": "ll128"}
    made = command("torchtitan", config, "0.2.2", env={"NCCL_ALGO": "Tree", "HF_HOME": "/tmp/hf"})

    assert made.env["NCCL_ALGO"] == "Ring", "the trial's own choice stands over the target's"
    assert (made.env["NCCL_PROTO"], made.env["HF_HOME"]) == ("LL128", "/tmp/hf")
    automatic = {**PLAIN, "collective_algorithm": "auto", "communication_library": "nccl"}
    assert "NCCL_ALGO" not in command("torchtitan", automatic, "0.2.2").env
    with pytest.raises(BadInputError, match="TPU"):
        command("maxtext", {**PLAIN, "collective_algorithm": "ring"}, "0.2.5", environment="tpu-v6e-8")


def test_libraries_are_where_the_target_says() -> None:
    config = {**SERVING, "communication_library": "mscclpp"}
    paths = {"mscclpp": "/opt/lib/libmscclpp_nccl.so"}

    assert command("vllm", config, "0.19.0", "wl1", libraries=paths).env["VLLM_NCCL_SO_PATH"] == paths["mscclpp"]
    assert command("sglang", config, "0.5.10", "wl1", libraries=paths).env["LD_PRELOAD"] == paths["mscclpp"]
    with pytest.raises(BadInputError, match="does not say where it is"):
        command("vllm", config, "0.19.0", "wl1")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pth": "/x"}, "pth"),
        ({"env": {"A-B": "1"}}, "A-B"),
        ({"env": {"A": 1}}, "env.A"),
        ({"extra": "--x"}, "extra"),
        ({"version": ""}, "version"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInputError) as caught:
        read_settings("torchtitan", settings)
    assert words in caught.value.message and "version" in caught.value.hint


def test_settings_of_one_framework_stand_over_those_of_all() -> None:
    given = {
        "python": "python3.12",
        "env": {"A": "1"},
        "vllm": {"python": "/v/bin/python"},
        "torchtitan": {"path": "~/t"},
    }

    assert (
        read_settings("vllm", given).python == "/v/bin/python" and read_settings("sglang", given).python == "python3.12"
    )
    assert read_settings("torchtitan", given).path == str(Path("~/t").expanduser())


def test_every_word_reaches_the_program_as_it_is(tmp_path: Path) -> None:
    """The words of the user with everything a shell would act on, through the script of this machine."""
    weird = ["$(touch owned)", "a b", "it's", '"q"', "*", "line\nbreak", "\\", "`x`", "${HOME}", ";", "", "é"]
    recorder = tmp_path / "record words"
    recorder.write_text("#!/bin/bash\nprintf '%s\\0' \"$@\" > words; printf '%s' \"$WEIRD\" > variable\n")
    recorder.chmod(0o755)
    config = {"dp": 4, "micro_batch_size": 1}
    made = command(
        "torchtitan", config, "0.2.2", torchrun=[str(recorder)], extra=weird, env={"WEIRD": "\n".join(weird)},
        path=str(tmp_path),
    )  # fmt: skip

    run_locally(made, tmp_path / "it's a job")

    seen = (tmp_path / "words").read_text().split("\0")[:-1]
    expected = [word.replace("@CCL_TRACE_DIR@", str(tmp_path / "it's a job" / "trace")) for word in made.argv[1:]]
    assert seen == expected and seen[-len(weird) :] == weird
    assert (tmp_path / "variable").read_text() == "\n".join(weird)
    assert not list(tmp_path.rglob("owned"))
