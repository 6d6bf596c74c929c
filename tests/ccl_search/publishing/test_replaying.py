"""Replaying on another cluster: the arms, the verdict from their numbers, causes of changed knobs, other frameworks."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ccl_search import assembly
from ccl_search.loop.recorder import Recorder
from tests.ccl_search.cli import Cli
from tests.ccl_search.publishing import made

FOLLOWS = '''"""Tensor parallel over a node, data parallel over the rest."""


def generate_config(workload, environment):
    config = {knob["key"]: knob["choices"][0] for knob in workload["config_space"]}
    node = environment["gpus_per_node"]
    rest = min(environment["total_gpus"] // node, workload["batch_size"])
    config.update(tp=node, pp=1, dp=rest, micro_batch_size=1, pipeline_schedule="1f1b", zero_stage=3)
    config.update(dp_shard=rest, activation_checkpointing="none", compile=True)
    return config
'''


@pytest.fixture(scope="module")
def follower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published search whose best policy reads the size of a node."""
    place = tmp_path_factory.mktemp("follower")
    (place / "policy.py").write_text(FOLLOWS, encoding="utf-8")
    from ccl_search import targets
    from ccl_search.loop.execution import Executor
    from ccl_search.loop.interrupt import Interrupt
    from ccl_search.problem import ProblemSource
    from ccl_search.settings import SearchSettings

    source = ProblemSource(card=made.small_card(place / "card.yaml"))
    with assembly.open_store(str(place / "home"), write=True) as store:
        settings = SearchSettings(iterations=0, proposer="guided")
        search = assembly.create(source, settings, store, place / "policy.py")
        search.run(Executor(targets.launcher(targets.find("dry-run")), Interrupt()))
    made.published(place / "home", place / "out")
    return place / "out"


