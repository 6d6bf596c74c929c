"""How fast a user's ns-3 is: builds differ several times in speed (asserts, optimisation), and so do machines."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path

from backends.astra.cost import Speed
from backends.astra.driver import drive
from backends.astra.process import Limits
from backends.astra.programs import Program
from backends.astra.staging import RunFiles
from backends.exchange.chakra import CommKind, EtNode, ExecutionTrace, NodeKind, write_trace
from backends.exchange.inputs import trace_path
from backends.exchange.ns3_config import stock_config, write_ns3_config
from backends.exchange.system import SystemConfig, write_system
from backends.exchange.values import boolean, int64
from backends.network.parameters import CongestionControl
from runs.errors import CclSearchError

_RANKS, _GBPS, _PAYLOAD = 16, 400, 1000
_NS_LINK = 500
_LIMIT_S = 60.0
_LEAST_S = 0.05


@dataclass(frozen=True)
class _Probe:
    """An all-to-all of so many bytes on one switch."""

    nbytes: int

    @property
    def packet_hops(self) -> int:
        """Its packets at both links, and their acknowledgements."""
        return 4 * _RANKS * (_RANKS - 1) * ceil(self.nbytes / _RANKS / _PAYLOAD)


_SMALL, _LARGE = _Probe(16 * _PAYLOAD), _Probe(1 << 20)


@cache
def speed_of(program: Program) -> Speed:
    """The speed of `program`, from two runs of about a second; the stock build's where they fail or tell nothing."""
    try:
        small, large = (_seconds(program, probe) for probe in (_SMALL, _LARGE))
    except (CclSearchError, OSError):
        return Speed()
    if large - small < _LEAST_S:
        return Speed()
    return Speed(1e6 * (large - small) / (_LARGE.packet_hops - _SMALL.packet_hops), "measured on this program")


def _seconds(program: Program, probe: _Probe) -> float:
    """Processor time of a run; of a container, whose processor time is not that of its command, the time it took."""
    with tempfile.TemporaryDirectory(prefix="ccl-astra-probe-") as scratch:
        run = drive(_files(Path(scratch), probe.nbytes), program, "ns3", Limits(wall_s=_LIMIT_S))
    run.require()
    spent = None if program.is_container else run.ended.cpu_seconds
    return run.ended.seconds if spent is None else spent


def _files(folder: Path, nbytes: int) -> RunFiles:
    facts = {"is_cpu_op": boolean(False), "comm_type": int64(CommKind.ALL_TO_ALL), "comm_size": int64(nbytes)}
    trace = ExecutionTrace(nodes=(EtNode(1, "probe", NodeKind.COMM_COLL, (), (), facts, 0),))
    for rank in range(_RANKS):
        write_trace(trace_path(folder / "probe", rank), trace)
    system = {
        "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1, "all-to-all-implementation": ["direct"], "all-reduce-implementation": ["ring"],
        "all-gather-implementation": ["ring"], "reduce-scatter-implementation": ["ring"], "local-mem-bw": 1600,
    }  # fmt: skip
    write_system(folder / "system.json", SystemConfig(system))
    write_ns3_config(folder / "config.txt", stock_config("topology.txt", (_GBPS,), CongestionControl.NONE, _PAYLOAD))
    links = "".join(f"{rank} {_RANKS} {_GBPS}Gbps {_NS_LINK / 1e6}ms 0\n" for rank in range(_RANKS))
    (folder / "topology.txt").write_text(f"{_RANKS + 1} 1 {_RANKS}\n{_RANKS}\n{links}", encoding="utf-8")
    return RunFiles(
        folder / "probe", _RANKS, folder / "system.json", folder / "config.txt", folder / "topology.txt", (_RANKS,)
    )
