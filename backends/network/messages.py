"""The messages of a schedule, flat, with their routes: the arrays that folding, sharing and accounting work on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from backends.network.algorithms import Stage
from backends.network.folding import Integers, Traffic
from backends.network.packets import on_the_wire
from backends.network.parameters import NetworkParameters
from backends.network.routing import Ways
from backends.network.sharing import Floats
from backends.network.topology import Link, Topology

Lanes = list[list[int]]


@dataclass(frozen=True, eq=False)
class Messages:
    """The messages of all stages; `backs` are the ways of their acknowledgements, `links` what any of both crosses."""

    stage: Integers
    source: Integers
    target: Integers
    nbytes: Floats
    ways: Ways
    backs: Ways
    links: Integers

    @cached_property
    def routes(self) -> list[tuple[int, ...]]:
        return self.ways.each()

    @cached_property
    def back_routes(self) -> list[tuple[int, ...]]:
        return self.backs.each()


def flatten(stages: Sequence[Stage], topology: Topology, parameters: NetworkParameters) -> Messages:
    """With `flow_per_message` each message of a pair is a flow of its own, in the order of the stages."""
    sources, targets, nbytes = _columns(stages)
    sizes = [len(stage.messages) for stage in stages]
    stage = np.repeat(np.arange(len(stages), dtype=np.int64), sizes)
    flows = _numbered(sources, targets) if parameters.flow_per_message else np.zeros_like(sources)
    ways = topology.ways(sources, targets, flows)
    backs = ways.back(topology.reverses)
    used = np.zeros(len(topology.links), dtype=np.bool_)
    used[ways.links] = used[backs.links] = True
    return Messages(stage, sources, targets, nbytes, ways, backs, np.flatnonzero(used))


def _columns(stages: Sequence[Stage]) -> tuple[Integers, Integers, Floats]:
    """Source, target and bytes of every message."""
    rows = chain.from_iterable(chain.from_iterable(stage.messages for stage in stages))
    table = np.fromiter(rows, dtype=np.float64).reshape(-1, 3)
    return table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), np.ascontiguousarray(table[:, 2])


def _numbered(sources: Integers, targets: Integers) -> Integers:
    """How many earlier messages each has between its two ends."""
    pairs = (sources << np.int64(32)) + targets
    order = np.argsort(pairs, kind="stable")
    begins = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    lengths = np.diff(begins, append=len(pairs))
    numbers = np.empty_like(pairs)
    numbers[order] = np.arange(len(pairs)) - np.repeat(begins, lengths)
    return numbers


def expand(
    stages: list[Stage], lanes: Lanes, topology: Topology, parameters: NetworkParameters
) -> tuple[list[Stage], Lanes]:
    """Every round of every lane a stage of its own where each message takes a route of its own."""
    if not parameters.flow_per_message or not _tied(stages, topology):
        return stages, lanes
    rounds: list[Stage] = []
    places: Lanes = []
    for lane in lanes:
        single = [replace(stages[number], repeat=1) for number in lane for _ in range(stages[number].repeat)]
        places.append(list(range(len(rounds), len(rounds) + len(single))))
        rounds += single
    return rounds, places


def _tied(stages: Sequence[Stage], topology: Topology) -> bool:
    """Whether the route of any message depends on its flow."""
    sources, targets, _ = _columns(stages)
    pairs = np.unique((sources << np.int64(32)) + targets)
    return topology.ways(pairs >> np.int64(32), pairs & 0xFFFFFFFF, np.zeros_like(pairs)).tied


def traffic_of(messages: Messages, topology: Topology, parameters: NetworkParameters) -> tuple[Traffic, Integers]:
    """What folding sees, ranks and links numbered from 0; and the devices that are the ranks."""
    is_rank = np.zeros(topology.devices, dtype=np.bool_)
    is_rank[messages.source] = is_rank[messages.target] = True
    rank, link = np.cumsum(is_rank) - 1, _places(messages.links, len(topology.links))
    sizes = np.unique(messages.nbytes, return_inverse=True)[1]
    kinds = np.unique(messages.stage * (int(sizes.max()) + 1) + sizes, return_inverse=True)[1]
    looks = np.unique(topology.looks[messages.links], return_inverse=True)[1]
    ways, backs = messages.ways, messages.backs
    answers = (backs.flow, link[backs.links]) if parameters.ack_bytes else (ways.flow[:0], ways.links[:0])
    found = Traffic(
        rank[messages.source], rank[messages.target], kinds, ways.flow, link[ways.links], ways.hop, looks, *answers
    )
    return found, np.flatnonzero(is_rank)


def _places(chosen: Integers, size: int) -> Integers:
    places = np.zeros(size, dtype=np.int64)
    places[chosen] = np.arange(len(chosen))
    return places


def link_bytes(
    stages: Sequence[Stage], lanes: Lanes, messages: Messages, parameters: NetworkParameters
) -> dict[int, float]:
    """Payload and headers that the whole collective puts on each link."""
    sizes, which = np.unique(messages.nbytes, return_inverse=True)
    wire = np.array([on_the_wire(float(size), parameters) for size in sizes])
    times = Counter(number for lane in lanes for number in lane)
    repeats = np.array([stage.repeat for stage in stages])[messages.stage]
    amounts = wire[which] * repeats * np.array([times[number] for number in range(len(stages))])[messages.stage]
    links = np.unique(messages.ways.links)
    total = np.bincount(messages.ways.links, amounts[messages.ways.flow])[links]
    return dict(zip(links.tolist(), total.tolist(), strict=True))


def link_times(
    topology: Topology,
    links: Integers,
    time_of: Callable[[Link, NetworkParameters], float],
    parameters: NetworkParameters,
) -> Floats:
    """`time_of` each of the links, worked out once for those that look alike."""
    _, first, which = np.unique(topology.looks[links], return_index=True, return_inverse=True)
    times = [time_of(topology.links[links[at]], parameters) for at in first.tolist()]
    return np.array(times, dtype=np.float64)[which]
