"""The Kineto reader: layouts, schema ages, exact times, launches, annotations, and every kind of damage."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.traces.kineto import reader
from metrics.traces.kineto.events import nanoseconds
from metrics.traces.kineto.spans import describe, is_serving
from metrics.traces.kineto.stream import read_blocks
from metrics.traces.timeline import CopyKind, Lane, Op, StepKind
from tests.metrics import build
from tests.metrics.build import ALLREDUCE, SENDRECV, Kineto, collective

LAYOUTS = ("kineto", "compact", "indented", "name_first", "list", "tail")
EPOCH = 1_720_000_000_000_000_123


def sample(base: int = EPOCH) -> Kineto:
    """Two steps with launches, an annotated and an argued collective, copies, memory and noise."""
    out = Kineto(rank=3, world=8)
    for number in range(2):
        at = base + number * 1_000_000
        out.noise(at)
        out.step(number, at, 900_000)
        out.kernel('void gemm<"x{y}">(int)', at + 100_001, 200_003, launch=at + 10_000, **{"blocks per SM": 2.5})
        out.kernel(ALLREDUCE, at + 310_000, 50_000, launch=at + 20_000, stream=20, **collective("allreduce", 10, 10, 8))
        out.event("user_annotation", "nccl:all_to_all", at + 25_000, 10_000, tid=101)
        out.kernel(SENDRECV, at + 400_000, 50_000, launch=at + 30_000, stream=20, thread=101)
        out.copy("Memcpy HtoD (Pinned -> Device)", at + 500_000, 1_000, 4096, launch=at + 40_000)
        out.copy("Memset (Device)", at + 510_000, 1_000, 64)
        out.memory(at + 600_000, 5_000_000_000)
        out.memory(at + 600_001, 9_000_000_000, device_type=0)
    return out


def one(path: Path) -> tuple[Lane, list[str]]:
    lanes, warnings = reader.read(path, path.name)
    assert len(lanes) == 1
    return lanes[0], warnings


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_read_alike(tmp_path: Path, layout: str) -> None:
    lane, warnings = one(sample().write(tmp_path / "rank3_trace.json", layout))
    assert not warnings
    assert lane.rank == 3
    assert (lane.kernels.start - EPOCH).tolist() == [100_001, 310_000, 400_000, 1_100_001, 1_310_000, 1_400_000]
    assert (lane.kernels.end - lane.kernels.start).tolist() == [200_003, 50_000, 50_000] * 2
    assert (lane.kernels.launch - EPOCH).tolist() == [10_000, 20_000, 30_000, 1_010_000, 1_020_000, 1_030_000]
    assert lane.kernels.comm.tolist() == [0, 1, 1] * 2
    assert lane.kernels.coverage[0] == 2.5
    assert np.isnan(lane.kernels.coverage[1])
    assert [Op(o) for o in lane.collectives.op] == [Op.ALLREDUCE, Op.ALLTOALL] * 2
    assert lane.collectives.in_bytes.tolist() == [20, -1, 20, -1]
    assert lane.collectives.group_size.tolist() == [8, -1, 8, -1]
    assert lane.copies.kind.tolist() == [CopyKind.H2D, CopyKind.MEMSET] * 2
    assert lane.copies.bytes.tolist() == [4096, 64] * 2
    assert (lane.steps.start - EPOCH).tolist() == [0, 1_000_000]
    assert lane.marks.memory_allocated.tolist() == [5_000_000_000] * 2
    if layout != "list":
        assert (lane.world_size, lane.sm_count, lane.device_name) == (8, 132, "NVIDIA H100")


@settings(max_examples=40, deadline=None)
@given(size=st.integers(40, 4000), layout=st.sampled_from(LAYOUTS))
def test_where_blocks_are_cut_changes_nothing(size: int, layout: str) -> None:
    text = sample().text(layout).encode()
    whole = read_blocks([text])
    cut = read_blocks(text[i : i + size] for i in range(0, len(text), size))
    assert (cut.metadata, cut.problems, cut.incomplete) == (whole.metadata, [], False)
    for name in ("start", "dur", "correlation", "nbytes", "kernel"):
        columns = [np.concatenate([getattr(b, name) for b in found.events.device]).tolist() for found in (cut, whole)]
        assert columns[0] == columns[1], name
    assert [s.name for s in cut.events.spans] == [s.name for s in whole.events.spans]


@given(st.lists(st.integers(-(10**15), 2 * 10**18), max_size=8))
def test_times_are_exact(values: list[int]) -> None:
    texts = [f"{'-' if v < 0 else ''}{abs(v) // 1000}.{abs(v) % 1000:03d}".encode() for v in values]
    found, bad = nanoseconds(texts)
    assert found.tolist() == values
    assert not bad


@pytest.mark.parametrize(
    ("text", "want"),
    [(b"12", 12_000), (b"12.5", 12_500), (b"1.2345", 1_235), (b"1.2344", 1_234), (b'"7"', 7_000), (b"1e3", 1_000_000),
     (b"-0.5", -500), (b"1700000000000000.001", 1_700_000_000_000_000_001)],
)  # fmt: skip
def test_other_spellings_of_times(text: bytes, want: int) -> None:
    assert nanoseconds([text])[0].tolist() == [want]


@pytest.mark.parametrize(
    ("text", "word"),
    [(b"NaN", "NaN"), (b"-Infinity", "Infinity"), (b"null", "null"), (b"", ""), (b"9" * 30, "out of range")],
)
def test_what_is_no_time(text: bytes, word: str) -> None:
    assert nanoseconds([b"1.000", text])[1] == {1: word}


@pytest.mark.parametrize("good", [b"123.456", b"123", b"1700000000000000.001"])
def test_one_bad_time_after_many_good_ones(good: bytes) -> None:
    """The fast path gives up in linear time (a pattern with two ways to match a number would never end)."""
    values, bad = nanoseconds([good] * 5000 + [b"NaN"])
    assert bad == {5000: "NaN"}
    assert len(set(values[:5000].tolist())) == 1


def test_schema_of_2021(tmp_path: Path) -> None:
    trace = Kineto(rank=None, world=None)
    trace.event("Operator", "ProfilerStep#7", 0, 900_000)
    trace.event("Operator", "aten::add", 0, 900)
    trace.event("Kernel", "gemm", 100_000, 200_000, pid=0, tid="stream 7",
                args={"device": 0, "stream": 7, "correlation": 11, "blocks per SM": 0.25})  # fmt: skip
    trace.event("Runtime", "cudaLaunchKernel", 50_000, 2_000, tid="100", args={"correlation": 11, "cbid": 211})
    trace.event("Memcpy", "Memcpy DtoD (Device -> Device)", 400_000, 10_000, pid=0, tid="stream 7",
                args={"device": 0, "correlation": 12, "bytes": 77})  # fmt: skip
    lane, _ = one(trace.write(tmp_path / "worker5.pt.trace.json", whole_us=True))
    assert (lane.rank, lane.step_kind, len(lane.steps)) == (5, "ProfilerStep", 1)
    assert lane.kernels.launch.tolist() == [50_000]
    assert lane.copies.bytes.tolist() == [77]


def test_devices_of_one_rank_are_lanes_of_their_own(tmp_path: Path) -> None:
    trace = Kineto()
    trace.step(0, 0, 1_000_000)
    trace.kernel("a", 1_000, 2_000, launch=100, device=0)
    trace.kernel("b", 1_500, 2_000, launch=200, device=1)
    lanes, _ = reader.read(trace.write(tmp_path / "t.json"), "t.json")
    assert [(lane.label, len(lane.kernels), len(lane.steps)) for lane in lanes] == [
        ("rank 0 device 0", 1, 1),
        ("rank 0 device 1", 1, 1),
    ]


def test_steps_of_the_gpu_timeline_are_not_steps(tmp_path: Path) -> None:
    trace = sample()
    trace.event("gpu_user_annotation", "ProfilerStep#0", EPOCH + 5, 16_000)
    assert len(one(trace.write(tmp_path / "t.json"))[0].steps) == 2


def test_represented_ranks(tmp_path: Path) -> None:
    trace = sample()
    trace.represents = [3, 4, 5]
    lane, _ = one(trace.write(tmp_path / "t.json"))
    assert (lane.ranks, lane.weight) == ((3, 4, 5), 3)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("execute_context_2(888_788544)_generation_0(0)", (StepKind.PREFILL, 2, 888, 0)),
        ("execute_context_0(0)_generation_32(32)", (StepKind.DECODE, 0, 0, 32)),
        ("execute_8192_context_9(sq8155sk8430sqsq7475785)_generation_37(sq37sk34489)", (StepKind.MIXED, 9, 8155, 37)),
        ("step[DECODE bs=32]", (StepKind.DECODE, 0, 0, 32)),
        ("step[EXTEND bs=15 toks=15360]", (StepKind.PREFILL, 15, 15360, 0)),
        ("sglang/managers/scheduler.py(2919): run_batch", (StepKind.PLAIN, -1, -1, -1)),
    ],
)  # fmt: skip
def test_serving_spans(name: str, said: tuple[StepKind, int, int, int]) -> None:
    assert is_serving(name)
    assert describe(name) == said


def test_a_span_inside_another_is_no_second_step(tmp_path: Path) -> None:
    trace = Kineto()
    trace.event("python_function", "scheduler.py(2919): run_batch", 10, 80_000)
    trace.event("user_annotation", "execute_context_0(0)_generation_4(4)", 0, 100_000)
    trace.event("user_annotation", "step[DECODE bs=4]", 20, 60_000)
    trace.event("user_annotation", "execute_context_0(0)_generation_4(4)", 200_000, 100_000)
    lane, _ = one(trace.write(tmp_path / "t.json"))
    assert lane.steps.start.tolist() == [0, 200_000]
    assert lane.steps.kind.tolist() == [StepKind.DECODE] * 2


def first_event(trace: Kineto, layout: str) -> bytes:
    return build._encode(trace.events[0], layout, False).encode()


def end_of_list(trace: Kineto, layout: str) -> int:
    """Where the last event ends (the texts are ASCII, so bytes and characters agree)."""
    last = build._encode(trace.events[-1], layout, False)
    return trace.text(layout).rindex(last) + len(last)


# --- damage ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=25, deadline=None)
@given(keep=st.floats(0.2, 0.97))
def test_truncation_keeps_whole_events(layout: str, keep: float) -> None:
    trace = sample()
    text = trace.text(layout).encode()
    start, end = text.index(first_event(trace, layout)), end_of_list(trace, layout)
    cut = text[: start + int((end - start) * keep)]
    found = read_blocks([cut])
    assert found.incomplete
    whole = [len(b.start) for b in read_blocks([text]).events.device]
    assert sum(len(b.start) for b in found.events.device) <= sum(whole)


@pytest.mark.parametrize("library", ["isal", "zlib"])
def test_members_of_a_gzip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """Two members and padding at the end, with the standard library and with isal where it is installed."""
    if library == "zlib":
        monkeypatch.setattr("metrics.traces.raw._zlib", lambda: zlib)
    text = sample().text().encode()
    path = tmp_path / "rank3.json"  # the name says nothing about compression
    path.write_bytes(gzip.compress(text[:1000]) + gzip.compress(text[1000:]) + b"\0" * 512)
    lane, warnings = one(path)
    assert (len(lane.kernels), warnings) == (6, [])


def test_truncated_gzip(tmp_path: Path) -> None:
    trace = sample()
    for number in range(400):
        trace.kernel(f"k{number * 7919 % 1000}", EPOCH + 2_000_000 + number * 1000, 900)
    data = gzip.compress(trace.text().encode())
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(data[: int(len(data) * 0.8)])
    lane, warnings = one(path)
    assert len(lane.kernels) > 6
    assert any("rank0.json.gz: cut off" in w for w in warnings)
    assert any("incomplete" in w for w in warnings)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('"gemm_bad"', '"gemm\\User"', "invalid escape"),
        ('"gemm_bad"', '"gemm\x01"', "control character"),
        ("@gemm@", "\xe9", "Latin-1"),
    ],
)
def test_damaged_texts_are_repaired(tmp_path: Path, layout: str, old: str, new: str, word: str) -> None:
    trace = sample()
    trace.kernel("gemm_bad" if "bad" in old else "@gemm@", EPOCH + 2_000_000, 1_000)
    path = tmp_path / "t.json"
    path.write_bytes(trace.text(layout).replace(old, new).encode("latin-1"))
    lane, warnings = one(path)
    assert len(lane.kernels) == 7
    assert any("repaired" in w and word in w for w in warnings), warnings


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("value", "word"), [("NaN", "NaN"), ("-Infinity", "Infinity"), ("-3.5", "negative"), ("null", "null")]
)
def test_bad_durations_are_ignored_and_told(tmp_path: Path, layout: str, value: str, word: str) -> None:
    trace = sample()
    trace.kernel("odd", EPOCH + 2_000_000, 777_777)
    path = tmp_path / "t.json"
    path.write_text(trace.text(layout).replace("777.777", value))
    lane, warnings = one(path)
    assert len(lane.kernels) == 6
    assert len(warnings) == 1
    assert "t.json: 1 event(s) ignored" in warnings[0]
    assert word in warnings[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_trailing_comma(tmp_path: Path, layout: str) -> None:
    trace = sample()
    text, end = trace.text(layout), end_of_list(trace, layout)
    path = tmp_path / "t.json"
    path.write_text(text[:end] + "," + text[end:])
    lane, warnings = one(path)
    assert len(lane.kernels) == 6
    assert warnings == ["t.json: a comma after the last event was ignored"]


def test_odd_values_do_not_stop_the_reader(tmp_path: Path) -> None:
    trace = sample()
    for args in ({"device": 0, "correlation": "x"}, {"device": 0, "correlation": None, "bytes": "12"}, {}):
        trace.event("kernel", "k", EPOCH + 2_000_000, 1_000, pid=0, args=args)
    trace.event("kernel", "k", EPOCH + 2_000_000, 1_000, pid=0, args={"device": 0})["cat"] = {"no": "text"}
    trace.event("kernel", None, EPOCH + 2_000_000, 1_000, pid=0, args={"device": 0})
    trace.event("user_annotation", None, EPOCH, 5)
    trace.events.append({"ph": "X"})
    lane, warnings = one(trace.write(tmp_path / "t.json"))
    assert len(lane.kernels) == 10
    assert not warnings


def test_no_event_list(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": 2}}))
    lane, warnings = one(path)
    assert not lane.has_work
    assert warnings == ["t.json: no event list found; the file was left out"]


@settings(max_examples=60, deadline=None)
@given(
    layout=st.sampled_from(LAYOUTS),
    edits=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 40), st.binary(max_size=6)), min_size=1, max_size=4),
)
def test_no_damage_stops_the_reader(layout: str, edits: list[tuple[float, int, bytes]]) -> None:
    """Whatever bytes are lost or put in, the reader ends, and never knows more kernels than bytes allow."""
    data = bytearray(sample().text(layout).encode())
    for place, lost, put in edits:
        at = int(place * len(data))
        data[at : at + lost] = put
    contents = read_blocks([bytes(data)])
    kernels = sum(len(block.start) for block in contents.events.device)
    assert kernels <= data.count(b"{")
    assert all((block.dur >= 0).all() for block in contents.events.device)
    reader.warnings_of(contents, "t.json")
