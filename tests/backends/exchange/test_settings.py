"""The JSON files beside a trace: round trips, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.exchange.settings import (
    RemoteMemory,
    read_groups,
    read_logical_topology,
    read_remote_memory,
    write_groups,
    write_json,
    write_logical_topology,
    write_remote_memory,
)
from backends.exchange.system import Implementation, parse_implementation, read_system, write_system
from runs.errors import BadInputError

_RANKS = st.lists(st.integers(0, 2000), min_size=1, max_size=6, unique=True).map(tuple)


@given(st.dictionaries(st.integers(1, 9999).map(str), _RANKS, max_size=4))
def test_groups_are_read_as_written(groups: dict[str, tuple[int, ...]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.json"
        write_groups(path, groups)
        assert read_groups(path) == groups


@pytest.mark.parametrize(
    "groups",
    [{"0": [0, 1]}, {"tp": [0, 1]}, {"1": []}, {"1": [0, 0]}, {"1": [True, 2]}, {"1": [-1, 2]}, {"1": 3}, {"²": [1]}],
)
def test_groups_that_the_binaries_cannot_read(groups: dict[str, object], tmp_path: Path) -> None:
    write_json(tmp_path / "g.json", groups)
    with pytest.raises(BadInputError, match=r"g\.json: group"):
        read_groups(tmp_path / "g.json")


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"1": ', "[" * 100_000, '{"1": NaN}'])
def test_what_is_no_json_object(text: str, tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text(text)
    with pytest.raises(BadInputError, match=r"g\.json"):
        read_groups(tmp_path / "g.json")


def test_remote_memory_round_trip(tmp_path: Path) -> None:
    for memory in (RemoteMemory(), RemoteMemory("PER_NODE_MEMORY_EXPANSION", 100, 10, 2, 4)):
        write_remote_memory(tmp_path / "m.json", memory)
        assert read_remote_memory(tmp_path / "m.json") == memory


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"memory-type": "SHARED"},
        {"memory-type": "MEMORY_POOL", "remote-mem-latency": 1},
        {"memory-type": "MEMORY_POOL", "remote-mem-latency": 1, "remote-mem-bw": 0},
        {"memory-type": "PER_NODE_MEMORY_EXPANSION", "remote-mem-latency": 1, "remote-mem-bw": 1},
    ],
)
def test_remote_memory_that_lacks_something(content: dict[str, object], tmp_path: Path) -> None:
    write_json(tmp_path / "m.json", content)
    with pytest.raises(BadInputError, match=r"m\.json"):
        read_remote_memory(tmp_path / "m.json")


def test_logical_topology_holds_text(tmp_path: Path) -> None:
    write_logical_topology(tmp_path / "l.json", (8, 4))
    assert '"8"' in (tmp_path / "l.json").read_text()
    assert read_logical_topology(tmp_path / "l.json") == (8, 4)


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("ring", Implementation("ring")),
        ("oneRing", Implementation("ring", flat=True)),
        ("direct4", Implementation("direct", window=4)),
        ("oneDirect2", Implementation("direct", flat=True, window=2)),
        ("oneHalvingDoubling", Implementation("halving_doubling", flat=True)),
        ("doubleBinaryTree", Implementation("double_binary_tree_astra")),
        ("ring2", None),
        ("directx", None),
        ("tree", None),
        ("one", None),
        ("", None),
    ],
)
def test_names_of_algorithms(name: str, meaning: Implementation | None) -> None:
    assert parse_implementation(name) == meaning


def test_system_keeps_what_it_does_not_know(tmp_path: Path) -> None:
    content = {"preferred-dataset-splits": 4, "boost-mode": 0, "all-reduce-implementation": ["ring", "direct"]}
    write_json(tmp_path / "s.json", content)
    system = read_system(tmp_path / "s.json")
    assert (system.splits, system.active_chunks, system.endpoint_delay, system.roofline) == (4, 1, 10, False)
    write_system(tmp_path / "t.json", system)
    assert read_system(tmp_path / "t.json").content == content


@pytest.mark.parametrize(
    "content",
    [
        {"preferred-dataset-splits": 0},
        {"preferred-dataset-splits": 1.5},
        {"preferred-dataset-splits": True},
        {"endpoint-delay": -1},
        {"local-mem-bw": 0},
        {"peak-perf": "900"},
        {"roofline-enabled": 2},
        {"scheduling-policy": "RANDOM"},
        {"all-to-all-implementation": []},
        {"all-to-all-implementation": [1]},
        {"all-to-all-implementation": ["rings"]},
    ],
)
def test_systems_that_no_binary_takes(content: dict[str, object], tmp_path: Path) -> None:
    write_json(tmp_path / "s.json", content)
    with pytest.raises(BadInputError, match=rf"s\.json: {next(iter(content))}"):
        read_system(tmp_path / "s.json")