def arms(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {arm["arm"]: arm for arm in document["arms"]}


def test_policy_config_and_seed_run_side_by_side_and_the_best_is_1(follower: Path, cli: Cli) -> None:
    document = cli("replay", str(follower), "--environment", "h100-16", "--refine", "1", "--json").document

    found = arms(document)
    assert set(found) == {"seed", "policy", "config", "refined"}
    assert found["policy"]["config"]["tp"] == 8
    assert found["config"]["config"]["tp"] == 4
    scores = {name: arm["score"] for name, arm in found.items() if arm["score"] is not None}
    best = max(scores.values())
    assert document["best_found"]["score"] == best
    for name, score in scores.items():
        assert found[name]["ratio"] == pytest.approx(score / best)
        assert found[name]["ratio"] >= 1
    assert document["transfers"] == (found["policy"]["ratio"] <= 1.05)
    run = cli("show", document["run_id"], "--json").document
    assert [row["trial"] for row in run["trial_rows"]] == [0, 1, 2, 3]
    with assembly.open_store(str(cli.home), write=False) as store:
        stored = store.run(document["run_id"])
        assert stored.kind == "replay"
        assert stored.options["verdict"]["verdict"] == document["verdict"]
        assert stored.environment["gpu_model"] == "nvidia_h100"


def test_a_changed_knob_names_the_fact_that_changed_it(follower: Path, cli: Cli) -> None:
    document = cli("replay", str(follower), "--environment", "h100-16", "--json").document

    knobs = {knob["knob"]: knob for knob in document["knobs"]}
    assert (knobs["tp"]["published"], knobs["tp"]["replayed"]) == (4, 8)
    assert knobs["tp"]["because_of"] == ["gpus_per_node 4 -> 8"]
    assert all("gpu_model" not in cause for knob in knobs.values() for cause in knob["because_of"])


def test_the_verdict_follows_the_tolerance(follower: Path, cli: Cli) -> None:
    arguments = ("replay", str(follower), "--environment", "h100-16", "--refine", "1", "--json")
    strict, lax = (cli(*arguments, "--tolerance", value).document for value in ("0", "1000"))

    assert lax["transfers"] is True
    assert "the policy transfers" in lax["verdict"]
    assert strict["transfers"] == (arms(strict)["policy"]["ratio"] == 1)


def test_what_cannot_run_there_says_why(follower: Path, cli: Cli) -> None:
    document = cli("replay", str(follower), "--environment", "perlmutter-a100-4", "--json").document

    config = arms(document)["config"]
    assert (config["score"], config["ratio"]) == (None, None)
    assert config["infeasible"].startswith("invalid_config: ")
    assert "cannot run there" in document["verdict"]


def test_the_same_cluster_gives_the_same_config_and_it_is_run_once(follower: Path, cli: Cli) -> None:
    assert cli("import", str(follower)).code == 0
    document = cli("replay", str(follower), "--json").document

    found = arms(document)
    assert found["config"]["same_as"] == "policy"
    assert found["config"]["trial"] == found["policy"]["trial"]
    assert found["policy"]["score"] == pytest.approx(document["replayed"]["published_score"])
    assert document["knobs"] == []
    imported = next(run["id"] for run in cli("list", "--json").document if run["id"] != document["run_id"])
    assert document["parent"] == imported


def test_another_framework_gets_a_translation_that_means_the_same(follower: Path, cli: Cli) -> None:
    document = cli("replay", str(follower), "--environment", "h100-8", "--framework", "megatron-lm", "--json").document

    translation = document["translations"]["policy"]
    notes = {note["knob"]: note for note in translation["knobs"]}
    assert document["framework"] == "megatron-lm"
    assert (notes["tp"]["after"], notes["tp"]["how"]) == (8, "kept")
    assert notes["compile"]["how"] == "left out"
    assert notes["sequence_parallel"] == {
        "knob": "sequence_parallel", "before": None, "after": True, "how": "translated",
    }  # fmt: skip
    assert arms(document)["policy"]["config"] == translation["config"]
    assert arms(document)["policy"]["score"] is not None


def test_a_run_of_the_store_replays_too(follower: Path, cli: Cli) -> None:
    run = cli("import", str(follower), "--json").document["runs"][0]["run_id"]

    document = cli("replay", run, "--environment", "h100-8", "--json").document

    assert document["parent"] == run
    assert arms(document)["policy"]["config"]["tp"] == 8


def test_a_cluster_that_is_not_bundled_is_said_by_a_card(follower: Path, cli: Cli, tmp_path: Path) -> None:
    """The machines are the card's; the workload stays the published one, whatever else the card says."""
    card = made.small_card(tmp_path / "mine.yaml")
    text = card.read_text(encoding="utf-8").replace("count_per_node: 4", "count_per_node: 2")
    card.write_text(text.replace("batch_size: 4", "batch_size: 64"), encoding="utf-8")

    document = cli("replay", str(follower), "--card", str(card), "--json").document

    run = cli("show", document["run_id"], "--json").document
    assert document["environment"]["gpus_per_node"] == 2
    assert arms(document)["policy"]["config"]["tp"] == 2
    with assembly.open_store(str(cli.home), write=False) as store:
        assert store.run(run["run_id"]).workload["batch_size"] == 4
    both = cli("replay", str(follower), "--card", str(card), "--environment", "h100-8")
    assert (both.code, "leave out --environment" in both.err) == (2, True)


def test_a_target_stands_for_its_environment(follower: Path, cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "mine.yaml"
    target.write_text("kind: local\nname: mine\nenvironment: h100-8\n", encoding="utf-8")
    with assembly.open_store(str(cli.home), write=True) as store:
        from ccl_search.replaying.preparing import ReplayOptions, origin_of_published, prepare
        from policies.reading import open_published

        with open_published(follower) as published:
            origin = origin_of_published(store, published)
        search = prepare(store, origin, ReplayOptions(target=str(target))).search
        search.close()

    assert search.problem.environment.device.name == "nvidia_h100"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("missing/folder",), 2, "there is nothing at missing/folder"),
        (("nobody",), 2, "there is no run"),
        (("{out}", "--environment", "moon-8"), 2, "no bundled environment"),
        (("{out}", "--framework", "deepspeed"), 2, "no framework"),
        (("{out}", "--environment", "tpu-v6e-8"), 2, "torchtitan runs on GPU"),
        (("{out}", "--target", "moon"), 2, "no target"),
        (("{out}", "--exact", "--refine", "2"), 2, "leave out"),
    ],
)
def test_bad_input_is_refused_and_stores_nothing(
    arguments: tuple[str, ...], code: int, says: str, follower: Path, cli: Cli
) -> None:
    result = cli("replay", *(argument.format(out=follower) for argument in arguments))

    assert result.code == code
    assert says in result.err
    assert not list(cli.home.glob("runs/*"))


def test_an_interrupted_replay_has_no_verdict_until_it_is_resumed(
    follower: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("replay", str(follower), "--environment", "h100-16", "--refine", "1", "--tolerance", "0.5", "--json")
    whole = cli(*arguments).document
    complete = Recorder.complete

    def stopping(recorder: Recorder, number: int, *rest: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return complete(recorder, number, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "complete", stopping)
        broken = cli(*arguments).document
    again = cli("resume", broken["run_id"], "--json").document

    assert (broken["status"], broken["transfers"]) == ("interrupted", None)
    assert f"`ccl-search resume {broken['run_id']}` goes on" in broken["verdict"]
    assert again["run_id"] == broken["run_id"]
    assert again["status"] == "finished"
    ours = [{key: value for key, value in found.items() if key != "run_id"} for found in (again, whole)]
    assert ours[0] == ours[1]
    assert (again["tolerance"], bool(again["knobs"])) == (0.5, True)
    assert cli("show", broken["run_id"], "--json").document["replay"] == again
    assert f"replay: {again['verdict']}" in cli("show", broken["run_id"]).err
