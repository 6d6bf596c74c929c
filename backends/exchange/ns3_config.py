"""The configuration text of ASTRA-sim's NS-3 backend: a key and its values a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

from backends.exchange.settings import is_digits, shown
from backends.network.parameters import CongestionControl
from backends.network.topology import Topology
from runs.errors import BadInputError

CC_MODES: dict[CongestionControl, int] = {
    CongestionControl.NONE: 0,
    CongestionControl.DCQCN: 1,
    CongestionControl.HPCC: 3,
    CongestionControl.TIMELY: 7,
    CongestionControl.DCTCP: 8,
}
HPCC_RATES = (25, 50, 100, 200, 400, 1200, 2400)
"""Gb/s that the telemetry header can name; any other rate silently breaks HPCC."""
LARGEST_PAYLOAD = 65_000
"""Bytes of a packet: its length in the IP header has 16 bits."""
_MAPS = ("KMAX_MAP", "KMIN_MAP", "PMAX_MAP")
_FILES = ("FLOW_FILE", "TRACE_FILE", "TRACE_OUTPUT_FILE", "FCT_OUTPUT_FILE", "PFC_OUTPUT_FILE", "QLEN_MON_FILE")
_KB_PER_GBPS = {"KMIN_MAP": 2.0, "KMAX_MAP": 8.0}
"""Thresholds grow with the rate: 800 and 3200 kB at 400 Gb/s."""
_PMAX = "0.2"
_STOCK = {
    "ENABLE_QCN": "1",
    "USE_DYNAMIC_PFC_THRESHOLD": "1",
    "PACKET_PAYLOAD_SIZE": "1000",
    "QLEN_MON_START": "0",
    "QLEN_MON_END": "20000",
    "SIMULATOR_STOP_TIME": "40000000000000.00",
    "ALPHA_RESUME_INTERVAL": "1",
    "RATE_DECREASE_INTERVAL": "4",
    "CLAMP_TARGET_RATE": "0",
    "RP_TIMER": "900",
    "EWMA_GAIN": "0.00390625",
    "FAST_RECOVERY_TIMES": "1",
    "RATE_AI": "50Mb/s",
    "RATE_HAI": "100Mb/s",
    "MIN_RATE": "100Mb/s",
    "DCTCP_RATE_AI": "1000Mb/s",
    "ERROR_RATE_PER_LINK": "0.0000",
    "L2_CHUNK_SIZE": "4000",
    "L2_ACK_INTERVAL": "1",
    "L2_BACK_TO_ZERO": "0",
    "HAS_WIN": "1",
    "GLOBAL_T": "0",
    "VAR_WIN": "1",
    "FAST_REACT": "1",
    "U_TARGET": "0.95",
    "MI_THRESH": "0",
    "INT_MULTI": "1",
    "MULTI_RATE": "0",
    "SAMPLE_FEEDBACK": "0",
    "PINT_LOG_BASE": "1.05",
    "PINT_PROB": "1.0",
    "NIC_TOTAL_PAUSE_TIME": "0",
    "RATE_BOUND": "1",
    "ACK_HIGH_PRIO": "0",
    "LINK_DOWN": "0 0 0",
    "ENABLE_TRACE": "0",
    "BUFFER_SIZE": "32",
}


_NUMBER, _RATE = (
    re.compile(r"\d+(\.\d*)?([eE]-?\d{1,2})?", re.ASCII),
    re.compile(r"\d+(\.\d+)?[KMGT]?b(ps|/s)", re.ASCII),
)
_PATTERNS = {
    key: _NUMBER if _NUMBER.fullmatch(value) else _RATE
    for key, value in _STOCK.items()
    if _NUMBER.fullmatch(value) or _RATE.fullmatch(value)
}


@dataclass(frozen=True)
class Ns3Config:
    """Keys and the text of their values, in the order of the file."""

    values: Mapping[str, str]
    where: str = "config.txt"

    @property
    def cc_mode(self) -> int:
        """The number of the congestion control; numbers that no code knows mean none."""
        return int(self.values.get("CC_MODE", "0"))

    @property
    def congestion_control(self) -> CongestionControl:
        """What `cc_mode` names; HPCC-PINT (10) has no model of its own here and counts as HPCC."""
        if self.cc_mode == 10:
            return CongestionControl.HPCC
        return {mode: control for control, mode in CC_MODES.items()}.get(self.cc_mode, CongestionControl.NONE)

    @property
    def payload_bytes(self) -> int:
        """Payload of a packet."""
        return int(self.values.get("PACKET_PAYLOAD_SIZE", "1000"))

    @property
    def has_window(self) -> bool:
        """Whether senders keep at most a window on the way."""
        return self.values.get("HAS_WIN", "0") != "0"

    def thresholds(self, name: str) -> dict[int, str]:
        """Of `KMIN_MAP`, `KMAX_MAP` or `PMAX_MAP`: link rate in bit/s to the value's text."""
        words = self.values.get(name, "0").split()
        return {int(rate): value for rate, value in zip(words[1::2], words[2::2], strict=True)}


