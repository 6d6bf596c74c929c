"""Checks of a whole run: damaged, impossible and absurd inputs never crash, hang, or give an answer."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.exchange.chakra import EtNode, ExecutionTrace, NodeKind, encode_trace, write_trace
from backends.exchange.inputs import AstraInputs
from backends.exchange.raw import run
from backends.exchange.settings import write_json
from backends.exchange.validate import check, load_inputs, require
from backends.exchange.values import Value, boolean, int32, int64, string, uint64
from runs.errors import BadInputError, CclSearchError

SYSTEM = {
    "preferred-dataset-splits": 1,
    "endpoint-delay": 10,
    "local-mem-bw": 1000,
    "peak-perf": 100,
    "roofline-enabled": 1,
    **{f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")},
}
NETWORK = "topology: [ Switch ]\nnpus_count: [ 2 ]\nbandwidth: [ 100.0 ]\nlatency: [ 500.0 ]\n"


def work(number: int, *deps: int, **attributes: Value) -> EtNode:
    found = {"num_ops": int64(10**9), "tensor_size": uint64(1000), **attributes}
    return EtNode(number, "work", NodeKind.COMP, deps, (), found)


def collective(number: int, kind: int, size: int, *deps: int, **attributes: Value) -> EtNode:
    found = {"is_cpu_op": boolean(False), "comm_type": int64(kind), "comm_size": int64(size), **attributes}
    return EtNode(number, "collective", NodeKind.COMM_COLL, deps, (), found)


def message(number: int, sends: bool, *deps: int, tag: int = 7) -> EtNode:
    kind = NodeKind.COMM_SEND if sends else NodeKind.COMM_RECV
    ends = {"comm_src": int32(0), "comm_dst": int32(1), "comm_tag": int32(tag), "comm_size": int64(4096)}
    return EtNode(number, "message", kind, deps, (), ends)


def inputs(
    folder: Path, *ranks: list[EtNode] | bytes, network: str = NETWORK, system: dict[str, object] | None = None,
    groups: dict[str, list[int]] | None = None,
) -> AstraInputs:  # fmt: skip
    for rank, nodes in enumerate(ranks):
        path = folder / f"w.{rank}.et"
        if isinstance(nodes, bytes):
            path.write_bytes(nodes)
        else:
            write_trace(path, ExecutionTrace(nodes=tuple(nodes)))
    write_json(folder / "s.json", {**SYSTEM, **(system or {})})
    (folder / "n.yml").write_text(network)
    if groups is not None:
        write_json(folder / "g.json", groups)
    named = folder / "g.json" if groups is not None else None
    return load_inputs(folder / "w", folder / "s.json", network=folder / "n.yml", comm_group=named)


GOOD = [work(1), collective(2, 0, 1 << 20, 1), collective(3, 2, 4096, 2), work(4, 3)]
BYTES = [encode_trace(ExecutionTrace(nodes=(*GOOD, message(5, sends, 4)))) for sends in (True, False)]


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, len(BYTES[0]) - 1), st.integers(0, 255)), max_size=3),
    st.integers(0, 2),
)
@settings(max_examples=150, deadline=None)
def test_damaged_traces_are_run_or_refused(changes: list[tuple[int, int, int]], cut: int) -> None:
    data = [bytearray(one) for one in BYTES]
    for rank, place, byte in changes:
        data[rank][place] = byte
    if cut < 2:
        del data[cut][-cut - 1 :]
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = run(inputs(Path(folder), *map(bytes, data)))
        except CclSearchError as error:
            assert "\n" not in error.message
            assert folder in error.message
        else:
            assert all(figures.wall > 0 for figures in found.figures)


def refusal(folder: Path, *ranks: list[EtNode], **others: object) -> str:
    with pytest.raises(BadInputError) as error:
        run(inputs(folder, *ranks, **others))  # type: ignore[arg-type]
    return error.value.message


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([GOOD, GOOD[:2]], "rank 1 runs 1 fewer"),
        ([[work(1)], [work(1, 1)]], "w.1.et: node 1 (work): 1 nodes wait for each other"),
        ([[work(1)], [work(1), work(2, 9)]], "depends on node 9"),
        ([[work(1)], [work(1), work(1)]], "2 nodes have the id 1"),
        ([[work(1)], [work(1, num_ops=Value("double", 1.0))]], "num_ops is a double"),
        ([[work(1)], [work(1, num_ops=int64(-5))]], "num_ops is -5"),
        ([[work(1)], [EtNode(1, "x", NodeKind.METADATA)]], "METADATA cannot run"),
        ([[collective(1, 0, 8)], [collective(1, 7, 8)]], "rank"),
        ([[collective(1, 0, 2**62)], [collective(1, 0, 2**62)]], "comm_size is"),
        ([[message(1, True)], [message(1, False, tag=8)]], "tag 7 is sent but never received"),
        ([[collective(1, 0, 8, pg_name=string("x"))], [work(1)]], "pg_name is the string 'x'"),
        ([[collective(1, 0, 8, pg_name=string("3"))], [work(1)]], "group 3 is not there"),
        ([[collective(1, 99, 8)], [work(1)]], "comm_type 99"),
        ([[collective(1, 0, 8, involved_dim=Value("bool_list", (False,)))], [work(1)]], "no dimension"),
        ([[EtNode(1, "x", NodeKind.COMP, duration_micros=2**60)], [work(1)]], "duration_micros"),
    ],
)
def test_refusals(ranks: list[list[EtNode]], words: str, tmp_path: Path) -> None:
    assert words in refusal(tmp_path, *ranks)


def test_two_collectives_in_another_order_never_run(tmp_path: Path) -> None:
    """Both ranks are in both groups, so that each waits in the one the other has not reached."""
    one, two = ({"pg_name": string(name)} for name in ("1", "2"))
    first = [collective(1, 0, 64, **one), collective(2, 0, 64, 1, **two)]
    second = [collective(1, 0, 64, **two), collective(2, 0, 64, 1, **one)]
    groups = {"1": [0, 1], "2": [1, 0]}
    assert "for ever" in refusal(tmp_path, first, second, groups=groups)
    with pytest.raises(BadInputError, match="for ever"):
        require(check(inputs(tmp_path, first, second, groups=groups)))


def test_networks_of_any_size_are_refused_before_they_are_built(tmp_path: Path) -> None:
    huge = NETWORK.replace("[ 2 ]", "[ 1000000000 ]")
    with pytest.raises(BadInputError, match=r"w\.2\.et is missing"):
        inputs(tmp_path, GOOD, GOOD, network=huge)


@pytest.mark.parametrize("bandwidth", ["0.0", "-1", ".inf", "fast"])
def test_impossible_bandwidths(bandwidth: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="bandwidth"):
        inputs(tmp_path, GOOD, GOOD, network=NETWORK.replace("100.0", bandwidth))


def test_alike_findings_are_counted(tmp_path: Path) -> None:
    many = [work(number, 99) for number in range(1, 20)]
    found = check(inputs(tmp_path, many, GOOD))
    assert sum("depends on node 99" in one.what for one in found) == 3
    assert any("and 16 more" in one.what for one in found)


def test_findings_can_be_for_one_tool(tmp_path: Path) -> None:
    found = check(inputs(tmp_path, GOOD, GOOD, system={"all-reduce-implementation-custom": ["et"]}))
    require(found, "astra-sim")
    with pytest.raises(BadInputError, match="custom collectives"):
        require(found, "flow")
