"""A dry run behind ASTRA-sim, with a program of its interface: what comes out of the trace files is its times."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from backends.astra.dry_run import AstraSettings, dry_run, read_settings
from backends.astra.mending import with_world_named
from backends.astra.process import Limits
from backends.astra.programs import ANALYTICAL, NS3, Program
from backends.astra.simulate import simulate_files
from backends.dry_run import dry_run as flow_dry_run
from backends.timeline import SimulationResult
from backends.trace import write_traces
from ccl_search.loop.execution import Executor
from ccl_search.loop.interrupt import Interrupt
from launchers.base import Job
from launchers.dry_run import DryRunLauncher, from_settings
from runs import catalogue
from runs.errors import BadInputError, TargetUnavailableError
from runs.plan import ParallelPlan, StateBytes
from runs.trial import FailureClass, Fidelity, TrialState
from runs.workload import Workload
from tests.backends.astra import traces as make

_PROGRAM = (sys.executable, str(Path(__file__).parent / "small_simulator.py"))
_STATE = StateBytes(4.0, 4.0, 8.0, 2.0)
_PLAN = ParallelPlan("test", tp=2, pp=2, dp_shard=2, num_microbatches=2, state_bytes=_STATE)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))


def _settings(backend: str = ANALYTICAL, *more: str) -> AstraSettings:
    return AstraSettings(Program(backend, (*_PROGRAM, *more), source="test"), limits=Limits(wall_s=60))


def _small(name: str, layers: int) -> Workload:
    workload = catalogue.workload(name)
    return replace(workload, model=replace(workload.model, num_layers=layers))


@cache
def _simulated(plan: ParallelPlan = _PLAN, backend: str = ANALYTICAL) -> SimulationResult:
    return dry_run(_small("wl4", 4), catalogue.environment("perlmutter-a100-16"), plan, _settings(backend))


def _flow(plan: ParallelPlan = _PLAN) -> SimulationResult:
    return flow_dry_run(_small("wl4", 4), catalogue.environment("perlmutter-a100-16"), plan, detail="kernel")


def test_computation_is_the_built_in_simulators_and_communication_the_programs() -> None:
    found, flow = _simulated(), _flow()
    assert found.backend == ANALYTICAL
    assert found.compute_s == pytest.approx(flow.compute_s, rel=2e-3)  # durations go out in whole µs
    assert found.wall_s != flow.wall_s
    for timeline in found.timelines:
        own = timeline.figures
        total = own.compute_s + own.exposed_s + own.copy_s + own.bubble_s + own.idle_s
        assert total == pytest.approx(own.wall_s, rel=1e-9)
    assert sorted(rank for one in found.timelines for rank in one.represents) == list(range(8))


def test_every_kernel_and_collective_of_the_step_is_on_the_new_timeline() -> None:
    found, flow = _simulated(), _flow()

    def counted(result: SimulationResult, rank: int) -> dict[tuple[str, str], int]:
        timeline = next(one for one in result.timelines if rank in one.represents)
        counts: dict[tuple[str, str], int] = {}
        for run in timeline.runs:
            for _, piece in run.pieces():
                counts[run.task.label, piece.name] = counts.get((run.task.label, piece.name), 0) + 1
        return counts

    for rank in range(8):
        assert counted(found, rank) == counted(flow, rank)


def test_a_collective_in_the_trace_takes_what_the_program_took(tmp_path: Path) -> None:
    write_traces(_simulated(), tmp_path)
    files = sorted(tmp_path.glob("rank*_trace.json"))
    assert files
    for path in files:
        document = json.loads(path.read_text(encoding="utf-8"))
        assert document["simulated"]["backend"] == ANALYTICAL
        events = [e for e in document["traceEvents"] if "Collective name" in e.get("args", {})]
        assert events
        assert {e["dur"] for e in events} == {1.0}  # every transfer of this program is a microsecond


def test_backward_passes_wait_for_the_next_stage() -> None:
    found = _simulated()
    by_stage = {one.rank_class.stage: one for one in found.timelines}
    last = {run.task.microbatch: run.end for run in by_stage[1].runs if run.task.phase == "backward"}
    first = {run.task.microbatch: run.start for run in by_stage[0].runs if run.task.phase == "backward"}
    assert first.keys() == last.keys() == {0, 1}
    assert all(first[number] > last[number] for number in first)


def test_ns3_gives_bytes_of_links_and_flows() -> None:
    found = _simulated(backend=NS3)
    assert found.backend == NS3
    assert sum(found.links.values()) > 0
    assert found.network["flows"] > 0
    assert found.summary()["network"]["bytes_sent"] > 0


def test_serving_has_its_latencies() -> None:
    workload = replace(_small("wl1", 1), output_len=2)
    plan = ParallelPlan("vllm", tp=2, state_bytes=StateBytes(2.0, 0.0, 0.0, 0.0))
    environment = catalogue.environment("perlmutter-a100-16")
    found = dry_run(workload, environment, plan, _settings())
    assert found.ttft_s is not None
    assert found.tpot_s is not None
    assert found.ttft_s > found.tpot_s > 0


def test_collectives_of_all_ranks_beside_groups_get_a_group(tmp_path: Path) -> None:
    first = [make.collective(1, 64, (), "1"), make.collective(2, 64, (1,), "1"), make.collective(3, 64, (2,))]
    other = [make.work(1, 1), make.collective(3, 64, (1,))]
    paths = make.write(tmp_path, [first, first, other, other], groups={"1": [0, 1]})
    inputs = paths.load()
    named, group = with_world_named(inputs, inputs.traces)
    assert group == "2"
    assert [node.get("pg_name") for node in named[0].nodes] == ["1", "1", "2"]
    found = simulate_files(paths, _settings().program)
    assert found.inputs.groups == {"1": (0, 1), "2": (0, 1, 2, 3)}
    assert "were given a group" in " ".join(found.notes)


def test_collectives_of_all_ranks_alone_stay_as_they_are(tmp_path: Path) -> None:
    inputs = make.load(tmp_path, [[make.collective(1, 64), make.collective(2, 64, (1,))]] * 2)
    assert with_world_named(inputs, inputs.traces) == ({}, "")


# --- the target -----------------------------------------------------------------------------------------------------


def _job(folder: Path, limit_s: float = 60.0) -> Job:
    return Job(
        "run", 0, 0, folder, _small("wl4", 2), catalogue.environment("perlmutter-a100-16"), {},
        ParallelPlan("test", tp=4, dp_replicate=2, num_microbatches=2, state_bytes=StateBytes(2.0, 2.0, 4.0, 0.0)), "",
        limit_s,
    )  # fmt: skip


def _launcher(*more: str) -> DryRunLauncher:
    return from_settings({"backend": ANALYTICAL, "astra_sim": {"command": [*_PROGRAM, *more]}})


def test_the_launcher_leaves_traces_and_says_who_ran(tmp_path: Path) -> None:
    launcher = _launcher()
    done = launcher.collect(launcher.submit(_job(tmp_path)))
    assert done.state is TrialState.SUCCEEDED
    assert done.fidelity is Fidelity.SIMULATED
    assert done.provenance["backend"] == ANALYTICAL
    assert done.provenance["version"].startswith("analytical congestion-")
    assert list((tmp_path / "trace").glob("rank*_trace.json"))
    assert json.loads((tmp_path / "execution.json").read_text(encoding="utf-8"))["notes"]


def test_a_long_trial_on_ns3_is_announced_before_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    launcher = from_settings({"backend": NS3, "astra_sim": {"command": list(_PROGRAM), "time_limit_s": 1e6}})
    Executor(launcher, Interrupt(), said.append)
    for threshold, expected in ((1e9, 0), (0.0, 1)):
        monkeypatch.setattr("launchers.dry_run.ANNOUNCED_S", threshold)
        job = _job(tmp_path / str(threshold), limit_s=1e6)
        done = launcher.collect(launcher.submit(job))
        assert done.state is TrialState.SUCCEEDED, done.evidence
        assert len(said) == expected
    assert said[0].startswith("trial 0: ns-3 takes about ")
    cost = json.loads((tmp_path / "0.0" / "execution.json").read_text(encoding="utf-8"))["network"]["cost"]
    assert cost["packets"] > 0


def test_a_trial_beyond_its_limit_is_a_timeout_that_was_not_started(tmp_path: Path) -> None:
    launcher = from_settings({"backend": NS3, "astra_sim": {"command": [sys.executable, "-c", "raise SystemExit(1)"]}})
    done = launcher.collect(launcher.submit(_job(tmp_path, limit_s=0.01)))
    assert done.failure is FailureClass.TIMEOUT
    assert "it was not started" in done.evidence


def test_a_hang_is_a_timeout_of_the_config(tmp_path: Path) -> None:
    launcher = _launcher("--never")
    done = launcher.collect(launcher.submit(_job(tmp_path, limit_s=0.5)))
    assert done.failure is FailureClass.TIMEOUT
    assert "so it was ended" in done.evidence


def test_a_missing_program_stops_before_any_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASTRA_SIM_ANALYTICAL", raising=False)
    with pytest.raises(TargetUnavailableError, match="nothing names one"):
        DryRunLauncher("astra-sim")
    with pytest.raises(TargetUnavailableError, match="is no program"):
        from_settings(
            {"backend": "astra-sim", "astra_sim": {"command": "/nowhere/AstraSim_Analytical_Congestion_Aware"}}
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"nope": 1}, {"congestion": "some"}, {"time_limit_s": 0}, {"time_limit_s": True}, {"command": []}, ["x"],
    ],
)  # fmt: skip
def test_settings_of_the_wrong_form_are_refused(settings: Any) -> None:
    with pytest.raises(BadInputError):
        read_settings(ANALYTICAL, settings)
