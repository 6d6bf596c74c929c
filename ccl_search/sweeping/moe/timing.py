"""Seconds of the study's collectives on its networks, each asked as a question that says all its answer depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from backends.network import Collective, CongestionControl, NetworkModel, NetworkParameters, Topology, bundled_topology
from ccl_search.sweeping.moe.definitions import Groups, Setting, study
from runs import catalogue

_LOCAL = "roce-none"

Factors = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Question:
    """A collective on a network, without what its time does not depend on: equal questions have one answer.

    gbps, latency: factors on classes of cables that this network has. parameters: of `NetworkParameters`, those that
    its mode looks at. The answer is the time of `collective` times `repeat`.
    """

    topology: int
    mode: str
    gbps: Factors
    latency: Factors
    parameters: Factors
    collective: Collective
    repeat: int = 1


def question(topology: int, mode: str, collective: Collective, setting: Setting) -> Question:
    """What is to be known for `collective`, by all its groups at once, on `topology` in network mode `mode`.

    Groups that never leave their server take the same time in every mode: local flows bypass congestion feedback. The
    chunks of a ring all-to-all follow each other and take the sum of their times, so one chunk is asked for: much less
    work than all in one go.
    """
    chosen = _LOCAL if _is_local(topology, collective.groups) else mode
    classes = _classes(topology)
    gbps, latency = (tuple((k, f) for k, f in pairs if k in classes) for pairs in (setting.gbps, setting.latency))
    parameters, repeat = dict(setting.network), 1
    if collective.kind == "all_to_all" and collective.algorithm == "ring":
        repeat = int(parameters.get("chunks", study().data["network"]["chunks"]))
        collective = replace(collective, nbytes=collective.nbytes / repeat)
        parameters["chunks"] = 1
    marking = chosen.endswith(CongestionControl.DCQCN.value)
    kept = tuple((name, value) for name, value in parameters.items() if marking or not name.startswith("ecn_"))
    return Question(topology, chosen, gbps, latency, kept, collective, repeat)


def answer(asked: Question) -> float:
    """Seconds; kept in this process, with those of everything asked of the same network."""
    network = _network(asked.topology, asked.mode, asked.gbps, asked.latency, asked.parameters)
    return asked.repeat * network.time(asked.collective).seconds


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
