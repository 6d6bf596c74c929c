"""Folding gives back every byte, and never anything else."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccl_search.publishing.folding import fold, unfold
from ccl_search.publishing.packing import PackedFile, pack, pack_large, unpack
from runs.errors import BadInputError

HEAD = '{"schemaVersion":1,"traceEvents":[\n'
EVENT = '{"ph":"X","name":"gemm 100%% \\"a\\"","ts":%s,"dur":%s,"args":{"correlation":%d}}'


def trace(events: list[str]) -> bytes:
    return (HEAD + ",\n".join(events) + "\n]}").encode()


def test_a_trace_of_equal_steps_folds_to_a_few_per_cent_of_gzip() -> None:
    data = trace([EVENT % (f"{17 * k}.{k % 1000:03d}", "4.250", k) for k in range(20_000)])

    folded = fold(data)

    assert folded is not None
    assert unfold(folded, len(data)) == data
    assert len(gzip.compress(folded, 9)) < 0.1 * len(gzip.compress(data, 9))


numbers = st.one_of(
    st.integers(0, 10**18).map(str),
    st.tuples(st.integers(0, 10**12), st.integers(0, 999)).map(lambda n: f"{n[0]}.{n[1]:03d}"),
    st.sampled_from(["-1.000", "1e5", "0.1", "007", "1.0005", "NaN", "\x00ts."]),
)


@given(st.lists(st.tuples(numbers, numbers, st.integers(0, 10**9)), max_size=8), st.text(max_size=20))
@settings(max_examples=200, deadline=None)
def test_what_folds_unfolds_to_itself(rows: list[tuple[str, str, int]], tail: str) -> None:
    data = trace([EVENT % row for row in rows]) + tail.encode("utf-8", "replace")

    folded = fold(data)

    assert folded is None or unfold(folded, len(data)) == data


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[]", b'{"traceEvents":[]}', b'{"traceEvents": [\n {"ts": 1}\n]}'])
def test_other_layouts_are_left_alone(data: bytes) -> None:
    assert fold(data) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace(b'"order":[0', b'"order":[9'),
        lambda text: text.replace(b'"dur.":[4250,', b'"dur.":['),
        lambda text: text.replace(b'"dur."', b'"dux."'),
        lambda text: text.replace(b"folded trace 1", b"folded trace 2"),
        lambda text: text[:-5],
        lambda text: text.replace(b'"order":[0', b'"order":["a"'),
    ],
)
def test_a_damaged_fold_is_an_error_never_another_trace(spoil: object) -> None:
    data = trace([EVENT % (f"{k}.000", "4.250", k) for k in range(5)])
    folded = fold(data)
    assert folded is not None
    assert callable(spoil)

    with pytest.raises(ValueError, match=r"fold"):
        unfold(spoil(folded), len(data))


def test_a_fold_that_grows_beyond_its_size_is_stopped() -> None:
    data = trace([EVENT % (f"{k}.000", "4.250", k) for k in range(5)])
    folded = fold(data)
    assert folded is not None

    with pytest.raises(ValueError, match="more than the 100 bytes"):
        unfold(folded, 100)


@pytest.mark.parametrize("name", ["trace/rank0.json", "trace/rank0.json.gz", "trace/report.sqlite"])
def test_packing_is_undone_exactly_and_deterministic(name: str, tmp_path: Path) -> None:
    data = trace([EVENT % ("1.000", "2.000", 3)]) if name.endswith(".json") else bytes(range(256)) * 9
    facts, content = pack(data, name)
    place = tmp_path / "in" / str(facts.file)
    place.parent.mkdir(parents=True)
    place.write_bytes(content)

    unpack(facts, tmp_path / "in", tmp_path / "out")

    assert (tmp_path / "out" / name).read_bytes() == data
    assert pack(data, name)[1] == content


@pytest.mark.parametrize("name", ["trace/rank0.json", "trace/rank0.json.gz", "trace/report.sqlite"])
def test_a_large_file_is_packed_in_blocks_and_comes_back(name: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * 20_000
    (tmp_path / "source").write_bytes(data)

    facts = pack_large(tmp_path / "source", name, tmp_path / "in")
    unpack(facts, tmp_path / "in", tmp_path / "out")

    assert (tmp_path / "out" / name).read_bytes() == data
    assert facts.size == len(data)
    first = (tmp_path / "in" / str(facts.file)).read_bytes()
    pack_large(tmp_path / "source", name, tmp_path / "again")
    assert (tmp_path / "again" / str(facts.file)).read_bytes() == first


def test_a_gzip_bomb_stops_at_the_size_it_should_have(tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "a.json.gz").write_bytes(gzip.compress(bytes(30_000_000)))
    for packing in ("gzip", "folded"):
        facts = PackedFile("trace/a.json", 1000, "0" * 64, packing, "trace/a.json.gz")  # type: ignore[arg-type]

        with pytest.raises(BadInputError, match="cannot be unpacked"):
            unpack(facts, tmp_path, tmp_path / "out")
        assert (tmp_path / "out" / "trace" / "a.json").stat().st_size <= 1000