def read_ns3_config(path: Path) -> Ns3Config:
    """A configuration text.

    Raises:
        BadInputError: the file cannot be read, a key has no value or stands twice, or a figure is none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} cannot be read: {error}", "name a text file that exists") from error
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        key, _, value = line.strip().partition(" ")
        if not key:
            continue
        if not value.strip() or key in values:
            raise BadInputError(f"{path}:{number}: {key} has no value or two", "write a key and its value a line")
        values[key] = value.strip()
    config = Ns3Config(values, str(path))
    _check_figures(config)
    return config


def _check_figures(config: Ns3Config) -> None:
    for key in ("CC_MODE", "PACKET_PAYLOAD_SIZE", "HAS_WIN", "VAR_WIN"):
        if not is_digits(config.values.get(key, "0")):
            raise BadInputError(f"{config.where}: {key} is {shown(config.values[key])}", "give a whole number")
    if not 1 <= config.payload_bytes <= LARGEST_PAYLOAD:
        raise BadInputError(
            f"{config.where}: PACKET_PAYLOAD_SIZE is {config.payload_bytes}", f"give 1 to {LARGEST_PAYLOAD} bytes"
        )
    for key, pattern in _PATTERNS.items():
        if not pattern.fullmatch(config.values.get(key, _STOCK[key])):
            hint = f"write it as in {key} {_STOCK[key]}"
            raise BadInputError(f"{config.where}: {key} is {shown(config.values[key])}", hint)
    _check_thresholds(config)


def _check_thresholds(config: Ns3Config) -> None:
    for name in _MAPS:
        try:
            count = int(config.values.get(name, "0").split()[0])
            found = config.thresholds(name)
            complete = len(found) == count and all(0 < float(value) < inf for value in found.values())
        except ValueError:
            complete = False
        if not complete:
            raise BadInputError(
                f"{config.where}: {name} is {shown(config.values[name])}",
                "write the count, then a rate and a value for each",
            )
    lows, highs, chances = (config.thresholds(name) for name in ("KMIN_MAP", "KMAX_MAP", "PMAX_MAP"))
    for rate in lows.keys() & highs.keys():
        if not float(lows[rate]) < float(highs[rate]):
            raise BadInputError(
                f"{config.where}: KMIN_MAP is not below KMAX_MAP at {rate} bit/s", "correct one of them"
            )
    if bad := [rate for rate, chance in chances.items() if float(chance) > 1]:
        raise BadInputError(f"{config.where}: PMAX_MAP is above 1 at {bad[0]} bit/s", "give a probability")


def write_ns3_config(path: Path, config: Ns3Config) -> None:
    """Write a configuration text."""
    path.write_text("".join(f"{key} {value}\n" for key, value in config.values.items()), encoding="utf-8")


def rates_gbps(topology: Topology) -> tuple[float, ...]:
    """The link rates of a topology in Gb/s, ascending."""
    return tuple(sorted({round(link.bandwidth * 8 / 1e9, 6) for link in topology.links}))


def stock_config(
    topology_file: str, rates: Iterable[float], control: CongestionControl, payload_bytes: int, folder: str = "."
) -> Ns3Config:
    """The stock configuration for links of `rates` (Gb/s), with a threshold for each of them.

    Output files lie in `folder`. HPCC stamps times as the stock example does; its `RATE_AI` and `RATE_HAI` are those of
    the example for every control.
    """
    files = {key: f"{folder}/{name}" for key, name in zip(_FILES, _NAMES, strict=True)}
    speeds = sorted({round(rate * 1e9) for rate in rates})
    maps = {name: _map(speeds, name) for name in _MAPS}
    head = {"TOPOLOGY_FILE": topology_file, **files, "CC_MODE": str(CC_MODES[control])}
    return Ns3Config({**_STOCK, **head, "PACKET_PAYLOAD_SIZE": str(payload_bytes), **maps})


_NAMES = ("flow.txt", "trace.txt", "mix.tr", "fct.txt", "pfc.txt", "qlen.txt")


def _map(speeds: list[int], name: str) -> str:
    per = _KB_PER_GBPS.get(name)
    values = [_PMAX if per is None else str(max(1, round(speed / 1e9 * per))) for speed in speeds]
    return " ".join([str(len(speeds)), *(f"{speed} {value}" for speed, value in zip(speeds, values, strict=True))])
