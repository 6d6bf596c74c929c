"""Exported steps: files that pass every check, on every network, and say what the simulated step says."""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from backends.compute import System
from backends.dry_run import dry_run, network_for
from backends.exchange.chakra import CommKind, EtNode, NodeKind
from backends.exchange.drafting import comm_size, draft, workload
from backends.exchange.export import Export, export
from backends.exchange.flattening import analytical_network, one_dimension, physical_topology
from backends.exchange.ns3_config import rates_gbps, read_ns3_config
from backends.exchange.raw import run
from backends.exchange.validate import AstraInputs, check, load_inputs
from backends.network import bundled_topology, from_environment
from backends.network.builders import clustered, switch, torus
from backends.network.formats import GIBI, read_ns3_topology
from backends.ops import Communication
from backends.timeline import SimulationResult
from runs import catalogue
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.workload import Workload
from tests.backends.doubles import FSDP_STATE, SERVING_STATE, perlmutter, training_plan

LAYERS = 4


def small(name: str) -> Workload:
    """A bundled workload with few layers and sequences."""
    found = catalogue.workload(name)
    return replace(found, model=replace(found.model, num_layers=LAYERS), batch_size=min(8, found.batch_size))


def training(name: str, **fields: object) -> tuple[Workload, ParallelPlan]:
    found = small(name)
    return found, training_plan(found, **fields)


PLANS = {
    "pipeline": training("wl4", tp=4, pp=2, dp_replicate=2),
    "one node": training("wl4", tp=4),
    "interleaved": training("wl6", pp=2, tp=2, dp_replicate=2, virtual_stages=2, pipeline_schedule="interleaved"),
    "sharded": training("wl4", tp=4, dp_shard=4, zero_stage=3, state_bytes=FSDP_STATE),
    "experts": training("wl5", tp=2, dp_shard=8, ep=8, sequence_parallel=True, zero_stage=3, state_bytes=FSDP_STATE),
    "serving": (small("moe-prefill-v4-flash"), ParallelPlan("test", tp=4, ep=4, expert_placement="own_axis",
                                                            state_bytes=SERVING_STATE)),
    "offloaded": training("wl4", tp=4, dp_replicate=2, offload=True),
}  # fmt: skip


@cache
def simulated(name: str) -> SimulationResult:
    found, plan = PLANS[name]
    return dry_run(found, perlmutter(), plan, detail="kernel")


def written(name: str, folder: Path, kernels: bool = False) -> Export:
    found, plan = PLANS[name]
    system = System.of(perlmutter(), plan, found.precision)
    network = network_for(perlmutter(), plan=plan)
    return export(simulated(name), system, network.topology, folder, kernels=kernels)


def read_back(folder: Path, network: str) -> AstraInputs:
    """The inputs of one of the command lines in the folder."""
    one_d = "_1d" if (folder / "network_1d.yml").exists() else ""
    groups = folder / "comm_group.json"
    common = {"comm_group": groups if groups.exists() else None, "remote_memory": folder / "remote_memory.json"}
    prefix = folder / "et" / "workload"
    if network == "congestion_unaware":
        return load_inputs(prefix, folder / "system.json", network=folder / "network.yml", **common)
    if network == "congestion_aware":
        system = folder / f"system{one_d}.json"
        return load_inputs(prefix, system, network=folder / f"network{one_d}.yml", **common)
    return load_inputs(
        prefix,
        folder / f"system_roofline{one_d}.json",
        physical=folder / "physical_topology.txt",
        logical=folder / "logical_topology.json",
        ns3_config=folder / "config.txt",
        **common,
    )


