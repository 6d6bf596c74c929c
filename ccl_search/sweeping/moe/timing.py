"""Seconds of the study's collectives on its networks; every answer is kept in the process that asked."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from backends.network import Collective, CongestionControl, NetworkModel, NetworkParameters, Topology, bundled_topology
from ccl_search.sweeping.moe.definitions import Groups, Setting, study
from runs import catalogue

_LOCAL = "roce-none"

Factors = tuple[tuple[str, float], ...]


def seconds(topology: int, mode: str, collective: Collective, setting: Setting) -> float:
    """How long all groups of `collective` take, run at once on `topology` in network mode `mode`.

    Groups that never leave their server take the same time in every mode: local flows bypass congestion feedback.
    """
    chosen = _LOCAL if _is_local(topology, collective.groups) else mode
    if collective.kind == "all_to_all" and collective.algorithm == "ring":
        return _chunk_by_chunk(topology, chosen, collective, setting)
    return _model(topology, chosen, setting, setting.network).time(collective).seconds


def _model(topology: int, mode: str, setting: Setting, parameters: Factors) -> NetworkModel:
    """The network model, one object wherever a setting changes nothing that this network has."""
    classes = _classes(topology)
    gbps, latency = (tuple((k, f) for k, f in pairs if k in classes) for pairs in (setting.gbps, setting.latency))
    marking = mode.endswith(CongestionControl.DCQCN.value)
    kept = tuple((name, value) for name, value in parameters if marking or not name.startswith("ecn_"))
    return _network(topology, mode, gbps, latency, kept)


def _chunk_by_chunk(topology: int, mode: str, collective: Collective, setting: Setting) -> float:
    """Chunks that follow each other take the sum of their times; much less work than simulating them in one go."""
    chunks = int(dict(setting.network).get("chunks", study().data["network"]["chunks"]))
    part = replace(collective, nbytes=collective.nbytes / chunks)
    return chunks * _model(topology, mode, setting, (*setting.network, ("chunks", 1))).time(part).seconds


@lru_cache(maxsize=256)
def _is_local(topology: int, groups: Groups) -> bool:
    """Whether no pair of any group talks through the core between servers."""
    network = _topology(topology, "roce", (), ())
    outside = {node for node, name in network.labels.items() if name.startswith("core")}
    return not any(
        network.links[link].target in outside
        for group in groups
        for source in group
        for target in group
        if source != target
        for link in network.route(source, target)
    )


@lru_cache(maxsize=256)
def _network(topology: int, mode: str, gbps: Factors, latency: Factors, parameters: Factors) -> NetworkModel:
    transport, _, control = mode.partition("-")
    what = study().data["network"]
    usual: dict[str, float] = {"chunks": what["chunks"], "active_chunks": what["active_chunks"]}
    changes: dict[str, Any] = {**usual, "reduce_bandwidth": what["reduce_gb_s"] * 1e9, **dict(parameters)}
    base = NetworkParameters.ns3(CongestionControl(control), what["payload_bytes"])
    return NetworkModel(_topology(topology, transport, gbps, latency), replace(base, **changes))


def _topology(number: int, transport: str, gbps: Factors, latency: Factors) -> Topology:
    """The server topology with its classes of cables changed by these factors."""
    classes = _classes(number)
    rates = {kind: classes[kind][0] * factor for kind, factor in gbps}
    delays = {kind: classes[kind][1] * factor for kind, factor in latency}
    if "nic" in classes:
        delays["nic"] = study().data["network"]["latency_us"][transport]
    return bundled_topology(f"moe-{number}", rates, delays)


def _classes(number: int) -> dict[str, list[float]]:
    """Classes of cables of a topology: Gb/s and microseconds of each."""
    found: dict[str, list[float]] = catalogue.data("topologies")[f"moe-{number}"]["classes"]
    return found
