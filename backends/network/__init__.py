"""The network half of the built-in simulator: topologies, collectives, and how long they take."""

from __future__ import annotations

from backends.network.builders import clustered, fully_connected, leaf_spine, rails, ring, servers, switch, torus
from backends.network.catalogue import bundled_topology, from_environment, topology_names
from backends.network.collective import ALGORITHMS, KINDS, Algorithm, Collective, CollectiveTiming, Kind
from backends.network.model import NetworkModel
from backends.network.parameters import ChunkOrder, CongestionControl, NetworkParameters
from backends.network.topology import Link, Topology

__all__ = [
    "ALGORITHMS",
    "KINDS",
    "Algorithm",
    "ChunkOrder",
    "Collective",
    "CollectiveTiming",
    "CongestionControl",
    "Kind",
    "Link",
    "NetworkModel",
    "NetworkParameters",
    "Topology",
    "bundled_topology",
    "clustered",
    "from_environment",
    "fully_connected",
    "leaf_spine",
    "rails",
    "ring",
    "servers",
    "switch",
    "topology_names",
    "torus",
]