@pytest.fixture(scope="module", params=PLANS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Export:
    return written(request.param, tmp_path_factory.mktemp("export") / request.param)


@pytest.mark.parametrize("network", ["congestion_unaware", "congestion_aware", "ns3"])
def test_what_is_written_passes_every_check_and_runs(exported: Export, network: str) -> None:
    done, name = exported, exported.folder.name
    inputs = read_back(exported.folder, network)
    findings = check(inputs)
    assert [str(one) for one in findings if one.severity != "note" and "dimensions" not in one.what] == []
    assert inputs.ranks == done.ranks == PLANS[name][1].world_size
    result = run(inputs)
    assert all(0 < figures.compute < figures.wall for figures in result.figures)
    assert all(figures.comm > 0 for figures in result.figures)
    assert all(len(spans) == len(trace.nodes) for spans, trace in zip(result.spans, inputs.traces, strict=True))


@pytest.mark.parametrize("name", PLANS)
def test_computation_and_traffic_are_those_of_the_step(name: str) -> None:
    result = simulated(name)
    drafts = draft(result)
    traces = workload(drafts).traces
    for timeline, one in zip(result.timelines, drafts, strict=True):
        trace = traces[one.ranks[0]]
        micros = sum(node.duration_micros for node in trace.nodes if node.kind is NodeKind.COMP)
        slots = sum(node.ns for node in one.nodes if node.item is None)
        assert micros * 1000 == pytest.approx(slots, abs=2000)
        assert micros * 1e-6 >= timeline.figures.compute_s * len(timeline.spans) * 0.999
        items = [p.item for r in timeline.runs for part in r.runs for p in part.pieces for _ in range(part.times)]
        asked = sum(item.nbytes for item in items if isinstance(item, Communication) and item.kind == "all_reduce")
        assert asked == pytest.approx(moved(trace.nodes, CommKind.ALL_REDUCE), abs=1000)


def moved(nodes: tuple[EtNode, ...], kind: CommKind) -> int:
    return sum(node.get("comm_size") for node in nodes if node.get("comm_type") == kind)


def test_sizes_follow_the_conventions_of_astra_sim() -> None:
    """The share of a rank for an all-gather, the whole buffer of a rank for the others."""
    assert comm_size(Communication("g", "all_gather", "dp", 4096.0), 8) == 512
    assert comm_size(Communication("r", "reduce_scatter", "dp", 4096.0), 8) == 4096
    assert comm_size(Communication("a", "all_to_all", "ep", 4096.0), 8) == 4096
    assert comm_size(Communication("n", "all_reduce", "world", 4.0), 16) == 16


@pytest.mark.parametrize("name", PLANS)
def test_members_of_a_group_run_the_same_in_the_same_order(name: str) -> None:
    found = workload(draft(simulated(name)))
    orders: dict[str, dict[int, list[tuple[int, int]]]] = defaultdict(dict)
    for rank, trace in enumerate(found.traces):
        assert [node.id for node in trace.nodes] == sorted(node.id for node in trace.nodes)
        for node in trace.nodes:
            if node.kind is NodeKind.COMM_COLL:
                calls = orders[node.get("pg_name", "all")].setdefault(rank, [])
                calls.append((node.get("comm_type"), node.get("comm_size")))
    for group, calls in orders.items():
        members = found.groups.get(group, tuple(range(len(found.traces))))
        assert set(calls) == set(members)
        assert len({tuple(order) for order in calls.values()}) == 1
    assert all(len(members) > 1 for members in found.groups.values())


@pytest.mark.parametrize("name", ["pipeline", "sharded", "experts"])
def test_every_communication_waits_for_the_one_before(name: str) -> None:
    """So that streams which overlap cannot be taken in another order on another rank."""
    for one in draft(simulated(name)):
        chain = [at for at, node in enumerate(one.nodes) if node.behind is not None]
        senders = [at for at, node in enumerate(one.nodes) if node.item is not None and node.item.kind != "send_recv"]
        assert set(senders[1:]) <= set(chain)
        assert all((one.nodes[at].behind or 0) < at for at in chain)
        assert all(dep < at for at, node in enumerate(one.nodes) for dep in node.deps)


def test_kernels_can_stay_apart(tmp_path: Path) -> None:
    whole, apart = written("one node", tmp_path / "a"), written("one node", tmp_path / "b", kernels=True)
    assert apart.nodes > 2 * whole.nodes
    both = [run(read_back(tmp_path / name, "congestion_aware")).figures[0].compute for name in ("a", "b")]
    assert both[0] == pytest.approx(both[1], rel=0.01)


def test_losses_are_said(tmp_path: Path) -> None:
    done = written("sharded", tmp_path / "e")
    text = (tmp_path / "e" / "README.md").read_text()
    assert all(loss in text for loss in done.losses)
    for words in ("overlap for up to", "several dimensions", "no contention", "slowest link", "endpoint-delay"):
        assert words in text
    assert "several dimensions" not in " ".join(written("one node", tmp_path / "f").losses)


def test_the_script_gives_the_command_lines(tmp_path: Path) -> None:
    done = written("pipeline", tmp_path / "e")
    script = tmp_path / "e" / "run.sh"
    environment = {**os.environ, "ASTRA_SIM_AWARE": "echo", "ASTRA_SIM_NS3": "echo"}
    for name in ("congestion_aware", "ns3"):
        found = subprocess.run([str(script), name], env=environment, capture_output=True, text=True, check=True)
        assert found.stdout.strip() == done.commands[name].replace("'", "")
        named = [part.partition("=")[2] for part in found.stdout.split()]
        assert all((tmp_path / "e" / path).exists() for path in named if "." in path)
    assert subprocess.run([str(script), "other"], capture_output=True, check=False).returncode == 2


def test_a_folder_in_use_and_a_single_rank_are_refused(tmp_path: Path) -> None:
    written("one node", tmp_path / "e")
    with pytest.raises(BadInputError, match="is there already"):
        written("one node", tmp_path / "e")
    single = dry_run(small("wl4"), perlmutter(), training("wl4")[1], detail="kernel")
    with pytest.raises(BadInputError, match="one rank"):
        export(single, System.of(perlmutter(), training("wl4")[1]), switch(2, 1e9, 1e-6), tmp_path / "f")


def test_rates_mean_what_the_topology_has() -> None:
    """A file's GB/s are GiB/s to the binaries."""
    (found,) = analytical_network(switch(8, 100e9, 1e-6), 8).network.dimensions
    assert (found.kind, found.count) == ("Switch", 8)
    assert found.bandwidth * GIBI == pytest.approx(100e9)
    assert found.latency == pytest.approx(1000.0)


def test_dimensions_of_a_cluster() -> None:
    """Four devices share two NICs of 25 GB/s: each gets half of one while all send."""
    cluster = clustered(2, 4, (300e9, 1e-6), (25e9, 4e-6), nics=2)
    inner, outer = analytical_network(cluster, 8).network.dimensions
    assert (inner.count, outer.count) == (4, 2)
    assert inner.bandwidth * GIBI == pytest.approx(300e9)
    assert outer.bandwidth * GIBI <= 12.5e9 * 1.001
    flat = one_dimension(cluster, 8)
    assert flat.network.devices == 8
    assert flat.losses


def test_a_torus_is_a_ring_a_dimension_and_nothing_for_ns3() -> None:
    network = analytical_network(torus((4, 2), 50e9, 1e-6), 8).network
    assert [(d.kind, d.count) for d in network.dimensions] == [("Ring", 4), ("Ring", 2)]
    with pytest.raises(BadInputError, match="forward"):
        physical_topology(torus((4, 2), 50e9, 1e-6))


@pytest.mark.parametrize("topology", [*(bundled_topology(f"moe-{n}") for n in (1, 4, 6)),
                                      from_environment(perlmutter())], ids=lambda one: one.name)  # fmt: skip
def test_physical_topologies_are_read_back_with_their_rates(topology: object, tmp_path: Path) -> None:
    from backends.exchange.ns3_config import stock_config, write_ns3_config
    from backends.network import CongestionControl, Topology

    assert isinstance(topology, Topology)
    physical = physical_topology(topology)
    again = read_ns3_topology(physical.text)
    assert rates_gbps(again) == rates_gbps(physical.topology)
    assert again.devices == topology.devices
    write_ns3_config(tmp_path / "c", stock_config("t", rates_gbps(again), CongestionControl.DCQCN, 1000))
    config = read_ns3_config(tmp_path / "c")
    assert config.congestion_control is CongestionControl.DCQCN
    for name in ("KMIN_MAP", "KMAX_MAP", "PMAX_MAP"):
        assert {rate / 1e9 for rate in config.thresholds(name)} == set(rates_gbps(again))


def test_launch_gaps_behind_communications_are_said_to_be_left_out(tmp_path: Path) -> None:
    """On one stream work, communications and the gaps that are said to be missing add up to the step."""
    found, plan = training("wl4", tp=4)
    found = replace(found, seq_len=64)  # so short that the host launches slower than the device works
    result = dry_run(found, perlmutter(), plan, detail="kernel")
    (timeline,) = result.timelines
    begun, ended = timeline.spans[0]
    moved = sum(p.duration for r in timeline.runs for _, p in r.pieces() if isinstance(p.item, Communication))
    worked = sum(node.ns for node in draft(result)[0].nodes)
    missing = (ended - begun - moved - worked) / 1e6
    assert missing > 0.1
    system = System.of(perlmutter(), plan, found.precision)
    done = export(result, system, network_for(perlmutter(), plan=plan).topology, tmp_path / "out")
    (said,) = [loss for loss in done.losses if "gaps behind communications" in loss]
    assert float(said.split("up to ")[1].split(" ms")[0]) == pytest.approx(missing, rel=0.02)
