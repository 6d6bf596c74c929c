"""What a run on ns-3 will cost: packets as recorded runs had them, processor time within a factor of three."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from backends.astra.cost import REFERENCE_US, Cost, Speed, duration, estimate, messages
from backends.astra.dry_run import AstraSettings, dry_run, read_settings
from backends.astra.probe import speed_of
from backends.astra.process import Limits
from backends.astra.programs import NS3, Program
from backends.astra.simulate import CostError, InputPaths, simulate_files
from backends.exchange.phases import Phase
from backends.exchange.validate import examine
from benchmarks.ns3_cost import predicted_rows
from runs import catalogue
from runs.plan import ParallelPlan, StateBytes
from tests.backends.astra import traces as make
from tests.backends.astra.conftest import real_program
from tests.reference import shared_path

_SMALL = str(Path(__file__).parent / "small_simulator.py")
_BROKEN = Program(NS3, (sys.executable, "-c", "raise SystemExit(1)"), source="test")
_EIGHT = (tuple(range(8)),)


def _switch(folder: Path, ranks: int, gbps: int = 400) -> Path:
    path = folder / "switch.txt"
    links = "".join(f"{rank} {ranks} {gbps}Gbps 0.0005ms 0\n" for rank in range(ranks))
    path.write_text(f"{ranks + 1} 1 {ranks}\n{ranks}\n{links}", encoding="utf-8")
    return path


def _paths(folder: Path, nodes: list[list[make.EtNode]]) -> InputPaths:
    written = make.write(folder, nodes)
    return InputPaths(written.et_prefix, written.system, physical=_switch(folder, len(nodes)))


def _cost(paths: InputPaths, payload: int = 1000, speed: Speed | None = None) -> Cost:
    inputs = paths.load()
    return estimate(inputs, examine(inputs)[0], payload, speed)


# --- packets and hops, by definition --------------------------------------------------------------------------------


def test_a_message_is_its_packets_at_each_link_and_as_many_acknowledgements(tmp_path: Path) -> None:
    ends = [[make.message(1, 0, 1, 2500, True)], [make.message(1, 0, 1, 2500, False)]]
    cost = _cost(_paths(tmp_path, ends))
    assert cost.packets == 3  # of at most 1000 bytes
    assert cost.packet_hops == 3 * 2 * 2  # to the switch, on to the device; both ways
    assert cost.simulated_ns == pytest.approx(2500 * 8 / 400, abs=1)


def test_computation_costs_the_queue_monitor_only(tmp_path: Path) -> None:
    short, long = (
        _cost(_paths(_new(tmp_path, name), [[make.work(1, us)]] * 4)) for name, us in (("a", 1), ("b", 10**6))
    )
    assert (short.packets, long.packets) == (0, 0)
    assert long.simulated_ns == 1_000_000_000
    assert long.seconds > short.seconds + 1.0  # ten million looks at the queues


def _new(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


@pytest.mark.parametrize(
    ("phase", "count", "total"),
    [
        (Phase("all_reduce", 8e6, _EIGHT, "ring"), 2 * 7 * 8, 2 * 7 * 8e6),
        (Phase("all_reduce", 8e6, _EIGHT, "direct"), 2 * 7 * 8, 2 * 7 * 8e6),
        (Phase("all_reduce", 8e6, _EIGHT, "halving_doubling"), 2 * 3 * 8, 2 * 7 * 8e6),
        (Phase("all_gather", 8e6, _EIGHT, "ring"), 7 * 8, 7 * 8e6),
        (Phase("reduce_scatter", 8e6, _EIGHT, "halving_doubling"), 3 * 8, 7 * 8e6),
        (Phase("all_to_all", 8e6, _EIGHT, "direct"), 7 * 8, 7 * 8e6),
        (Phase("all_to_all", 8e6, _EIGHT, "ring"), 8 * 28, 28 * 8e6),  # n(n-1)/2 relays of every rank's n-th part
        (Phase("all_reduce", 8e6, _EIGHT, "double_binary_tree_astra"), 2 * 7, 2 * 7 * 8e6),
    ],
)
def test_messages_carry_what_the_algorithm_sends(phase: Phase, count: int, total: float) -> None:
    number, size = messages(phase)
    assert number == count
    assert number * size == pytest.approx(total)


def test_chunks_are_more_and_smaller_messages_of_the_same_bytes() -> None:
    phase = Phase("all_reduce", 8e6, _EIGHT, "ring")
    assert messages(phase, 4) == (4 * 112, 0.25e6)


@pytest.mark.shared
def test_packets_and_seconds_are_those_of_recorded_runs() -> None:
    """Flows and bytes are in the tables, so packets are known; processor time was another machine's, within three."""
    found = [row for row in predicted_rows(shared_path("data/astra"), per_table=12) if row.recorded_s > 0.3]
    assert len(found) > 30
    assert [row.label for row in found if not 1 / 3 <= row.ratio <= 3] == []
    wrong = [row for row in found if row.packets and not 0.99 <= row.cost.packets / row.packets <= 1.01]
    assert [row.label for row in wrong] == []


