"""Collectives over several dimensions: the steps, sizes and order of ASTRA-sim, to the nanosecond."""

from __future__ import annotations

import csv
import importlib.util
import json
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from backends.exchange.chakra import ExecutionTrace
from backends.exchange.inputs import AstraInputs
from backends.exchange.operations import CollectiveCall, line
from backends.exchange.phases import algorithms_of, phases
from backends.exchange.system import checked_system
from backends.network.collective import Kind
from backends.network.formats import AstraNetwork, read_astra_network
from tests.reference import shared_path

KINDS: dict[str, Kind] = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AllToAll": "all_to_all",
}
NAMES = {kind: name for name, kind in KINDS.items()}
ALGORITHMS = {"ring": "ring", "direct": "direct", "halving_doubling": "halvingDoubling"}


def made(network: AstraNetwork, system: dict[str, object]) -> AstraInputs:
    dims = tuple(dimension.count for dimension in network.dimensions)
    traces = (ExecutionTrace(),) * network.devices
    return AstraInputs(Path("w"), traces, checked_system(system, "s.json"), dims, network.topology(), network)


def world(inputs: AstraInputs, kind: Kind, size: int) -> CollectiveCall:
    return CollectiveCall(kind, size, "world", tuple(range(inputs.ranks)), tuple(range(len(inputs.dims))))


def closed_forms() -> ModuleType:
    """The closed forms of one dimension, which the reference checks against the binary row by row."""
    spec = importlib.util.spec_from_file_location("forms", shared_path("data/astra/astra_closed_forms.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(table: str) -> list[dict[str, str]]:
    with shared_path(f"data/astra/{table}").open(newline="", encoding="utf-8") as file:
        found = [row for row in csv.DictReader(file) if row["status"] == "ok" and "xSwitch" in row["topology"]]
    kept = ("ring", "direct", "halvingDoubling")
    return [row for row in found if row["algorithm"] in kept and row["active_chunks"] == "1"]


@pytest.mark.shared
@pytest.mark.parametrize("table", ["astra_reference.csv", "astra_knobs_reference.csv"])
def test_every_row_of_two_dimensions(table: str) -> None:
    """Steps one after another; of several chunks, all pass the slowest step and one more each of the others."""
    forms, compared = closed_forms(), 0
    with tarfile.open(shared_path("data/astra/inputs.tar.gz")) as tar:
        texts = {
            member.name.removeprefix("./"): tar.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in tar
            if member.name.removeprefix("./").startswith(("network/", "system/"))
        }
    for row in rows(table):
        network = read_astra_network(texts[f"network/{row['topology']}.yml"])
        inputs = made(network, json.loads(texts[row["system"]]))
        splits = int(row["dataset_splits"])
        if row.get("endpoint_delay", "10") != "10" or row.get("num_queues_per_dim", "1") != "1":
            continue
        if int(row["size_bytes"]) % (splits * inputs.ranks):
            continue  # such sizes are rounded
        call = world(inputs, KINDS[row["collective"]], int(row["size_bytes"]) // splits)
        times = [_nanoseconds(forms, network, step, place) for step, place in _placed(inputs, call)]
        assert sum(times) + (splits - 1) * max(times) == int(row["wall_cycles_max"]), row
        compared += 1
    assert compared > 60


def _placed(inputs: AstraInputs, call: CollectiveCall) -> list[tuple[object, int]]:
    """Each step with the dimension it runs along: the distance of the first two ranks of a group says which."""
    strides = {1: 0, inputs.dims[0]: 1}
    return [(step, strides[step.groups[0][1] - step.groups[0][0]]) for step in phases(inputs, call)]


def _nanoseconds(forms: ModuleType, network: AstraNetwork, step: object, place: int) -> int:
    kind, nbytes, groups = step.kind, step.nbytes, step.groups  # type: ignore[attr-defined]
    size = int(nbytes / len(groups[0]) if kind == "all_gather" else nbytes)
    dimension = network.dimensions[place]
    found = forms.t(
        "congestion_unaware", dimension.kind, NAMES[kind], ALGORITHMS[step.algorithm],  # type: ignore[attr-defined]
        len(groups[0]), size, dimension.bandwidth, dimension.latency,
    )  # fmt: skip
    assert found is not None
    return int(found)


NETWORK = "topology: [ FullyConnected, Switch ]\nnpus_count: [ 4, 2 ]\nbandwidth: [ 300, 25 ]\nlatency: [ 500, 500 ]\n"


def system(*names: str) -> dict[str, object]:
    lists = {f"{kind}-implementation": list(names) for kind in ("all-reduce", "all-gather", "all-to-all")}
    return {"preferred-dataset-splits": 2, "collective-optimization": "localBWAware", **lists}


def test_lines_of_a_grid() -> None:
    """First dimension fastest: rank 5 of 4 x 2 is at (1, 1)."""
    assert line((4, 2), 5, (0,)) == (4, 5, 6, 7)
    assert line((4, 2), 5, (1,)) == (1, 5)
    assert line((4, 2), 5, (0, 1)) == tuple(range(8))
    assert line((2, 3, 2), 7, (0, 2)) == (0, 1, 6, 7)


def test_a_reduction_scatters_down_and_gathers_up() -> None:
    inputs = made(read_astra_network(NETWORK), system("direct", "ring"))
    found = [(s.kind, s.nbytes, len(s.groups), s.algorithm) for s in phases(inputs, world(inputs, "all_reduce", 800))]
    assert found == [
        ("reduce_scatter", 800, 2, "direct"),
        ("all_reduce", 200, 4, "ring"),
        ("all_gather", 800, 2, "direct"),
    ]


def test_one_before_a_name_flattens_the_dimensions() -> None:
    inputs = made(read_astra_network(NETWORK), system("oneRing", "oneRing"))
    (step,) = phases(inputs, world(inputs, "all_gather", 100))
    assert (step.groups, step.nbytes, step.algorithm) == ((tuple(range(8)),), 800, "ring")


def test_part_of_several_dimensions_is_a_ring() -> None:
    inputs = made(read_astra_network(NETWORK), system("direct", "direct"))
    call = CollectiveCall("all_reduce", 800, "1", (0, 5))
    ((named, ranks),) = algorithms_of(inputs, call)
    assert (named.algorithm, ranks) == ("ring", 2)
    (step,) = phases(inputs, call)
    assert (step.groups, step.algorithm) == (((0, 5),), "ring")


def test_trees_reduce_whatever_was_asked() -> None:
    """As ASTRA-sim does: the buffer of a rank, over the tree."""
    one = NETWORK.replace(", Switch", "").replace(", 2 ]", " ]").replace(", 25", "").replace("500, 500", "500")
    inputs = made(read_astra_network(one), system("doubleBinaryTree"))
    (step,) = phases(inputs, world(inputs, "all_to_all", 1000))
    assert (step.kind, step.nbytes, step.algorithm) == ("all_reduce", 1000, "double_binary_tree_astra")
