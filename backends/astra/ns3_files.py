"""What ns-3 leaves beside its log: finished flows (fct.txt), pauses (pfc.txt) and queue lengths (qlen.txt)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.astra.output import read_lines
from backends.network.topology import Topology

FCT_FILE, PFC_FILE, QLEN_FILE = "fct.txt", "pfc.txt", "qlen.txt"
_FIRST_PORT = 10_000
_QUEUE = re.compile(r"j (\d+) (\d+)")


@dataclass(frozen=True, slots=True)
class FinishedFlow:
    """One message: ranks, source port, payload bytes, start and duration in ns, and the duration it had alone."""

    src: int
    dst: int
    port: int
    nbytes: int
    start_ns: int
    duration_ns: int
    ideal_ns: int


@dataclass(frozen=True)
class NetworkRecord:
    """What the network did. `queue_peaks`: bytes by (switch, port), of the queues ever above 1000 bytes.

    `pauses` counts priority-flow-control pauses by node.
    """

    flows: tuple[FinishedFlow, ...]
    queue_peaks: dict[tuple[int, int], int]
    pauses: dict[int, int]

    def sent_bytes(self) -> dict[int, int]:
        """Payload that each rank sent."""
        total: Counter[int] = Counter()
        for flow in self.flows:
            total[flow.src] += flow.nbytes
        return dict(sorted(total.items()))

    def as_dict(self) -> dict[str, Any]:
        """Plain data: totals, the highest queue of each switch port, pauses by node."""
        times = sorted(flow.duration_ns for flow in self.flows)
        return {
            "flows": len(self.flows),
            "bytes_sent": sum(flow.nbytes for flow in self.flows),
            "fct_ns": {"min": times[0], "p50": times[len(times) // 2], "max": times[-1]} if times else None,
            "queue_peak_bytes": {f"switch {s} port {p}": size for (s, p), size in sorted(self.queue_peaks.items())},
            "pauses": {f"node {node}": count for node, count in sorted(self.pauses.items())},
        }


def read_record(folder: Path) -> NetworkRecord:
    """Everything in the three files of a run folder; what is missing counts as nothing."""
    return NetworkRecord(
        tuple(parse_flows(read_lines(folder / FCT_FILE))),
        parse_queues(read_lines(folder / QLEN_FILE)),
        parse_pauses(read_lines(folder / PFC_FILE)),
    )


def parse_flows(lines: Iterable[str]) -> list[FinishedFlow]:
    """Lines of eight fields; half-written ones are left out.

    A node's address is 11.h.l.1 with its number h·256 + l.
    """
    found = []
    for line in lines:
        words = line.split()
        if len(words) != 8 or not all(word.isdigit() for word in words[2:]):
            continue
        src, dst = ((int(word, 16) >> 8) & 0xFFFF for word in words[:2])
        nbytes, start, took, ideal = (int(word) for word in words[4:])
        found.append(FinishedFlow(src, dst, int(words[2]), nbytes, start, took, ideal))
    return found


def parse_queues(lines: Iterable[str]) -> dict[tuple[int, int], int]:
    """The highest length of each queue, in bytes, by (switch, port)."""
    peaks: dict[tuple[int, int], int] = defaultdict(int)
    for line in lines:
        words = line.split(maxsplit=3)
        if len(words) < 4 or words[0] != "time" or not words[2].isdigit():
            continue
        for port, size in _QUEUE.findall(words[3]):
            key = int(words[2]), int(port)
            peaks[key] = max(peaks[key], int(size))
    return dict(peaks)


def parse_pauses(lines: Iterable[str]) -> dict[int, int]:
    """Pauses by node: lines `time node kind interface type`, where type 1 stops the sender and 0 lets it go on."""
    rows = [line.split() for line in lines]
    return dict(Counter(int(row[1]) for row in rows if len(row) == 5 and row[1].isdigit() and row[4] == "1"))


def link_bytes(record: NetworkRecord, topology: Topology) -> dict[str, float]:
    """Payload that crossed each link, in bytes by its name: the flows on the routes that their ports choose."""
    total: Counter[int] = Counter()
    for flow in record.flows:
        for link in topology.route(flow.src, flow.dst, max(0, flow.port - _FIRST_PORT)):
            total[link] += flow.nbytes
    return {topology.link_label(link): float(nbytes) for link, nbytes in sorted(total.items())}