# --- the limit ------------------------------------------------------------------------------------------------------


def _stand_in(*more: str) -> Program:
    return Program(NS3, (sys.executable, _SMALL, *more), source="test")


@pytest.fixture
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))


def test_a_run_longer_than_the_limit_is_refused_before_it_starts(tmp_path: Path) -> None:
    """8 ranks, 1 GiB, a ring: 15 million packets, 60 million hops, five minutes at 5 µs each."""
    paths = _paths(tmp_path, [[make.collective(1, 2**30)]] * 8)
    said: list[Cost] = []
    with pytest.raises(CostError) as refused:
        simulate_files(paths, _BROKEN, limits=Limits(wall_s=60), announce=said.append)
    assert refused.value.exit_code == 4
    assert refused.value.timed_out
    assert said == []
    assert "15 million packets" in refused.value.message
    assert "5 minutes" in refused.value.message
    assert "the limit is 60 seconds" in refused.value.message
    assert "--time-limit" in refused.value.hint


@pytest.mark.usefixtures("_importable")
def test_within_the_limit_the_cost_is_said_first_and_recorded(tmp_path: Path) -> None:
    said: list[Cost] = []
    found = simulate_files(_paths(tmp_path, [[make.collective(1, 2**20)]] * 8), _stand_in(), announce=said.append)
    assert said == [found.cost]
    recorded = found.raw().as_dict()["network"]["cost"]
    assert recorded["packets"] == 8 * 14 * 132  # 131 072 bytes a message
    assert recorded["predicted_seconds"] == pytest.approx(said[0].seconds, abs=1e-3)
    assert recorded["seconds"] is not None


def test_a_program_that_cannot_be_measured_counts_as_a_stock_build() -> None:
    assert speed_of(_BROKEN) == Speed()


@pytest.mark.usefixtures("_importable")
def test_the_limit_of_a_trial_takes_the_place_of_a_limit_nobody_chose() -> None:
    chosen = read_settings(NS3, {"command": [sys.executable, _SMALL], "time_limit_s": 100})
    assert chosen.within(7200).limits.wall_s == 100
    assert chosen.within(50).limits.wall_s == 50
    assert read_settings(NS3, {"command": [sys.executable, _SMALL]}).within(7200).limits.wall_s == 7200


def test_a_plan_of_one_rank_needs_no_program_run() -> None:
    """`--never` would be a timeout."""
    workload = catalogue.workload("wl4")
    workload = replace(workload, model=replace(workload.model, num_layers=2))
    settings = AstraSettings(_stand_in("--never"), limits=Limits(wall_s=1))
    plan = ParallelPlan("test", num_microbatches=4, state_bytes=StateBytes(2.0, 2.0, 4.0, 0.0))
    found = dry_run(workload, catalogue.environment("perlmutter-a100-16"), plan, settings)
    assert found.backend == NS3
    assert found.comm_s == 0
    assert found.wall_s > 0
    assert "ASTRA-sim was not run" in found.notes[-1]


def test_a_slower_build_costs_more_in_proportion(tmp_path: Path) -> None:
    paths = _paths(tmp_path, [[make.collective(1, 2**24)]] * 8)
    stock, slow = _cost(paths), _cost(paths, speed=Speed(3 * REFERENCE_US, "test"))
    assert slow.seconds == pytest.approx(3 * stock.seconds)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.64, "1.6 seconds"), (45, "45 seconds"), (300, "5 minutes"), (7200, "2 hours"), (300_000, "3.5 days")],
)
def test_durations_are_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.astra_sim
@pytest.mark.shared
def test_the_real_program_takes_what_was_predicted_within_three(inputs: Path) -> None:
    program = real_program(NS3)
    speed = speed_of(program)
    assert speed.source != Speed().source
    for system, size in (("ring", 2**20), ("direct", 2**20)):
        paths = InputPaths(
            inputs / "et/AllReduce_1048576B_8npus/AllReduce",
            inputs / f"system/{system}_1d_s1_a1_localBWAware_LIFO_ed10.json",
            physical=inputs / "ns3/8_nodes_1_switch_400Gbps_0.0005ms.txt",
        )
        found = simulate_files(paths, program)
        spent = found.run.ended.cpu_seconds
        assert found.run.network is not None
        assert found.cost is not None
        assert spent is not None
        assert found.cost.packets == sum(-(-flow.nbytes // 1000) for flow in found.run.network.flows), size
        assert 1 / 3 < spent / _cost(paths, speed=speed).seconds < 3
