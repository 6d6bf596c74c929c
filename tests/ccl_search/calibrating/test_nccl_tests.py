"""What nccl-tests printed, in several versions, is read as published; what is broken is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccl_search.calibrating.nccl_tests import NcclTest, bus_share, is_nccl_text, read_text
from runs.errors import BadInputError

FILES = Path(__file__).parent / "nccl"
HEAD = """# nThread 1 nGpus 2 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
# Using devices
#  Rank  0 Group  0 Pid 1 on node-a device  0 [0x10] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid 1 on node-a device  1 [0x16] NVIDIA A100-SXM4-40GB
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
"""
FOOT = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1\n"
ROW = "1048576 262144 float sum -1 100.0 10.49 10.49 0 100.0 10.49 10.49 0\n"


def text(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


def only(content: str, source: str = "all_reduce.txt") -> NcclTest:
    (found,) = read_text(content, source)
    return found


def test_ranks_and_hosts_of_two_nodes() -> None:
    found = only(text("h100_2x8.txt"), "h100_2x8.txt")
    assert (found.kind, found.hosts, len(found.ranks)) == ("all_reduce", ("host-a", "host-b"), 16)
    assert [rank.device for rank in found.ranks] == [*range(8), *range(8)]
    assert {rank.model for rank in found.ranks} == {"NVIDIA H100 80GB HBM3"}
    assert found.describe() == "all_reduce over 16 ranks on 2 hosts"


def test_times_are_seconds_out_of_place_and_in_place() -> None:
    rows = {row.nbytes: row for row in only(text("h100_2x8.txt")).rows}
    assert rows[8589934592].seconds == pytest.approx((47535e-6, 47743e-6))
    assert rows[1048576].median == pytest.approx((203.2e-6 + 207.2e-6) / 2)
    assert len(rows) == 12


def test_tags_of_mpirun_and_lines_of_nccl_between_rows() -> None:
    found = only(text("all_reduce_efa_2x1.txt"), "all_reduce_efa_2x1.txt")
    assert (found.kind, found.hosts) == ("all_reduce", ("worker-0", "worker-1"))
    assert [row.nbytes for row in found.rows][:2] == [4, 1024]
    assert found.rows[-1].seconds == pytest.approx((344981e-6, 344454e-6))


def test_columns_of_2019() -> None:
    found = only(text("v100_4_old.txt"), "v100_4_old.txt")
    assert (found.kind, len(found.ranks), found.hosts) == ("all_reduce", 4, ("51e6e7896958",))
    assert [row.seconds for row in found.rows][-1] == pytest.approx((159.3e-6, 278.1e-6))


def test_the_newest_versions_name_themselves_and_the_test() -> None:
    new = f"# nccl-tests version 2.18.0 nccl-headers=22907\n# Collective test starting: all_gather_perf_mpi\n{HEAD}"
    row = "1048576 131072 float none -1 100.0 10.49 5.24 0 100.0 10.49 5.24 N/A\n"
    found = only(f"{new}{row}{FOOT}#\n# Collective test concluded: all_gather_perf_mpi\n", "log")
    assert (found.kind, found.version) == ("all_gather", "2.18.0")


def test_a_test_without_in_place_times() -> None:
    row = "1048576 131072 float none -1 100.0 10.49 5.24 0 N/A N/A N/A N/A\n"
    assert only(f"{HEAD}{row}{FOOT}", "alltoall.log").rows[0].seconds == pytest.approx((1e-4,))


def test_labels_of_srun() -> None:
    labelled = "".join(f"0: {line}\n" for line in f"{HEAD}{ROW}{FOOT}".splitlines())
    assert only(labelled).rows[0].nbytes == 1048576


def test_several_tests_in_one_file() -> None:
    one = f"./build/all_reduce_perf -g 2\n{HEAD}{ROW}{FOOT}"
    other = f"./build/reduce_perf -g 2\n{HEAD}{ROW}{FOOT}"
    found = read_text(one + other, "log.txt")
    assert [(test.name, test.kind) for test in found] == [("all_reduce", "all_reduce"), ("reduce", None)]


def test_groups_run_beside_each_other() -> None:
    ranks = "".join(
        f"#  Rank  {r} Group  {r // 2} Pid 1 on node-a device  {r} [0x10] NVIDIA A100-SXM4-40GB\n" for r in range(4)
    )
    head = HEAD.splitlines(keepends=True)
    found = only("".join([*head[:2], ranks, head[4]]) + ROW + FOOT)
    assert [[rank.number for rank in group] for group in found.groups] == [[0, 1], [2, 3]]


def test_the_collective_follows_from_the_bus_bandwidth() -> None:
    assert only(f"{HEAD}{ROW}{FOOT}", "log").kind == "all_reduce"
    scattered = ROW.replace("10.49 10.49", "10.49 5.24")
    assert only(f"{HEAD}{scattered}{FOOT}", "log").kind == "reduce_scatter"


def test_what_two_collectives_print_alike_has_to_be_named() -> None:
    row = ROW.replace("sum", "none").replace("10.49 10.49", "10.49 5.24")
    with pytest.raises(BadInputError, match="cannot be told") as error:
        read_text(f"{HEAD}{row}{FOOT}", "log")
    assert "alltoall" in error.value.hint


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (f"{HEAD}{ROW}", "truncated"),
        (f"{HEAD}{ROW}{HEAD}{ROW}{FOOT}", "truncated"),
        (f"{HEAD}{ROW[:40]}\n{FOOT}", "log:6: a row of 7 cells under 13 columns: truncated"),
        (HEAD + ROW.replace("10.49 0 100", "10.49 3 100") + FOOT, "log:6: 3 values were wrong"),
        (f"{HEAD}{ROW}{FOOT.replace(': 0 OK', ': 7 FAILED')}", "7 values were wrong"),
        (HEAD + ROW.replace("100.0", "nan", 1) + FOOT, "no number"),
        (HEAD + ROW.replace("100.0", "0.00") + FOOT, "no time above zero"),
        (HEAD + ROW.replace("100.0 10.49", "200.0 10.49", 1) + FOOT, "is no all_reduce over 2 ranks"),
        (HEAD.replace("Rank  1", "Bank  1") + ROW + FOOT, "names 1 ranks"),
        ("nothing here\n", "holds no test"),
        (HEAD.replace("#       size", "#       sighs") + ROW + FOOT, "no table"),
    ],
)
def test_broken_output_is_refused_with_its_place(content: str, word: str) -> None:
    with pytest.raises(BadInputError) as error:
        read_text(content, "log")
    assert word in error.value.message
    assert error.value.message.startswith("log")
    assert error.value.hint


def test_ranks_that_are_missing_from_the_header_are_noticed() -> None:
    lines = text("h100_2x8.txt").splitlines(keepends=True)
    with pytest.raises(BadInputError, match="is no all_reduce over 15 ranks on 2 hosts"):
        read_text("".join(line for line in lines if "Rank 15" not in line), "h100_2x8.txt")


@pytest.mark.parametrize(
    ("kind", "share"),
    [("all_reduce", 1.75), ("all_gather", 0.875), ("reduce_scatter", 0.875), ("all_to_all", 0.875), ("broadcast", 1.0)],
)
def test_shares_are_those_of_nccl_tests(kind: str, share: float) -> None:
    assert bus_share(kind, 8) == share


def test_a_csv_file_is_no_such_output() -> None:
    assert is_nccl_text(text("v100_4_old.txt"))
    assert not is_nccl_text("framework,step_time_s\n")
