"""What the model is told: everything that happened, in the right direction, the same bytes every time."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccl_search.llm import history, prompts
from ccl_search.llm.canonical import canonical
from ccl_search.llm.request import RequestSettings, Shape, body
from ccl_search.proposers.base import ProposalContext, TrialView
from runs import objective
from runs.digests import text_sha256
from runs.objective import Objective
from runs.trial import FailureClass, TrialState
from tests.ccl_search.llm.ledger import (
    MFU,
    SPACE,
    STEP_TIME,
    composite,
    context,
    failed,
    maximised,
    minimised,
    succeeded,
)

SETTINGS = RequestSettings("Plain Python.")
SHAPE = Shape("claude-opus-5-5")
LONG_ERROR = "rank 3: " + "x" * 700 + "\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB"


def trials(count: int) -> list[TrialView]:
    return [
        succeeded(number, {"tp": number, "pp": 1}, -1.0 - number, avg_step_time=1.0 + number) for number in range(count)
    ]


def blocks(asked: ProposalContext, shape: Shape = SHAPE) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(asked, SETTINGS, shape, [])["messages"][0]["content"]
    return found


def whole(asked: ProposalContext) -> str:
    return "\n".join(block["text"] for block in blocks(asked))


def test_every_trial_is_one_line_with_its_whole_config_state_error_score_and_metrics() -> None:
    wide = {f"knob_{index}": index for index in range(30)}
    happened = [
        succeeded(0, wide, -0.44, avg_step_time=0.44, mfu=31.25),
        failed(1, {"tp": 4, "pp": 2}, FailureClass.OOM, LONG_ERROR),
        failed(2, {"tp": 4, "pp": 2}, FailureClass.DUPLICATE, "same config as trial 1, which failed: oom"),
        failed(3, None, FailureClass.PROPOSAL_FAILED, "the answer was cut off"),
    ]
    lines = [json.loads(line) for line in history.history_blocks(context(happened))[0].splitlines()[1:]]
    assert [line["trial"] for line in lines] == [0, 1, 2, 3]
    assert [line["state"] for line in lines] == ["succeeded", "failed", "pruned", "failed"]
    assert [line.get("failure") for line in lines] == [None, "oom", "duplicate", "proposal_failed"]
    assert [line["config"] for line in lines] == [wide, {"tp": 4, "pp": 2}, {"tp": 4, "pp": 2}, None]
    assert lines[1]["evidence"] == LONG_ERROR
    assert lines[0]["metrics"] == {"avg_step_time": 0.44, "mfu": 31.25}
    assert lines[0]["score"] == -0.44


def test_very_long_evidence_keeps_its_ends_and_says_what_it_lost() -> None:
    text = "first line\n" + "m" * 50_000 + "\nlast line"
    shown = history.evidence(text)
    assert shown.startswith("first line")
    assert shown.endswith("last line")
    assert f"[{len(text) - 8000} characters left out]" in shown


def test_a_rationale_of_a_megabyte_is_not_paid_for_in_every_call() -> None:
    endless = TrialView(1, TrialState.SUCCEEDED, {"tp": 1}, score=-1.0, rationale="why " * 250_000)

    assert len(history.trial_line(endless)) < 9_000


def test_secrets_in_evidence_policies_and_facts_are_not_sent() -> None:
    secret = "hf_abcdefghijklmnopqrstuvwx"
    bad = failed(
        0, {"tp": 1, "pp": 1}, FailureClass.LAUNCH, f"export HF_TOKEN={secret}\nWANDB_API_KEY: 0123456789abcdef"
    )
    asked = context([bad], current_policy=f"# {secret}\n", environment={"note": secret})
    assert secret not in whole(asked)
    assert "0123456789abcdef" not in whole(asked)


@pytest.mark.parametrize(
    ("goal", "formula", "way"),
    [
        (minimised(), "score = -avg_step_time.", "- avg_step_time in s, lower is better"),
        (maximised(), "score = mfu.", "- mfu in %, higher is better"),
        (
            composite(),
            "score = 0.5 * (1.5 / avg_step_time) + 0.5 * (16 / num_xpus).",
            "- num_xpus in devices, lower is better",
        ),
        (
            objective.build([STEP_TIME, MFU], [1.0, 3.0], {"avg_step_time": 1.5, "mfu": 30.0}),
            "score = 0.25 * (1.5 / avg_step_time) + 0.75 * (mfu / 30).",
            "- mfu in %, higher is better",
        ),
    ],
    ids=["minimised", "maximised", "composite", "mixed composite"],
)
def test_the_direction_is_said(goal: Objective, formula: str, way: str) -> None:
    text = history.facts_block(context(objective=goal))
    assert formula in text
    assert way in text
    assert "A higher score is better" in text


@pytest.mark.parametrize(
    ("goal", "values", "winner"),
    [
        (minimised(), [{"avg_step_time": 2.0}, {"avg_step_time": 0.5}, {"avg_step_time": 1.0}], 1),
        (maximised(), [{"mfu": 20.0}, {"mfu": 10.0}, {"mfu": 35.0}], 2),
        (
            composite(),
            [
                {"avg_step_time": 1.5, "num_xpus": 16.0},
                {"avg_step_time": 1.2, "num_xpus": 4.0},
                {"avg_step_time": 1.0, "num_xpus": 16.0},
            ],
            1,
        ),
    ],
    ids=["minimised", "maximised", "composite"],
)
def test_the_best_trial_is_the_best(goal: Objective, values: list[dict[str, float]], winner: int) -> None:
    done = [succeeded(n, {"tp": n, "pp": 1}, goal.score(metrics), **metrics) for n, metrics in enumerate(values)]
    text = history.task_block(context(done, objective=goal))
    assert f"Best so far (highest score): trial {winner}, score {goal.score(values[winner]):.6g}" in text


def test_facts_hold_workload_environment_space_and_constraints() -> None:
    text = history.facts_block(context())
    assert '"model_family": "llama-3.1-8b"' in text
    assert '"total_gpus": 4' in text
    assert "tp * pp <= environment.total_gpus" in text
    assert "no more devices than there are" in text
    for knob in SPACE.knobs:
        assert json.dumps(list(knob.choices)) in text
    assert text.count('"choices"') == len(SPACE.knobs)


def test_the_task_shows_current_policy_best_policy_and_what_is_left() -> None:
    best = replace(succeeded(0, {"tp": 1, "pp": 1}, -1.0), policy_source="# the best one\n")
    text = history.task_block(context([best], current_policy="# the newest one\n", iteration=3, iterations=10))
    assert "Iteration 3 of 10; 7 will be left" in text
    assert "# the newest one" in text
    assert "# the best one" in text
    assert history.task_block(context([best], current_policy="# the best one\n")).count("# the best one") == 1


def test_refusals_of_this_iteration_are_repeated_with_their_reasons() -> None:
    old = failed(1, {"tp": 2, "pp": 1}, FailureClass.SCREENED, "an old reason")
    new = failed(
        2, {"tp": 4, "pp": 2}, FailureClass.INVALID_CONFIG, "fits: no more devices than there are (tp=4, pp=2)"
    )
    text = history.task_block(context([*trials(1), old, new], refusals=1))
    assert 'invalid_config: {"pp": 2, "tp": 4}: fits: no more devices than there are (tp=4, pp=2)' in text
    assert "an old reason" not in text
    assert "your last proposal was refused" in text


def test_nothing_succeeded_yet_is_said() -> None:
    text = history.task_block(context([failed(0, {"tp": 1, "pp": 1}, FailureClass.OOM, "oom")]))
    assert "nothing has succeeded yet" in text


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 19, 20, 25])
def test_a_request_starts_with_the_bytes_of_the_one_before(count: int) -> None:
    before, after = blocks(context(trials(count))), blocks(context(trials(count + 1), iteration=2))
    stable = 1 + count // history.GROUP
    assert [b["text"] for b in before[:stable]] == [b["text"] for b in after[:stable]]
    if count % history.GROUP:
        assert after[stable]["text"].startswith(before[stable]["text"] + "\n")


TEXT = st.text(max_size=60)
ANY_TRIAL = st.builds(
    TrialView,
    number=st.integers(0, 99),
    state=st.sampled_from([state for state in TrialState if state.is_finished]),
    config=st.none() | st.dictionaries(TEXT, st.integers() | st.booleans() | TEXT, max_size=4),
    metrics=st.dictionaries(TEXT, st.floats(), max_size=3),
    score=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    failure=st.none() | st.sampled_from(list(FailureClass)),
    evidence=st.text(st.characters(), max_size=200),
    policy_source=TEXT,
    rationale=TEXT,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ANY_TRIAL, min_size=1, max_size=25))
def test_whatever_happened_is_told_on_one_line_each_and_only_added_to(happened: list[TrialView]) -> None:
    after = "\n".join(block["text"] for block in blocks(context(happened))[1:-1])
    lines = [line for line in after.split("\n") if not line.startswith("<trials")]
    assert [json.loads(line)["trial"] for line in lines] == [trial.number for trial in happened]
    before = "\n".join(block["text"] for block in blocks(context(happened[:-1]))[1:-1])
    assert after.startswith(before)


def test_bytes_that_were_no_text_do_not_break_the_request() -> None:
    undecoded = b"CUDA error \xff\xfe".decode("utf-8", errors="surrogateescape")
    made = body(context([failed(0, {"tp": 1}, FailureClass.OOM, undecoded)]), SETTINGS, SHAPE, [])
    assert b"CUDA error ??" in canonical(made).encode("utf-8")


def test_system_and_tools_never_change() -> None:
    first = body(context(), SETTINGS, SHAPE, [])
    later = body(context(trials(30), iteration=9, refusals=2, objective=maximised()), SETTINGS, SHAPE, [])
    assert canonical([first["system"], first["tools"]]) == canonical([later["system"], later["tools"]])


@pytest.mark.parametrize("count", [0, 5, 10, 25, 60])
def test_cache_marks_are_few_and_only_on_what_is_stable(count: int) -> None:
    made = body(context(trials(count)), SETTINGS, SHAPE, [])
    marked = [index for index, block in enumerate(made["messages"][0]["content"]) if "cache_control" in block]
    assert "cache_control" in made["system"][0]
    assert marked == ([0] if count < 10 else [0, count // 10])
    assert len(marked) + 1 <= 4
    assert "cache_control" not in json.dumps(
        body(context(trials(count)), RequestSettings("x", cache_ttl=None), SHAPE, [])
    )


def test_the_request_does_not_depend_on_the_order_of_keys() -> None:
    one = succeeded(0, {"tp": 1, "pp": 2}, -1.0, avg_step_time=1.0, mfu=2.0)
    other = succeeded(0, {"pp": 2, "tp": 1}, -1.0, mfu=2.0, avg_step_time=1.0)
    environment = {"total_gpus": 4, "gpu_model": "a"}
    turned = {"gpu_model": "a", "total_gpus": 4}
    assert whole(context([one], environment=environment)) == whole(context([other], environment=turned))


def test_the_request_is_the_same_in_another_process() -> None:
    code = (
        "from tests.ccl_search.llm.test_history import *;"
        "print(text_sha256(canonical(body(context(trials(12)), SETTINGS, SHAPE, []))))"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert there == text_sha256(canonical(body(context(trials(12)), SETTINGS, SHAPE, [])))


def test_floats_have_six_digits_and_infinities_do_not_break_the_request() -> None:
    line = json.loads(history.trial_line(succeeded(0, {"tp": 1}, -1 / 3, ratio=float("inf"), t=0.1 + 0.2)))
    assert line["score"] == -0.333333
    assert line["metrics"] == {"ratio": "inf", "t": 0.3}


def test_types_of_config_values_survive() -> None:
    line = history.trial_line(succeeded(0, {"a": True, "b": 1, "c": 1.0, "d": "1"}, 1.0))
    assert '"config": {"a": true, "b": 1, "c": 1.0, "d": "1"}' in line


class TestCompaction:
    happened = (*trials(30), failed(30, {"tp": 9, "pp": 9}, FailureClass.OOM, "e" * 900), *trials(15))

    def test_every_trial_keeps_config_state_class_and_score(self) -> None:
        lines = [
            json.loads(line)
            for block in history.history_blocks(context(self.happened), 2)
            for line in block.splitlines()[1:]
        ]
        assert len(lines) == len(self.happened)
        for line, trial in zip(lines, self.happened, strict=True):
            assert line["config"] == trial.config
            assert line["state"] == trial.state
            assert line.get("score") == trial.score
        assert lines[30]["failure"] == "oom"
        assert len(lines[30]["evidence"]) < 200

    def test_the_best_and_the_last_stay_whole(self) -> None:
        text = "\n".join(history.history_blocks(context(self.happened), 1))
        for trial in [self.happened[0], *self.happened[-10:]]:
            assert history.trial_line(trial) in text
        assert history.trial_line(self.happened[20]) not in text

    def test_each_level_is_shorter(self) -> None:
        sizes = [sum(map(len, history.history_blocks(context(self.happened), level))) for level in (0, 1, 2)]
        assert sizes[0] > sizes[1] > sizes[2]


class TestPrompts:
    def test_the_dialect_is_in_the_system_prompt(self) -> None:
        text = body(context(), RequestSettings("Only additions."), SHAPE, [])["system"][0]["text"]
        assert "Only additions." in text
        assert "$" not in text.replace("$\\", "")

    def test_the_system_prompt_names_every_input_state_and_class(self) -> None:
        text = prompts.template("system")
        named = [state.value for state in TrialState if state.is_finished]
        named += [failure.value for failure in FailureClass]
        named += ["submit_policy", "num_kv_heads", "inter_node_bandwidth_gbps", "xpu_type", "config_space"]
        assert [name for name in named if f"`{name}`" not in text and f"`{name}" not in text] == []

    def test_dollar_signs_in_values_are_left_alone(self) -> None:
        assert "echo $HOME ${x}" in history.task_block(context(current_policy="# echo $HOME ${x}"))

    def test_the_hash_covers_every_prompt_file(self) -> None:
        files = {path.stem for path in Path(prompts.__file__).parent.glob("*.md")}
        assert files == set(prompts.NAMES)
        assert len(prompts.prompt_hash()) == 64
        assert all(prompts.template(name) in prompts.full_text() for name in files)
