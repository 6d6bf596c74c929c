"""Topologies by name, and the topology of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from math import isqrt
from typing import Any

import yaml

from backends.network.builders import clustered, rails, servers, torus
from backends.network.topology import Topology
from runs.environment import Environment
from runs.errors import BadInputError

_GIGABIT = 1e9 / 8
_MICRO = 1e-6


@cache
def _table() -> dict[str, dict[str, Any]]:
    text = resources.files("runs.catalogue").joinpath("data", "topologies.yaml").read_text(encoding="utf-8")
    table: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return table


def topology_names() -> tuple[str, ...]:
    """Names of the bundled topologies that need no environment."""
    return tuple(name for name, entry in _table().items() if entry["kind"] == "servers")


def bundled_topology(
    name: str, gbps: Mapping[str, float] | None = None, latency_us: Mapping[str, float] | None = None
) -> Topology:
    """The bundled topology `name`; `gbps` and `latency_us` replace the figures of classes of cables (`pcie`, `upi`, …).

    Raises:
        BadInputError: there is none of that name, or it has no such class of cables.
    """
    if name not in topology_names():
        raise BadInputError(f"no bundled topology is called {name!r}", f"bundled: {', '.join(topology_names())}")
    entry = _table()[name]
    classes: dict[str, list[float]] = {kind: list(figures) for kind, figures in entry["classes"].items()}
    for place, changes in enumerate((gbps or {}, latency_us or {})):
        for kind, value in changes.items():
            if kind not in classes:
                raise BadInputError(f"{name} has no cables of class {kind!r}", f"it has: {', '.join(classes)}")
            classes[kind][place] = value
    figures = {kind: (rate * _GIGABIT, delay * _MICRO) for kind, (rate, delay) in classes.items()}
    cables = [(first, second, kind) for first, second, kind in entry["cables"]]
    return servers(name, entry["servers"], entry["devices"], cables, figures, entry.get("mesh", ""))


def from_environment(env: Environment) -> Topology:
    """The network of `env`, by its named topology; nodes behind a switch with their NICs on one core where it has none.

    A latency of the environment is from device to device, so each cable on the way gets its part of it. Bandwidths
    are nominal; a calibration scales them.

    Raises:
        BadInputError: the environment states no bandwidth that is needed, or a bundled topology of another size.
    """
    entry = _table().get(env.topology, {"kind": "switched-nodes"})
    if entry["kind"] == "servers":
        return _bundled_for(env)
    scale_up = _figures(env, "intra_node_gbps", env.intra_node_gbps, env.intra_node_latency_us)
    if entry["kind"] == "torus-2d":
        return torus(_near_square(env.total_xpus), *scale_up)
    per_node = min(env.xpus_per_node, env.total_xpus)
    if env.num_nodes == 1:
        return clustered(1, per_node, scale_up, scale_up, mesh=entry["kind"] == "mesh-nodes")
    scale_out = _figures(env, "inter_node_gbps", env.inter_node_gbps, env.inter_node_latency_us)
    if entry["kind"] == "rails" and env.nics_per_node == per_node:
        return rails(env.num_nodes, per_node, scale_up, scale_out)
    mesh = entry["kind"] == "mesh-nodes"
    return clustered(env.num_nodes, per_node, scale_up, scale_out, nics=env.nics_per_node, mesh=mesh)


def _bundled_for(env: Environment) -> Topology:
    found = bundled_topology(env.topology)
    if found.devices != env.total_xpus:
        raise BadInputError(
            f"environment {env.name} has {env.total_xpus} devices, its topology {env.topology} {found.devices}",
            "name another topology, or leave it out",
        )
    return found


def _figures(env: Environment, field: str, gbps: float | None, latency_us: float) -> tuple[float, float]:
    if gbps is None or gbps <= 0:
        raise BadInputError(f"environment {env.name}: {field} is {gbps}", "state it in Gb/s, above zero")
    return gbps * _GIGABIT, latency_us * _MICRO


def _near_square(devices: int) -> tuple[int, int]:
    """The most square factor pair, the smaller first."""
    short = next(size for size in range(isqrt(devices), 0, -1) if devices % size == 0)
    return short, devices // short
