"""The Chakra codec: bytes of known traces, round trips, and whatever a file may hold instead."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.exchange.chakra import (
    EtNode,
    ExecutionTrace,
    NodeKind,
    decode_trace,
    encode_trace,
    read_trace,
    write_trace,
)
from backends.exchange.values import Value, boolean, int64, string, uint64
from runs.errors import BadInputError
from tests.reference import shared_path

_LIMITS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1), "uint32": (0, 2**32 - 1)}
_LIMITS |= {"uint64": (0, 2**64 - 1), "sint32": _LIMITS["int32"], "sint64": _LIMITS["int64"]}
_LIMITS |= {"fixed32": _LIMITS["uint32"], "fixed64": _LIMITS["uint64"], "sfixed32": _LIMITS["int32"]}
_LIMITS |= {"sfixed64": _LIMITS["int64"]}
_SCALARS = {name: st.integers(*limits) for name, limits in _LIMITS.items()} | {
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
    "bool": st.booleans(),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
}
_VALUES = st.one_of(
    *[st.builds(Value, st.just(name), one) for name, one in _SCALARS.items()],
    *[st.builds(Value, st.just(f"{n}_list"), st.lists(one, max_size=4).map(tuple)) for n, one in _SCALARS.items()],
    st.none(),
)
_IDS = st.integers(0, 2**64 - 1)
_DEPS = st.lists(_IDS, max_size=3).map(tuple)
_TEXTS = st.fixed_dictionaries({}, optional={name: st.text(min_size=1) for name in ("values", "shapes", "types")})
_NODES = st.builds(
    EtNode,
    id=_IDS,
    name=st.text(max_size=8),
    kind=st.sampled_from(NodeKind),
    data_deps=_DEPS,
    ctrl_deps=_DEPS,
    attributes=st.dictionaries(st.text(max_size=6), _VALUES, max_size=4),
    duration_micros=_IDS,
    start_micros=_IDS,
    inputs=st.none() | _TEXTS,
    outputs=st.none() | _TEXTS,
)
_TRACES = st.builds(
    ExecutionTrace, st.fixed_dictionaries({"version": st.text(max_size=6)}), st.lists(_NODES, max_size=4).map(tuple)
)

# Written out by hand from the schema: each message after its length.
_METADATA = bytes.fromhex("07 0a05 302e302e34")
_NODE = bytes.fromhex("1d 0805 1201 78 1804 2a020102 3803 52 0e 0a09 69735f6370755f6f70 d80101".replace(" ", ""))
_READ = EtNode(5, "x", NodeKind.COMP, (1, 2), (), {"is_cpu_op": boolean(True)}, 3)


def test_reads_bytes_written_by_hand() -> None:
    trace = decode_trace(_METADATA + _NODE)
    assert trace == ExecutionTrace({"version": "0.0.4"}, (_READ,))
    assert encode_trace(trace) == _METADATA + _NODE


def test_reads_unpacked_dependencies() -> None:
    unpacked = bytes.fromhex("08 0805 1804 2801 2802".replace(" ", ""))
    (node,) = decode_trace(_METADATA + unpacked).nodes
    assert node.data_deps == (1, 2)


def test_keeps_fields_of_newer_schemas() -> None:
    newer = bytes.fromhex("0a 0805 1808 5a04 0801 5200".replace(" ", ""))
    (node,) = decode_trace(_METADATA + newer).nodes
    assert node.kind is NodeKind.STORAGE
    assert encode_trace(ExecutionTrace(nodes=(node,))) == _METADATA + newer


def test_negative_numbers_take_ten_bytes() -> None:
    """As protobuf has it: int64 -1 is ten bytes of ones, sint64 -1 is 1."""
    node = EtNode(1, "", NodeKind.COMP, attributes={"a": int64(-1), "b": Value("sint64", -1)})
    assert b"\x0a\x01\x61\x48" + b"\xff" * 9 + b"\x01" in encode_trace(ExecutionTrace(nodes=(node,)))
    assert b"\x0a\x01\x62\x88\x01\x01" in encode_trace(ExecutionTrace(nodes=(node,)))


@given(_TRACES)
@settings(max_examples=60, deadline=None)
def test_decoding_undoes_encoding(trace: ExecutionTrace) -> None:
    assert decode_trace(encode_trace(trace)) == trace


_GOOD = encode_trace(
    ExecutionTrace(
        nodes=(
            _READ,
            EtNode(2, "AllReduce", NodeKind.COMM_COLL, (1,), (), {"comm_size": uint64(4096), "pg_name": string("1")}),
            EtNode(3, "list", NodeKind.COMM_COLL, (), (1,), {"involved_dim": Value("bool_list", (True, False))}),
        )
    )
)


@given(st.lists(st.tuples(st.integers(0, len(_GOOD) - 1), st.integers(0, 255)), max_size=4), st.integers(0, len(_GOOD)))
@settings(max_examples=300, deadline=None)
def test_damaged_bytes_are_read_or_refused(changes: list[tuple[int, int]], length: int) -> None:
    data = bytearray(_GOOD)
    for place, byte in changes:
        data[place] = byte
    try:
        trace = decode_trace(bytes(data[:length]), "some.0.et")
    except BadInputError as error:
        assert error.message.startswith("some.0.et")
    else:
        assert encode_trace(decode_trace(encode_trace(trace))) == encode_trace(trace)


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        decode_trace(data)
    except BadInputError as error:
        assert "\n" not in error.message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b'{"schema": []}', "byte 0: a message of 123 bytes is cut off after 13"),
        (_GOOD[:-1], "is cut off"),
        (_METADATA + b"\x03\x08\x01", "byte 8: a message of 3 bytes is cut off after 2"),
        (_METADATA + b"\x02\x18\x63", "no node has the type 99"),
        (_METADATA + b"\x03\x12\x01\xff", "UTF-8"),
        (_METADATA + b"\x80", "cut off inside a number"),
        (_METADATA + b"\x0b\x08" + b"\xff" * 10, "64 bits"),
    ],
)
def test_refusals_name_place_and_reason(data: bytes, words: str) -> None:
    with pytest.raises(BadInputError) as error:
        decode_trace(data, "w.2.et")
    assert "w.2.et" in error.value.message
    assert words in error.value.message


@pytest.mark.parametrize(
    "value", [Value("int32", 2**31), Value("uint64", -1), Value("string", 3), Value("double", "x")]
)
def test_values_that_do_not_fit_are_not_written(value: Value, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="node 7"):
        write_trace(tmp_path / "x.0.et", ExecutionTrace(nodes=(EtNode(7, "", NodeKind.COMP, attributes={"a": value}),)))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"x\.0\.et cannot be read"):
        read_trace(tmp_path / "x.0.et")


@pytest.mark.shared
@pytest.mark.parametrize("archive", ["data/astra/inputs.tar.gz", "data/astra/moe_study/inputs.tar.gz"])
def test_traces_of_other_producers_are_written_back_byte_for_byte(archive: str) -> None:
    """Ranks 0 and 1 of every workload; the other ranks hold the same kinds of nodes."""
    seen = 0
    with tarfile.open(shared_path(archive)) as tar:
        for member in tar:
            if member.name.endswith((".0.et", ".1.et")) and not any(w in member.name for w in ("/json/", "/zero/")):
                file = tar.extractfile(member)
                assert file is not None
                data = file.read()
                assert encode_trace(decode_trace(data, member.name)) == data, member.name
                seen += 1
    assert seen > 40
