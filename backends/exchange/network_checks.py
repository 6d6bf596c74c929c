"""Whether the network can carry what the traces ask for, and what the binaries make of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from backends.exchange.execution import Calls
from backends.exchange.inputs import AstraInputs
from backends.exchange.ns3_config import HPCC_RATES, rates_gbps
from backends.exchange.operations import CollectiveCall, MessageCall
from backends.exchange.phases import phases
from backends.network.parameters import CongestionControl
from runs.errors import BadInputError

Row = tuple[Literal["error", "warning", "note"], str, str, str, str]
"""Severity, where, what, hint, tool."""
_HOPS = 5
"""The telemetry header of HPCC has room for so many hops."""


def check_network(inputs: AstraInputs, calls: Calls) -> Iterator[Row]:
    """Findings about dimensions, routes, rates and thresholds."""
    if inputs.network is not None:
        yield from _analytical(inputs)
    else:
        yield from _ns3(inputs)
    yield from _routes(inputs, calls)


def _analytical(inputs: AstraInputs) -> Iterator[Row]:
    where = inputs.network_name
    for place, count in enumerate(inputs.dims):
        if count < 2:
            yield (
                "error",
                where,
                f"npus_count of dimension {place} is {count}",
                "give each dimension 2 ranks or more",
                "",
            )
    yield "note", where, "bandwidth is taken as GiB/s (7.4 % more than GB/s), as ASTRA-sim takes it", "", ""
    if len(inputs.dims) > 1:
        what = f"{len(inputs.dims)} dimensions: the congestion-aware binary takes one only"
        yield "warning", where, what, "use the congestion-unaware binary, which knows no contention", "astra-sim"


def _ns3(inputs: AstraInputs) -> Iterator[Row]:
    where, rates = inputs.network_name, rates_gbps(inputs.topology)
    if inputs.ranks < 2:
        yield "error", where, f"there are {inputs.ranks} ranks", "take two devices or more", ""
    if inputs.topology.devices > inputs.ranks:
        what = f"{inputs.topology.devices} devices, {inputs.ranks} ranks: the last devices stay idle"
        yield "note", where, what, "", ""
    yield from _uneven(inputs)
    config = inputs.ns3
    if config is None:
        return
    for name in ("KMIN_MAP", "KMAX_MAP", "PMAX_MAP"):
        missing = [rate for rate in rates if round(rate * 1e9) not in config.thresholds(name)]
        if missing:
            what = f"{name} has no entry for links of {missing[0]:g} Gb/s, on which the binary aborts"
            yield "error", config.where, what, f"add {round(missing[0] * 1e9)} and its threshold", "astra-sim-ns3"
    if config.congestion_control is CongestionControl.HPCC:
        yield from _hpcc(inputs, rates)
    elif config.cc_mode not in (0, 1, 7, 8):
        what = f"CC_MODE {config.cc_mode} is no congestion control, it means none"
        yield "warning", config.where, what, "use 0, 1 (DCQCN), 3 (HPCC), 7 (TIMELY) or 8 (DCTCP)", ""


def _uneven(inputs: AstraInputs) -> Iterator[Row]:
    """Ranks on links of different rates: those ahead crowd the port of a slow one, and the acknowledgements in it."""
    fastest: dict[int, float] = {}
    for link in inputs.topology.links:
        if link.source < inputs.ranks:
            fastest[link.source] = max(link.bandwidth, fastest.get(link.source, 0.0))
    rates = sorted({round(rate * 8 / 1e9, 6) for rate in fastest.values()})
    if len(rates) > 1:
        what = (
            f"ranks on links of {rates[0]:g} to {rates[-1]:g} Gb/s: fast ranks run ahead, and their messages before a "
            "slow one hold up its acknowledgements, which is not modelled: NS-3 took 1.5 times as long for a ring"
        )
        yield "warning", inputs.network_name, what, "run it on --backend astra-sim-ns3", "flow"


def _hpcc(inputs: AstraInputs, rates: tuple[float, ...]) -> Iterator[Row]:
    odd = [rate for rate in rates if rate not in HPCC_RATES]
    if odd:
        what = f"HPCC on links of {odd[0]:g} Gb/s, a rate that its telemetry cannot name: times come out far too long"
        yield "error", inputs.network_name, what, f"use {', '.join(map(str, HPCC_RATES))} Gb/s", "astra-sim-ns3"


def _routes(inputs: AstraInputs, calls: Calls) -> Iterator[Row]:
    """Pairs of ranks that talk and that nothing joins, the first of each collective or message."""
    tested: set[tuple[int, int]] = set()
    for where, source, target in _pairs(inputs, calls):
        if (source, target) in tested:
            continue
        tested.add((source, target))
        try:
            hops = len(inputs.topology.route(source, target))
        except BadInputError as error:
            yield "error", where, error.message, error.hint, ""
            return
        is_hpcc = inputs.ns3 is not None and inputs.ns3.congestion_control is CongestionControl.HPCC
        if is_hpcc and hops > _HOPS:
            what = f"{hops} hops from device {source} to {target}, HPCC has room for {_HOPS}"
            yield "error", inputs.network_name, what, "flatten the topology or take another CC_MODE", "astra-sim-ns3"
            return


def _pairs(inputs: AstraInputs, calls: Calls) -> Iterator[tuple[str, int, int]]:
    seen: set[tuple[object, ...]] = set()
    for rank, mine in enumerate(calls):
        for node, what in mine:
            if isinstance(what, MessageCall):
                yield inputs.where(rank, node), what.source, what.target
            elif isinstance(what, CollectiveCall) and len(what.members) > 1 and (what.kind, what.group) not in seen:
                seen.add((what.kind, what.group))
                for pair in _collective_pairs(inputs, what):
                    yield inputs.where(rank, node), *pair


def _collective_pairs(inputs: AstraInputs, call: CollectiveCall) -> Iterator[tuple[int, int]]:
    """Who sends to whom: neighbours in a ring, else everybody to everybody.

    Where the first rank reaches the others over switches, which forward, the others reach each other too.
    """
    try:
        steps = phases(inputs, call)
    except (BadInputError, IndexError):
        return
    for group, algorithm in [(group, step.algorithm) for step in steps for group in step.groups]:
        if algorithm == "ring":
            yield from zip(group, [*group[1:], group[0]], strict=True)
            continue
        yield from ((group[0], other) for other in group[1:])
        yield from ((other, group[0]) for other in group[1:])
        if any(len(inputs.topology.route(group[0], other)) == 1 for other in group[1:]):
            yield from ((a, b) for a in group for b in group if a != b)
