"""Folders of traces: discovery, families, ranks, split and copied files, the cache, parallel reading."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from metrics import compute
from metrics.traces import cache as caching
from metrics.traces import codec, pool
from metrics.traces.cache import Cache
from metrics.traces.discover import find
from metrics.traces.load import load
from runs.errors import BadInputError
from tests.metrics.build import ALLREDUCE, Kineto, Xla, collective

MS = 1_000_000


def rank(number: int = 0, world: int | None = 1, kernels: int = 4, length: int = MS) -> Kineto:
    trace = Kineto(rank=number, world=world)
    trace.step(0, 0, length)
    for k in range(kernels):
        trace.kernel(f"gemm{k}", k * 1000, 900, launch=k * 10)
    trace.kernel(ALLREDUCE, kernels * 1000, 900, launch=500, **collective("allreduce", 10, 10, world or 1))
    return trace


# --- folders ----------------------------------------------------------------------------------------------------------


def test_only_traces_are_traces(tmp_path: Path) -> None:
    rank().write(tmp_path / "deep" / "er" / "rank0_trace.json.gz")
    (tmp_path / "card.yaml").write_text("version: 1")
    (tmp_path / "run.latency.json").write_text('{"avg_latency": 1}')
    (tmp_path / "results.json").write_text('{"loss": [1, 2]}')
    files, warnings = find(tmp_path)
    assert [(f.source, f.family) for f in files] == [("deep/er/rank0_trace.json.gz", "kineto")]
    assert warnings == ["results.json: left out, not a trace of a known family"]


def test_a_single_file_is_a_trace(tmp_path: Path) -> None:
    assert len(load(rank().write(tmp_path / "rank0.json")).lanes) == 1


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="there is no trace at"):
        load(tmp_path / "missing")
    with pytest.raises(BadInputError, match=r"no trace file in .* or in the folders below it"):
        load(tmp_path)
    (tmp_path / "rank0.json").write_text('{"traceEvents": []}')
    with pytest.raises(BadInputError, match=r"rank0\.json: holds no events"):
        load(tmp_path)


def test_families_are_not_mixed(tmp_path: Path) -> None:
    rank(0, 2).write(tmp_path / "rank0.json")
    rank(1, 2).write(tmp_path / "rank1.json")
    other = Xla()
    other.module(0, "jit_f", 0, MS)
    other.op(0, "loop fusion", 0, MS)
    other.write(tmp_path / "tpu.trace.json")
    found = load(tmp_path)
    assert (found.family, len(found.lanes)) == ("kineto", 2)
    assert found.warnings == ["tpu.trace.json: left out, a xla trace among kineto traces"]


def test_a_long_header_is_no_obstacle(tmp_path: Path) -> None:
    trace = rank()
    path = trace.write(tmp_path / "rank0.json")
    data = json.loads(path.read_text())
    padded = {"schemaVersion": 1, "padding": ["x" * 100] * 6000, **data}
    path.write_text(json.dumps(padded))
    assert len(load(tmp_path).lanes[0].kernels) == 5


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    for number in (0, 3):
        rank(number, 5).write(tmp_path / f"rank{number}.json")
    assert load(tmp_path).warnings == ["rank 1, 2, 4 of 5 is missing; the values are those of the 2 ranks present"]


def test_copies_of_a_rank_are_used_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        rank().write(tmp_path / f"rank0_{name}.json")
    rank(kernels=2).write(tmp_path / "rank0_short.json")
    found = load(tmp_path)
    assert [lane.source for lane in found.lanes] == ["rank0_a.json"]
    assert found.warnings == ["rank 0 is there 3 times: rank0_a.json was used, rank0_b.json, rank0_short.json left out"]


def test_parts_of_a_rank_are_joined(tmp_path: Path) -> None:
    whole = rank()
    for name, chosen in (("host", ("user_annotation", "cuda_runtime")), ("device", ("kernel",))):
        part = Kineto(rank=0, world=1)
        part.events = [e for e in whole.events if e["cat"] in chosen]
        part.write(tmp_path / f"rank0_{name}.json")
    found = load(tmp_path)
    assert not found.warnings
    assert found.lanes[0].kernels.launch.tolist() == [0, 10, 20, 30, 500]


def test_captures_in_other_folders_are_not_joined(tmp_path: Path) -> None:
    rank().write(tmp_path / "iteration_10" / "rank0_trace.json")
    rank(length=2 * MS).write(tmp_path / "iteration_20" / "rank0_trace.json")
    found = load(tmp_path)
    assert [lane.source for lane in found.lanes] == ["iteration_10/rank0_trace.json"]
    assert "rank 0 is there twice" in found.warnings[0]


# --- cache ------------------------------------------------------------------------------------------------------------


def settle(folder: Path) -> None:
    """Make files look old enough that their modification time tells a later change."""
    for path in folder.iterdir():
        os.utime(path, (time.time() - 100, time.time() - 100))


def test_the_second_time_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, store = tmp_path / "trace", tmp_path / "cache"
    rank(0, 2).write(trace / "rank0.json")
    rank(1, 2).write(trace / "rank1.json.gz")
    settle(trace)
    first = compute(trace, cache=store)

    def refuse(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(pool, "read_one", refuse)
    monkeypatch.setattr(caching, "file_sha256", refuse)
    assert compute(trace, cache=store) == first
    with pytest.raises(AssertionError, match="read again"):
        compute(trace)


def test_content_counts_not_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, store = tmp_path / "trace", tmp_path / "cache"
    rank().write(trace / "rank0.json")
    first = compute(trace, cache=store)
    shutil.move(trace, tmp_path / "moved")
    monkeypatch.setattr(pool, "read_one", None)
    assert compute(tmp_path / "moved", cache=store) == first


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    trace, store = tmp_path / "trace", tmp_path / "cache"
    path = rank(length=MS).write(trace / "rank0.json")
    assert compute(trace, cache=store)["avg_step_time"].value == pytest.approx(1e-3)
    size = path.stat().st_size
    rank(length=2 * MS).write(path)
    assert path.stat().st_size == size
    assert compute(trace, cache=store)["avg_step_time"].value == pytest.approx(2e-3)


def test_a_damaged_entry_is_a_miss(tmp_path: Path) -> None:
    trace, store = tmp_path / "trace", tmp_path / "cache"
    rank().write(trace / "rank0.json")
    first = compute(trace, cache=store)
    for entry in (p for p in store.iterdir() if p.is_file()):
        entry.write_bytes(entry.read_bytes()[:100])
    assert compute(trace, cache=store) == first


def test_a_read_only_cache_is_no_error(tmp_path: Path) -> None:
    rank().write(tmp_path / "trace" / "rank0.json")
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert compute(tmp_path / "trace", cache=tmp_path / "cache")["avg_step_time"].value is not None


def test_warnings_are_kept_and_renamed(tmp_path: Path) -> None:
    trace, store = rank(), tmp_path / "cache"
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "rank0.json").write_text(trace.text()[:-300])
    first = load(tmp_path / "a", store).warnings
    assert any("rank0.json: incomplete" in w for w in first)
    assert load(tmp_path / "a", store).warnings == first
    shutil.copytree(tmp_path / "a", tmp_path / "b" / "deeper")
    again = load(tmp_path / "b", store)
    assert again.lanes[0].source == "deeper/rank0.json"
    assert again.warnings == [w.replace("rank0.json", "deeper/rank0.json") for w in first]


def test_the_index_is_not_fooled_by_a_fresh_file(tmp_path: Path) -> None:
    path = rank().write(tmp_path / "rank0.json")
    store = Cache(tmp_path / "cache")
    store.put(path, "0" * 64, b"data")
    assert not (tmp_path / "cache" / "index").exists()
    os.utime(path, (time.time() - 60, time.time() - 60))
    store.put(path, "0" * 64, b"data")
    assert store.get(path) == b"data"


def test_lanes_survive_the_codec(tmp_path: Path) -> None:
    lane = load(rank().write(tmp_path / "rank0.json")).lanes[0]
    (back,), warnings = codec.decode(codec.encode([lane], ["told"]))
    assert warnings == ["told"]
    for table in ("kernels", "collectives", "copies", "steps", "marks", "samples"):
        for name, column in vars(getattr(lane, table)).items():
            assert np.array_equal(getattr(getattr(back, table), name), column, equal_nan=column.dtype.kind == "f")
    plain = {k: v for k, v in vars(lane).items() if isinstance(v, str | int | list | dict | tuple)}
    assert {k: v for k, v in vars(back).items() if k in plain} == plain
    with pytest.raises(ValueError, match="not a stored trace"):
        codec.decode(b"\x93\x01\x02\x03")


# --- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cached", [False, True])
def test_parallel_reading_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool) -> None:
    for number in range(3):
        rank(number, 3, kernels=number + 2).write(tmp_path / "trace" / f"rank{number}.json")
    (tmp_path / "trace" / "rank2.json").write_text(rank(2, 3).text()[:-300])
    alone = compute(tmp_path / "trace")
    monkeypatch.setattr(pool, "PARALLEL_FROM", 0)
    monkeypatch.setattr(pool, "_workers", lambda files: min(2, len(files)))
    started = []
    start = pool._start
    monkeypatch.setattr(pool, "_start", lambda *args: started.append(1) or start(*args))
    store = tmp_path / "cache" if cached else None
    assert compute(tmp_path / "trace", cache=store) == alone
    assert len(started) == 2
    if cached:
        assert compute(tmp_path / "trace", cache=store) == alone
        assert len(started) == 2


def test_a_failed_worker_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        rank(number, 2).write(tmp_path / f"rank{number}.json")
    monkeypatch.setattr(pool, "_workers", lambda files: 2)
    monkeypatch.setattr(pool.sys, "executable", "/bin/false")
    assert [lane.rank for lane in load(tmp_path).lanes] == [0, 1]
