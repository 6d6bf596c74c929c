"""What is read from the program's lines and from ns-3's files."""

from __future__ import annotations

from pathlib import Path

from backends.astra.ns3_files import link_bytes, parse_flows, parse_pauses, parse_queues, read_record
from backends.astra.output import log_files, parse_operations, parse_output
from backends.network import switch

LINES = """\
[2026-11-30 07:51:21.453] [workload] [info] sys[1] finished, 900 cycles, exposed communication -5 cycles.
[2026-11-30 07:51:21.453] [statistics] [info] sys[1]. Post statistics processing start.
[2026-11-30 07:51:21.453] [statistics] [info] sys[1], Wall time: 900
[2026-11-30 07:51:21.453] [statistics] [info] sys[1], GPU time: 700
[2026-11-30 07:51:21.453] [statistics] [info] sys[1], CPU time: 11
[2026-11-30 07:51:21.453] [statistics] [info] sys[1], Comm time: 400
[2026-11-30 07:51:21.453] [statistics] [info] sys[1], Total compute-communication overlap: 200
[2026-11-30 07:51:21.453] [workload] [info] sys[1] peak memory usage: 1.50 MB
\x1b[31m[HardwareResource] [critical] !!!Hardware Resource sys.id=3 has unreleased nodes!!!\x1b[0m
[2026-11-30 07:51:21.453] [HardwareResource] [critical] GPU comm node id: 17
[2026-11-30 07:51:21.453] [HardwareResource] [critical] GPU comp node id: 18
[2026-11-30 07:51:21.453] [workload] [critical] For rank 0 ET node 1, communicator group 1 not found
[2026-11-30 07:51:21.453] [system] [critical] warning! a callable is removed before call Attribute num_ops not found
terminate called after throwing an instance of 'std::bad_cast'
  what():  std::bad_cast
"""


def test_figures_complaints_and_stuck_nodes() -> None:
    found = parse_output(LINES.splitlines() + LINES.splitlines())
    assert list(found.finished) == [1]
    report = found.finished[1]
    assert (report.finished_ns, report.not_computing_ns, report.wall_ns) == (900, -5, 900)
    assert (report.compute_ns, report.host_ns, report.comm_ns, report.overlap_ns) == (700, 11, 400, 200)
    assert report.peak_memory_bytes == 1.5e6
    assert found.stuck == [(3, 17), (3, 18)]
    assert found.swallowed == ["Attribute num_ops not found"]
    assert "For rank 0 ET node 1, communicator group 1 not found" in found.complaints
    assert "what():  std::bad_cast" in found.complaints


def test_operations_pair_and_lost_beginnings_are_counted() -> None:
    def line(what: str, rank: int, tick: int, node: int, name: str = "a, b") -> str:
        return f"[D] <workload>: {what},sys->id={rank}, tick={tick}, node->id={node}, node->name={name}, node->type=7"

    found, alone = parse_operations(
        [line("callback", 0, 5, 1), line("issue", 0, 5, 2), line("issue", 1, 4, 2), "noise", line("callback", 1, 9, 2)]
    )
    assert [(one.rank, one.node, one.name, one.start, one.end, one.kind) for one in found] == [(1, 2, "a, b", 4, 9, 7)]
    assert alone == 2  # rank 0: the end of node 1 without its start, the start of node 2 without its end


def test_rotated_logs_come_oldest_first(tmp_path: Path) -> None:
    for name in ("log.log", "log.1.log", "log.10.log", "log.2.log", "err.log"):
        (tmp_path / name).touch()
    assert [path.name for path in log_files(tmp_path)] == ["log.10.log", "log.2.log", "log.1.log", "log.log"]


FCT = """\
0b000001 0b000101 10000 100 1000 0 2500 2400
0b000101 0b010001 10001 100 500 10 99 90
0b000201 0b000001 100"""


def test_flows_are_between_nodes_by_address() -> None:
    found = parse_flows(FCT.splitlines())
    assert [(f.src, f.dst, f.port, f.nbytes, f.start_ns, f.duration_ns) for f in found] == [
        (0, 1, 10000, 1000, 0, 2500),
        (1, 256, 10001, 500, 10, 99),
    ]


def test_queues_keep_their_peaks_and_pauses_their_number() -> None:
    lines = ["time 100 8 j 1 3000 j 2 1500 ", "", "time 200 8 j 1 2500 j 2 9000", "time 300 9 j 1 1000", "time 400"]
    assert parse_queues(lines) == {(8, 1): 3000, (8, 2): 9000, (9, 1): 1000}
    assert parse_pauses(["5 8 1 2 1", "6 8 1 2 0", "7 3 0 1 1", "8 8 1 1 1", "9 8"]) == {8: 2, 3: 1}


def test_bytes_of_links_follow_the_routes(tmp_path: Path) -> None:
    (tmp_path / "fct.txt").write_text(
        "0b000001 0b000101 10000 100 1000 0 2500 2400\n0b000001 0b000201 10000 100 300 0 25 24\n", encoding="utf-8"
    )
    record = read_record(tmp_path)
    crossed = link_bytes(record, switch(3, 1e9, 1e-6))
    into = {name: size for name, size in crossed.items() if name.startswith("device")}
    assert into == {"device 0 -> switch 3": 1300.0}
    assert {size for name, size in crossed.items() if not name.startswith("device")} == {1000.0, 300.0}
    assert record.sent_bytes() == {0: 1300}
    assert record.as_dict()["bytes_sent"] == 1300
