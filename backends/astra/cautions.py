"""What is known to mislead in a result of ASTRA-sim, said with the result. Measured facts: docs/astra_sim.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from backends.astra.programs import Engine
from backends.exchange.inputs import AstraInputs
from backends.exchange.ns3_config import Ns3Config
from backends.exchange.operations import CollectiveCall, MessageCall, Operation, operation
from backends.exchange.phases import algorithms_of
from runs.errors import BadInputError

Used = set[tuple[str, str, bool]]
"""Collective kind, algorithm, and whether the group is all ranks."""
_PORTS = 65_536 - 10_000
FLAGS = ("num-queues-per-dim", "injection-scale", "rendezvous-protocol")
"""Command-line flags that may be passed on; the programs ignore others, or have them and do nothing."""


def cautions(inputs: AstraInputs, engine: Engine, flags: tuple[str, ...] = ()) -> tuple[str, ...]:
    """One sentence for each known trap that this run is in."""
    calls = [[operation(inputs, rank, node) for node in trace.nodes] for rank, trace in enumerate(inputs.traces)]
    used: Used = set()
    for mine in calls:
        for call in mine:
            if isinstance(call, CollectiveCall) and len(call.members) > 1 and call.kind != "broadcast":
                everybody = len(call.members) == inputs.ranks
                used |= {(call.kind, one.algorithm, everybody) for one, _ in algorithms_of(inputs, call)}
    found = [*_algorithms(inputs, used), *_flagged(flags)]
    found += _ns3(inputs, calls) if engine == "ns3" else _analytical(inputs, engine, used, calls)
    return tuple(found)


def check_flags(flags: tuple[str, ...]) -> None:
    """Return if every flag does something.

    Raises:
        BadInputError: one is unknown to the programs, or without effect.
    """
    for flag in flags:
        name = flag.removeprefix("--").partition("=")[0]
        if name in ("comm-scale", "compute-scale"):
            raise BadInputError(f"--{name} is accepted by ASTRA-sim and has no effect", "scale the sizes in the traces")
        if not flag.startswith("--") or name not in FLAGS:
            raise BadInputError(f"{flag} is no flag that is passed on", f"known: {', '.join(FLAGS)}")


def _algorithms(inputs: AstraInputs, used: Used) -> Iterator[str]:
    kinds = {kind for kind, _, _ in used}
    algorithms = {(kind, algorithm) for kind, algorithm, _ in used}
    if any(algorithm == "double_binary_tree_astra" for _, algorithm in algorithms):
        replaced = sorted(kind for kind, algorithm in algorithms if algorithm == "double_binary_tree_astra")
        others = [kind for kind in replaced if kind != "all_reduce"]
        yield (
            "doubleBinaryTree sends the whole buffer over every edge of one tree for each chunk, so it is slower than "
            "trees are: compare it with nothing but itself"
        )
        if others:
            yield f"doubleBinaryTree runs a tree all-reduce in place of {', '.join(others)}"
    if ("all_to_all", "ring") in algorithms:
        yield "a ring all-to-all relays n(n-1)/2 messages: it is many times slower than direct"
    if len(inputs.dims) > 1 and "all_reduce" in kinds and not inputs.system.local_bandwidth_aware:
        yield "collective-optimization baseline reduces the whole buffer in every dimension"
    if len(inputs.dims) > 1 and any(not everybody for _, _, everybody in used):
        yield "groups that are not all ranks run ring in one dimension, whatever algorithm is named"


def _flagged(flags: tuple[str, ...]) -> Iterator[str]:
    for flag in flags:
        name, _, value = flag.removeprefix("--").partition("=")
        if name == "num-queues-per-dim" and value not in ("", "1"):
            yield "more than one queue a dimension halves the chunks in flight of an all-reduce"
        if name == "injection-scale":
            yield "injection-scale multiplies the endpoint delay and nothing else"


def _analytical(inputs: AstraInputs, engine: Engine, used: Used, calls: list[list[Operation]]) -> Iterator[str]:
    system = inputs.system
    kinds = [dimension.kind for dimension in inputs.network.dimensions] if inputs.network else []
    direct = any(algorithm == "direct" for _, algorithm, _ in used)
    if engine == "unaware" and used:
        risk = "direct or several chunks come out below the bandwidth bound"
        yield "the congestion-unaware program knows no contention, not even of a rank's own link" + (
            f": {risk}" if direct or system.active_chunks > 1 else ""
        )
    if engine == "aware" and "Switch" in kinds and used and system.active_chunks < 4:
        yield "messages cross a switch whole, so each is serialised twice unless many chunks are in flight"
    if used and system.splits > system.active_chunks:
        yield f"{system.splits} chunks of which {system.active_chunks} run at a time are serialised"
    if len(inputs.dims) == 1 and _in_two_groups(calls):
        yield (
            "ranks are in several groups of one collective on a network of one dimension: the program can crash at its "
            "end and lose the last results; a network of two dimensions avoids it (its groups then run ring)"
        )


def _in_two_groups(calls: list[list[Operation]]) -> bool:
    for mine in calls:
        groups: dict[str, set[str]] = {}
        for call in mine:
            if isinstance(call, CollectiveCall) and len(call.members) > 1:
                groups.setdefault(call.kind, set()).add(call.group)
        if any(len(names) > 1 for names in groups.values()):
            return True
    return False


def _ns3(inputs: AstraInputs, calls: list[list[Operation]]) -> Iterator[str]:
    if inputs.ns3 is not None:
        yield from _congestion_control(inputs.ns3)
    pairs: Counter[tuple[int, int]] = Counter()
    for mine in calls:
        for call in mine:
            if isinstance(call, MessageCall) and call.sends:
                pairs[call.source, call.target] += 1
            elif isinstance(call, CollectiveCall) and len(call.members) > 1:
                pairs[call.members[0], call.members[1]] += 2 * len(call.members) * max(1, inputs.system.splits)
    if pairs and max(pairs.values()) > _PORTS:
        yield f"more than {_PORTS} messages between two ranks: source ports wrap round"


def _congestion_control(config: Ns3Config) -> Iterator[str]:
    if config.values.get("ERROR_RATE_PER_LINK", "0").strip("0."):
        yield "ERROR_RATE_PER_LINK loses packets, which ns-3 does not always recover from: such a run may never end"
    stated = ", ".join(f"{key} {config.values.get(key, 'unset')}" for key in ("HAS_WIN", "VAR_WIN", "KMIN_MAP"))
    if config.cc_mode and not config.has_window:
        yield f"congestion control without a window ({stated}): HPCC collapses and DCQCN is up to 1.6 times slower"
    elif config.cc_mode:
        yield f"congestion controls compare only at equal windows and thresholds ({stated}) and for long flows"
