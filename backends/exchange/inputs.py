"""All inputs of one ASTRA-sim run, read and put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path

from backends.exchange.chakra import EtNode, ExecutionTrace, read_trace
from backends.exchange.ns3_config import Ns3Config, read_ns3_config
from backends.exchange.settings import (
    Groups,
    RemoteMemory,
    read_groups,
    read_logical_topology,
    read_remote_memory,
)
from backends.exchange.system import SystemConfig, read_system
from backends.network.formats import AstraNetwork, read_astra_network, read_ns3_topology
from backends.network.topology import Topology
from runs.errors import BadInputError


@dataclass(frozen=True)
class AstraInputs:
    """What a run of ASTRA-sim reads.

    `traces` hold one trace a rank, in rank order. `dims` are the logical dimensions, first fastest; their product is
    the number of ranks. `network` is there for the analytical backend, absent for NS-3, where `topology` is the
    physical one. `surplus` counts trace files beyond the last rank, which the binaries do not read.
    """

    prefix: Path
    traces: tuple[ExecutionTrace, ...]
    system: SystemConfig
    dims: tuple[int, ...]
    topology: Topology
    network: AstraNetwork | None = None
    groups: Groups = field(default_factory=dict)
    groups_path: Path | None = None
    memory: RemoteMemory | None = None
    ns3: Ns3Config | None = None
    surplus: int = 0
    network_path: Path | None = None

    @property
    def network_name(self) -> str:
        """What messages call the network."""
        return str(self.network_path or self.topology.name)

    @property
    def ranks(self) -> int:
        """How many ranks run."""
        return len(self.traces)

    @property
    def is_ns3(self) -> bool:
        """Whether the inputs are those of the NS-3 backend."""
        return self.network is None

    @cached_property
    def members(self) -> dict[str, frozenset[int]]:
        """The ranks of each group, to look one up."""
        return {name: frozenset(ranks) for name, ranks in self.groups.items()}

    @cached_property
    def highest(self) -> dict[str, int]:
        """The highest rank of each group."""
        return {name: max(ranks) for name, ranks in self.groups.items()}

    def trace_path(self, rank: int) -> Path:
        """The trace file of a rank."""
        return trace_path(self.prefix, rank)

    def where(self, rank: int, node: EtNode) -> str:
        """What messages call a node."""
        return f"{self._names[rank]}: node {node.id} ({node.name})"

    @cached_property
    def _names(self) -> list[str]:
        return [str(self.trace_path(rank)) for rank in range(self.ranks)]


def trace_path(prefix: Path, rank: int) -> Path:
    """The trace file of a rank: `PREFIX.RANK.et`."""
    return prefix.with_name(f"{prefix.name}.{rank}.et")


def load_inputs(
    et_prefix: Path,
    system: Path,
    *,
    network: Path | None = None,
    physical: Path | None = None,
    comm_group: Path | None = None,
    remote_memory: Path | None = None,
    logical: Path | None = None,
    ns3_config: Path | None = None,
) -> AstraInputs:
    """Read the inputs of a run: `network` (network.yml) or `physical` (NS-3 topology), and the traces they ask for.

    Without `logical` an NS-3 run has one dimension of all devices. What can be read but not run is for
    `validate.check` to find.

    Raises:
        BadInputError: a file is missing or malformed, the network is none, or the dimensions do not fit the topology.
    """
    if (network is None) == (physical is None):
        raise BadInputError("a run needs --network or --physical-topology, one of them", "name the network file")
    config = read_system(system)
    groups = read_groups(comm_group) if comm_group is not None else {}
    memory = read_remote_memory(remote_memory) if remote_memory is not None else None
    described = read_astra_network(_text(network), str(network)) if network is not None else None
    if described is not None:
        dims = tuple(dimension.count for dimension in described.dimensions)
        traces = _traces(et_prefix, prod(dims))
        topology = described.topology()
    else:
        topology = read_ns3_topology(_text(physical), str(physical))
        dims = _dims(logical, topology)
        traces = _traces(et_prefix, prod(dims))
    surplus = _count(et_prefix, len(traces))
    settings = read_ns3_config(ns3_config) if ns3_config is not None else None
    return AstraInputs(
        et_prefix, traces, config, dims, topology, described, groups, comm_group, memory, settings, surplus,
        network or physical,
    )  # fmt: skip


def _text(path: Path | None) -> str:
    assert path is not None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} cannot be read: {error}", "name a text file that exists") from error


def _dims(logical: Path | None, topology: Topology) -> tuple[int, ...]:
    dims = read_logical_topology(logical) if logical is not None else (topology.devices,)
    if prod(dims) > topology.devices:
        raise BadInputError(
            f"{logical}: {prod(dims)} ranks, but {topology.name} has {topology.devices} devices",
            "make the product of logical-dims the number of devices",
        )
    return dims


def _traces(prefix: Path, ranks: int) -> tuple[ExecutionTrace, ...]:
    for rank in range(ranks):
        path = trace_path(prefix, rank)
        if not path.is_file():
            found = _count(prefix, 0)
            raise BadInputError(
                f"{path} is missing: the network has {ranks} ranks, there are traces of {found}",
                "name a prefix with a file PREFIX.RANK.et for every rank from 0",
            )
    return tuple(read_trace(trace_path(prefix, rank)) for rank in range(ranks))


def _count(prefix: Path, start: int) -> int:
    """How many trace files there are from rank `start` on, without a gap."""
    rank = start
    while trace_path(prefix, rank).is_file():
        rank += 1
    return rank - start
