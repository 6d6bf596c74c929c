"""What the network model assumes besides the topology: packets, windows, software overheads, the congestion control."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf

from runs.errors import BadInputError

DETAILED = 1_000_000
"""The packet budget of a single answer that should be as close to NS-3 as the model comes."""


class CongestionControl(StrEnum):
    """How senders react to queues (docs/network.md states each model)."""

    NONE = "none"
    DCQCN = "dcqcn"
    HPCC = "hpcc"
    TIMELY = "timely"
    DCTCP = "dctcp"


class ChunkOrder(StrEnum):
    """How the chunks of one collective follow each other.

    `pipelined`: each connection sends its chunks in order, any number on the way (communication libraries).
    `serial`: at most `active_chunks` at a time, sharing the links (ASTRA-sim).
    """

    PIPELINED = "pipelined"
    SERIAL = "serial"


@dataclass(frozen=True)
class NetworkParameters:
    """Defaults describe a communication library on lossless links; `ns3()` the stock ASTRA-sim on NS-3.

    payload_bytes, header_bytes: of one packet (RoCE: MTU 4096; Ethernet 18 + IP 20 + UDP 8 + BTH 12 + ICRC 4 bytes).
    ack_bytes: one acknowledgement a packet, on the way back; 0 where they are too few to matter.
    launch_seconds: software cost of one collective, once. step_seconds: software cost of each message on the sender.
    reduce_bandwidth: bytes/s of local memory; reducing a message of m bytes takes 3 m / reduce_bandwidth (two reads,
    one write). serial chunks: `chunks` parts a collective, `active_chunks` at a time; pipelined: parts of about
    `chunk_bytes`, at most `chunks` of them.
    wait_for_ack: a message counts as delivered when its last acknowledgement is back at the sender (as NS-3 reports).
    tick: clock resolution in seconds that serialisation times are rounded to, 0 for none.
    flow_per_message: every message is a flow of its own for ECMP, else all of a pair are one flow (a connection).
    window: a sender has at most the bandwidth-delay product of its pair on the way (`HAS_WIN`).
    ecn_min, ecn_max, ecn_probability: queue in seconds of the port's rate at which marking begins, at which all is
    marked, and the probability just below that (`KMIN`, `KMAX`, `PMAX`: 800 kB, 3200 kB at 400 Gb/s, 0.2).
    cut_interval, rate_timer: seconds between two cuts of a DCQCN sender, and after the last one until it speeds up.
    alpha_gain, alpha_interval: of the average of marks that says how deep a DCQCN cut is (`EWMA_GAIN`, seconds).
    target_load, rate_step, lowest_rate: load that HPCC aims at (`U_TARGET`), bytes/s that a sender adds at a time and
    never goes below (`RATE_AI`, `MIN_RATE`).
    packet_budget: packets times hops that may be simulated one by one where HPCC or DCQCN senders crowd a port behind
    their hosts; the budget decides how finely alike messages are told apart, and where even one of each is too much
    they are fluids, as always with 0. About 50 000 take a second.
    """

    payload_bytes: int = 4096
    header_bytes: int = 62
    ack_bytes: int = 0
    launch_seconds: float = 5e-6
    step_seconds: float = 0.0
    reduce_bandwidth: float = inf
    chunk_order: ChunkOrder = ChunkOrder.PIPELINED
    chunk_bytes: float = 512 * 1024
    chunks: int = 16
    active_chunks: int = 1
    wait_for_ack: bool = False
    tick: float = 0.0
    flow_per_message: bool = False
    window: bool = False
    congestion_control: CongestionControl = CongestionControl.NONE
    ecn_min: float = 16e-6
    ecn_max: float = 64e-6
    ecn_probability: float = 0.2
    cut_interval: float = 4e-6
    rate_timer: float = 900e-6
    alpha_gain: float = 1 / 256
    alpha_interval: float = 1e-6
    target_load: float = 0.95
    rate_step: float = 6.25e6
    lowest_rate: float = 12.5e6
    packet_budget: int = 0

    def __post_init__(self) -> None:
        lowest = {"payload_bytes": 1, "header_bytes": 0, "ack_bytes": 0, "chunks": 1, "active_chunks": 1}
        for name, least in lowest.items():
            if getattr(self, name) < least:
                raise BadInputError(f"network parameter {name} is {getattr(self, name)}", f"it is at least {least}")
        for name in ("launch_seconds", "step_seconds", "tick"):
            if not 0 <= getattr(self, name) < inf:
                raise BadInputError(f"network parameter {name} is {getattr(self, name)}", "give zero or more seconds")
        if not 0 < self.ecn_min < self.ecn_max or not 0 < self.ecn_probability <= 1:
            raise BadInputError("ECN thresholds or probability are out of order", "0 < ecn_min < ecn_max, 0 < p <= 1")
        if not self.reduce_bandwidth > 0 or not self.chunk_bytes > 0:
            raise BadInputError("reduce_bandwidth and chunk_bytes must be above zero", "leave them at their defaults")

    @classmethod
    def ns3(
        cls,
        congestion_control: CongestionControl = CongestionControl.NONE,
        payload_bytes: int = 1000,
        packet_budget: int = 0,
    ) -> NetworkParameters:
        """The stock ASTRA-sim on NS-3: packets, windows and chunking of its example configuration.

        Header: Ethernet/PPP 14 + IP 20 + UDP 8 + sequence 6 bytes, plus the in-band telemetry of HPCC (42) or the
        time stamp of TIMELY (8); acknowledgements 60 bytes, 88 with telemetry. Endpoint delay 10 ns, local memory
        1600 GB/s, one chunk, times in whole nanoseconds.
        """
        telemetry = {CongestionControl.HPCC: 42, CongestionControl.TIMELY: 8}.get(congestion_control, 0)
        base = cls(
            payload_bytes=payload_bytes,
            header_bytes=48 + telemetry,
            ack_bytes=88 if congestion_control is CongestionControl.HPCC else 60,
            launch_seconds=1e-8,
            step_seconds=1e-8,
            reduce_bandwidth=1.6e12,
            chunk_order=ChunkOrder.SERIAL,
            chunks=1,
            wait_for_ack=True,
            tick=1e-9,
            flow_per_message=True,
            window=True,
            packet_budget=packet_budget,
        )
        return replace(base, congestion_control=congestion_control)

    def marking(self, queue: float) -> float:
        """Probability that a packet is marked that leaves `queue` seconds behind it at a port (RED)."""
        if queue >= self.ecn_max:
            return 1.0
        return max(queue - self.ecn_min, 0.0) * self.ecn_probability / (self.ecn_max - self.ecn_min)

    @classmethod
    def analytical(cls) -> NetworkParameters:
        """ASTRA-sim's congestion-aware backend: whole messages stored and forwarded, no headers, whole nanoseconds."""
        return cls(
            payload_bytes=2**40,
            header_bytes=0,
            launch_seconds=1e-8,
            step_seconds=1e-8,
            reduce_bandwidth=1.6e12,
            chunk_order=ChunkOrder.SERIAL,
            chunks=1,
            tick=1e-9,
        )
