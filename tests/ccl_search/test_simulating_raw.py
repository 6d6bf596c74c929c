"""`simulate --et`: traces on the built-in simulator, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backends.exchange.chakra import EtNode, ExecutionTrace, NodeKind, write_trace
from backends.exchange.settings import write_json
from backends.exchange.values import int32, int64, uint64
from tests.ccl_search.cli import Cli

SYSTEM = {
    "preferred-dataset-splits": 1,
    "endpoint-delay": 10,
    "local-mem-bw": 1000,
    "peak-perf": 100,
    "roofline-enabled": 1,
    **{f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")},
}
NETWORK = "topology: [ Switch ]\nnpus_count: [ 2 ]\nbandwidth: [ 100.0 ]\nlatency: [ 500.0 ]\n"
PHYSICAL = "3 1 2\n2\n0 2 400Gbps 0.0005ms 0\n1 2 400Gbps 0.0005ms 0\n"


def work(number: int, flops: int, *deps: int) -> EtNode:
    return EtNode(number, "work", NodeKind.COMP, deps, (), {"num_ops": int64(flops), "tensor_size": uint64(1000)})


def message(number: int, sends: bool, size: int, *deps: int, tag: int = 7) -> EtNode:
    """From rank 0 to rank 1."""
    kind = NodeKind.COMM_SEND if sends else NodeKind.COMM_RECV
    ends = {"comm_src": int32(0), "comm_dst": int32(1), "comm_tag": int32(tag), "comm_size": int64(size)}
    return EtNode(number, "message", kind, deps, (), ends)


def write(folder: Path, *ranks: list[EtNode]) -> list[str]:
    for rank, nodes in enumerate(ranks):
        write_trace(folder / f"w.{rank}.et", ExecutionTrace(nodes=tuple(nodes)))
    write_json(folder / "system.json", SYSTEM)
    (folder / "network.yml").write_text(NETWORK)
    (folder / "physical.txt").write_text(PHYSICAL)
    return ["simulate", "--et", str(folder / "w"), "--system", str(folder / "system.json")]


@pytest.fixture
def pipeline(tmp_path: Path) -> list[str]:
    """Rank 0 works 1 ms, sends a MiB, works 1 ms; rank 1 waits for it and works 2 ms."""
    first = [work(1, 10**11), message(2, True, 2**20, 1), work(3, 10**11, 1)]
    return write(tmp_path, first, [message(1, False, 2**20), work(2, 2 * 10**11, 1)])


def test_figures_of_a_pipeline_by_hand(cli: Cli, pipeline: list[str], tmp_path: Path) -> None:
    found = cli(*pipeline, "--network", str(tmp_path / "network.yml"), "--json").document
    hop = 500 + 2**20 / (100 * 2**30) * 1e9  # the binaries take GB/s for GiB/s; a switch stores and forwards
    assert found["wall_ns"] == pytest.approx(3e6 + 2 * hop, abs=3)
    assert found["compute_ns"] == 2_000_000
    assert found["exposed_ns"] == found["comm_ns"] == pytest.approx(2 * hop, abs=3)
    assert found["bubble_ns"] == 1_000_000
    assert (found["slowest_rank"], found["backend"]) == (1, "flow")
    assert set(found["links"].values()) == {2**20}


def test_the_trace_shows_the_same_times(cli: Cli, pipeline: list[str], tmp_path: Path) -> None:
    arguments = [*pipeline, "--network", str(tmp_path / "network.yml"), "--trace", str(tmp_path / "t"), "--json"]
    found = cli(*arguments).document
    events = json.loads(Path(found["trace"][1]).read_text())["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert [e["args"].get("Collective name") for e in kernels] == ["recv", None]
    assert sum(e["dur"] for e in kernels) * 1e3 == pytest.approx(found["compute_ns"] + found["comm_ns"])
    assert sum(e["dur"] for e in events if e["name"] == "bubble") * 1e3 == found["bubble_ns"]
    assert cli(*arguments).code == 2  # the folder holds traces now


def test_congestion_control_is_for_physical_topologies(cli: Cli, pipeline: list[str], tmp_path: Path) -> None:
    physical = ("--physical-topology", str(tmp_path / "physical.txt"))
    plain = cli(*pipeline, *physical, "--cc", "none", "--json").document
    hpcc = cli(*pipeline, *physical, "--cc", "hpcc", "--json").document
    assert plain["wall_ns"] < hpcc["wall_ns"]  # the telemetry takes room in every packet
    assert hpcc["congestion_control"] == "hpcc"
    refused = cli(*pipeline, "--network", str(tmp_path / "network.yml"), "--cc", "none")
    assert (refused.code, refused.out) == (2, "")
    assert "--physical-topology" in refused.err
    assert "cubic" in cli(*pipeline, *physical, "--cc", "cubic").err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--config", "tp=2"], "--config does not go with --et"),
        (["--backend", "sst"], "'sst'"),
        (["--comm-group", "none.json"], "none.json cannot be read"),
        (["--network", "other.yml"], "other.yml cannot be read"),
        (["--physical-topology", "p.txt"], "one of them"),
    ],
)
def test_usage(cli: Cli, pipeline: list[str], tmp_path: Path, options: list[str], words: str) -> None:
    network = [] if "--network" in options else ["--network", str(tmp_path / "network.yml")]
    found = cli(*pipeline, *network, *options)
    assert found.code == 2
    assert words in found.err.splitlines()[0]


def test_there_must_be_something_to_simulate(cli: Cli) -> None:
    assert "--config" in cli("simulate").err
    assert "--et is missing" in cli("simulate", "--system", "s.json").err


def test_a_deadlock_ends_with_a_reason(cli: Cli, tmp_path: Path) -> None:
    """Each rank waits for the other before it sends."""
    back = {"comm_src": int32(1), "comm_dst": int32(0), "comm_tag": int32(7), "comm_size": int64(8)}
    receive = EtNode(1, "back", NodeKind.COMM_RECV, (), (), back)
    first = [receive, message(2, True, 8, 1)]
    second = [message(1, False, 8), EtNode(2, "back", NodeKind.COMM_SEND, (1,), (), back)]
    found = cli(*write(tmp_path, first, second), "--network", str(tmp_path / "network.yml"))
    assert found.code == 2
    assert "for ever" in found.err


@pytest.mark.parametrize(
    ("physical", "words"),
    [
        ("3 1 2\n2\n0 2 0Gbps 0.0005ms 0\n1 2 400Gbps 0.0005ms 0\n", "bandwidth 0"),
        ("3 1 1\n2\n0 2 400Gbps 0.0005ms 0\n", "no route"),
        ("3 1 2\n0\n0 1 400Gbps 0.0005ms 0\n0 2 400Gbps 0.0005ms 0\n", "devices are not"),
        ("3 1 2\n2\n0 2 400Gbps 0.0005ms 0.001\n1 2 400Gbps 0.0005ms 0\n", "loses packets"),
    ],
)
def test_networks_that_cannot_be(cli: Cli, pipeline: list[str], tmp_path: Path, physical: str, words: str) -> None:
    (tmp_path / "odd.txt").write_text(physical)
    found = cli(*pipeline, "--physical-topology", str(tmp_path / "odd.txt"))
    assert found.code == 2
    assert words in found.err.splitlines()[0]


EXPORT = ("--environment", "h100-16", "--framework", "megatron-lm", "--config", "tp=8,micro_batch_size=1")


def test_an_exported_config_can_be_simulated_again(cli: Cli, tmp_path: Path) -> None:
    """Eight devices on one switch: only launch times and the switch (which stores and forwards there) differ."""
    folder = tmp_path / "e"
    done = cli("simulate", "export", str(folder), *EXPORT, "--json").document
    assert (done["ranks"], len(done["commands"])) == (8, 3)
    assert all((folder / name).is_file() for name in done["files"])
    files = ["--et", str(folder / "et" / "workload"), "--system", str(folder / "system.json")]
    found = cli("simulate", *files, "--network", str(folder / "network.yml"), "--json").document
    assert found["wall_ns"] == pytest.approx(done["simulated_ns"], rel=0.05)
    plain = cli("simulate", *EXPORT, "--json").document
    assert plain["wall_ns"] == pytest.approx(done["simulated_ns"], rel=1e-3)


def test_export_says_what_is_lost_and_refuses_what_it_cannot_write(cli: Cli, tmp_path: Path) -> None:
    found = cli("simulate", "export", str(tmp_path / "e"), *EXPORT)
    assert (found.code, found.out) == (0, "")
    assert "not said: traces: durations are whole" in found.err
    assert "is there already" in cli("simulate", "export", str(tmp_path / "e"), *EXPORT).err
    assert "choice_tp" in cli("simulate", "export", str(tmp_path / "f"), "--config", "tp=3").err
    assert (
        "predicted_oom"
        in cli("simulate", "export", str(tmp_path / "f"), "--framework", "megatron-lm", "--config", "tp=2").err
    )
    assert not (tmp_path / "f").exists()
