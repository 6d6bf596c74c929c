"""From a collective of a trace to what runs on the network: which algorithm, over which ranks, in which order."""

from __future__ import annotations

from dataclasses import dataclass

from backends.exchange.inputs import AstraInputs
from backends.exchange.operations import CollectiveCall, line
from backends.exchange.system import Implementation
from backends.network.collective import Algorithm, Kind


def algorithms_of(inputs: AstraInputs, call: CollectiveCall) -> list[tuple[Implementation, int]]:
    """The algorithm of each phase of a collective with the ranks it joins, as ASTRA-sim chooses it.

    A numbered group that is not all ranks is one dimension, and ring where the network has several.
    """
    named = inputs.system.implementations(call.kind)
    if not call.dims:
        own = named[0] if len(inputs.dims) == 1 else Implementation("ring")
        return [(own, len(call.members))]
    if named[call.dims[0]].flat:
        return [(named[call.dims[0]], len(call.members))]
    return [(named[place], inputs.dims[place]) for place in call.dims if inputs.dims[place] > 1]


@dataclass(frozen=True)
class Phase:
    """One step of a collective: `nbytes` as `backends.network.Collective` counts them, `groups` that run at once."""

    kind: Kind
    nbytes: float
    groups: tuple[tuple[int, ...], ...]
    algorithm: Algorithm | None


def phases(inputs: AstraInputs, call: CollectiveCall) -> list[Phase]:
    """The steps of a collective, one after another (docs/exchange.md has the order).

    Sizes below a byte for each rank and chunk count as that, as ASTRA-sim counts them.
    """
    ranks = len(call.members)
    size = max(call.size, 1 if call.kind == "all_gather" else ranks * inputs.system.splits)
    if call.kind == "broadcast":
        return [Phase("broadcast", size, (call.members,), None)]
    named = inputs.system.implementations(call.kind)
    places = [place for place in call.dims if inputs.dims[place] > 1]
    if len(places) < 2 or named[places[0]].flat:
        (one, _), *_ = algorithms_of(inputs, call)
        return [_phase(call.kind, size, (call.members,), one.algorithm)]
    return _several(inputs, call, places, size)


def _phase(kind: Kind, size: float, groups: tuple[tuple[int, ...], ...], algorithm: Algorithm) -> Phase:
    """`size` is the share of a rank for an all-gather, else its buffer."""
    if algorithm == "double_binary_tree_astra":
        return Phase("all_reduce", size, groups, algorithm)
    return Phase(kind, size * len(groups[0]) if kind == "all_gather" else size, groups, algorithm)


def _several(inputs: AstraInputs, call: CollectiveCall, places: list[int], size: float) -> list[Phase]:
    """A collective over several dimensions: the buffer shrinks or grows from one to the next."""
    if call.kind == "all_reduce" and inputs.system.local_bandwidth_aware:
        *inner, last = places
        down = _sizes(inputs, places, size, shrink=True)
        steps = [("reduce_scatter", place, down[place]) for place in inner]
        steps += [("all_reduce", last, down[last])]
        steps += [("all_gather", place, down[place] / inputs.dims[place]) for place in reversed(inner)]
    elif call.kind == "reduce_scatter":
        shrunk = _sizes(inputs, places, size, shrink=True)
        steps = [("reduce_scatter", place, shrunk[place]) for place in places]
    elif call.kind == "all_gather":
        grown = _sizes(inputs, places[::-1], size, shrink=False)
        steps = [("all_gather", place, grown[place]) for place in places[::-1]]
    else:
        steps = [(call.kind, place, size) for place in places]
    return [_along(inputs, call, kind, place, amount) for kind, place, amount in steps]


def _sizes(inputs: AstraInputs, places: list[int], size: float, shrink: bool) -> dict[int, float]:
    found = {}
    for place in places:
        found[place] = size
        size = size / inputs.dims[place] if shrink else size * inputs.dims[place]
    return found


def _along(inputs: AstraInputs, call: CollectiveCall, kind: str, place: int, size: float) -> Phase:
    """One dimension of the call: all lines along it that its members form."""
    lines = dict.fromkeys(tuple(line(inputs.dims, rank, (place,))) for rank in call.members)
    named = inputs.system.implementations(call.kind)[place]
    kinds: dict[str, Kind] = {
        "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
        "all_to_all": "all_to_all",
    }  # fmt: skip
    return _phase(kinds[kind], size, tuple(lines), named.algorithm)
