"""Checks before a run: what ASTRA-sim would crash on, hang on or quietly get wrong.

`load_inputs` refuses what cannot be read; `check` finds what cannot be run, and what is known to mislead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from backends.exchange.chakra import EtNode
from backends.exchange.inputs import AstraInputs, load_inputs
from backends.exchange.matching import match_calls
from backends.exchange.network_checks import check_network
from backends.exchange.operations import CollectiveCall, MessageCall, Operation, Work, operation
from backends.exchange.phases import algorithms_of
from backends.exchange.system import IMPLEMENTATIONS, KNOWN, Implementation
from runs.errors import BadInputError

__all__ = ["AstraInputs", "Finding", "check", "load_inputs", "require"]

Severity = Literal["error", "warning", "note"]
Calls = list[list[tuple[EtNode, Operation]]]
_ALIKE = 3
_INT_MAX = 2**31 - 1


@dataclass(frozen=True)
class Finding:
    """One finding. An `error` means that the run must not be started; `where` names file and node, `hint` the way out.

    `tool` restricts a finding to one simulator (`astra-sim`, `astra-sim-ns3` or `flow`); empty means any.
    """

    severity: Severity
    where: str
    what: str
    hint: str
    tool: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def check(inputs: AstraInputs) -> tuple[Finding, ...]:
    """Everything that is wrong with a run, errors first; alike findings beyond the third are counted, not listed."""
    return examine(inputs)[1]


def examine(inputs: AstraInputs, rehearse: bool = True) -> tuple[Calls, tuple[Finding, ...]]:
    """What every node does, and the findings of `check`.

    Without `rehearse` the order of collectives is not tried out; the run itself then refuses one that never ends.
    """
    calls, findings = _operations(inputs)
    findings += [*_check_traces(inputs), *_check_system(inputs, calls), *_check_groups(inputs, calls)]
    if not any(one.severity == "error" for one in findings):
        findings += [Finding("error", *one) for one in match_calls(inputs, calls, rehearse)]
    findings += [Finding(*one) for one in check_network(inputs, calls)]
    findings += _check_sizes(inputs, calls)
    order = ("error", "warning", "note")
    return calls, tuple(sorted(_thinned(findings), key=lambda one: order.index(one.severity)))


def require(findings: Iterable[Finding], tool: str = "flow") -> None:
    """Return if nothing forbids a run on `tool`.

    Raises:
        BadInputError: the first error, with its hint.
    """
    for one in findings:
        if one.severity == "error" and one.tool in ("", tool):
            raise BadInputError(str(one), one.hint)


def _thinned(findings: list[Finding]) -> Iterator[Finding]:
    seen: Counter[tuple[str, str, str]] = Counter()
    for one in findings:
        key = (one.severity, one.hint, one.tool)
        seen[key] += 1
        if seen[key] <= _ALIKE:
            yield one
    for (severity, hint, tool), times in seen.items():
        if times > _ALIKE:
            first = next(one for one in findings if (one.severity, one.hint, one.tool) == (severity, hint, tool))
            yield Finding("note", first.where, f"and {times - _ALIKE} more of this kind", hint, tool)


def _operations(inputs: AstraInputs) -> tuple[Calls, list[Finding]]:
    """What every node does; nodes that cannot be understood become findings."""
    calls: Calls = []
    findings: list[Finding] = []
    for rank, trace in enumerate(inputs.traces):
        mine = []
        for node in trace.nodes:
            try:
                mine.append((node, operation(inputs, rank, node)))
            except BadInputError as error:
                where = inputs.where(rank, node)
                reason = error.message.removeprefix(f"{where}: ")
                findings.append(Finding("error", where, reason, error.hint))
        calls.append(mine)
    return calls, findings


def _check_traces(inputs: AstraInputs) -> Iterator[Finding]:
    if inputs.surplus:
        what = f"the network has {inputs.ranks} ranks, there are {inputs.surplus} more traces, which nothing reads"
        yield Finding("warning", str(inputs.prefix), what, "take a network of as many ranks as there are traces")
    for rank, trace in enumerate(inputs.traces):
        path = str(inputs.trace_path(rank))
        if not trace.nodes:
            yield Finding("error", path, "the trace has no nodes", "write the rank's work, or take a smaller network")
        known = Counter(node.id for node in trace.nodes)
        for node in trace.nodes:
            where = inputs.where(rank, node)
            if known[node.id] > 1:
                yield Finding("error", where, f"{known[node.id]} nodes have the id {node.id}", "number nodes apart")
            for dep in node.deps:
                if dep not in known:
                    yield Finding("error", where, f"depends on node {dep}, which is not there", "correct the id")
        yield from _check_cycle(inputs, rank)


def _check_cycle(inputs: AstraInputs, rank: int) -> Iterator[Finding]:
    """Nodes that no order of work reaches."""
    nodes = {node.id: node for node in inputs.traces[rank].nodes}
    waits = {node.id: sum(dep in nodes for dep in set(node.deps)) for node in nodes.values()}
    followers: dict[int, list[int]] = {}
    for node in nodes.values():
        for dep in set(node.deps):
            followers.setdefault(dep, []).append(node.id)
    ready = [one for one, count in waits.items() if not count]
    while ready:
        done = ready.pop()
        del waits[done]
        for one in followers.get(done, ()):
            waits[one] -= 1
            if not waits[one]:
                ready.append(one)
    stuck = [one for one in waits if all(dep in nodes for dep in nodes[one].deps)]
    if stuck:
        what = f"{len(waits)} nodes wait for each other in a cycle ({', '.join(map(str, sorted(waits)[:5]))})"
        yield Finding("error", inputs.where(rank, nodes[min(stuck)]), what, "remove one of the dependencies")


def _check_system(inputs: AstraInputs, calls: Calls) -> Iterator[Finding]:
    system, where = inputs.system, inputs.system.where
    if not system.splits and any(isinstance(one, CollectiveCall) for mine in calls for _, one in mine):
        yield Finding("error", where, "preferred-dataset-splits is missing", "give the number of chunks, 1 or more")
    if not inputs.is_ns3 and system.endpoint_delay < 1:
        yield Finding("error", where, "endpoint-delay is 0, which the analytical backend cannot run", "give 1 or more")
    for key in system.content:
        if key.endswith("-custom") or key == "per-node-custom-implementation":
            yield Finding("error", where, f"{key}: custom collectives cannot run here", "name an algorithm", "flow")
        elif key not in KNOWN:
            yield Finding("note", where, f"{key} is no key that ASTRA-sim reads", "check its spelling or remove it")
    if system.splits > system.active_chunks > 1 and len(inputs.dims) > 1:
        what = f"{system.splits} chunks, {system.active_chunks} at a time: multi-dimensional rings can deadlock"
        yield Finding("warning", where, what, "make active-chunks-per-dimension equal to the splits", "astra-sim")
    yield from _check_work(inputs, calls)


def _check_work(inputs: AstraInputs, calls: Calls) -> Iterator[Finding]:
    for rank, mine in enumerate(calls):
        work = [(node, one) for node, one in mine if isinstance(one, Work)]
        host = next((node for node, one in work if one.unit == "cpu"), None)
        if host is not None:
            what = "host operations: the analytical binary loses its statistics, the NS-3 binary never exits"
            yield Finding("warning", inputs.where(rank, host), what, "set is_cpu_op to false", "astra-sim")
        for node, one in work:
            if one.unit == "gpu" and (one.nanoseconds or 0) <= 1 and node.get("num_ops", 0):
                what = f"{node.get('num_ops')} FLOPs would take no time: {_MISSING[inputs.system.roofline]}"
                hint = "give the figure, or switch roofline-enabled"
                yield Finding("error", inputs.where(rank, node), what, hint)


_MISSING = {True: "tensor_size is 0", False: "duration_micros is 0 and roofline-enabled off"}


def _check_groups(inputs: AstraInputs, calls: Calls) -> Iterator[Finding]:
    """Algorithms and groups that do not go together, once for each kind, group size and file."""
    seen: set[tuple[str, int, tuple[int, ...]]] = set()
    alone: set[int] = set()
    for rank, mine in enumerate(calls):
        for node, one in mine:
            if not isinstance(one, CollectiveCall):
                continue
            where = inputs.where(rank, node)
            if len(one.members) == 1 and rank not in alone:
                alone.add(rank)
                what = f"group {one.group} has one rank: ASTRA-sim never ends such a collective; it takes no time here"
                yield Finding("warning", where, what, "drop the node")
            key = (one.kind, len(one.members), one.dims)
            if len(one.members) > 1 and key not in seen:
                seen.add(key)
                yield from _check_algorithm(inputs, one, where)
    if inputs.groups_path is not None and "empty" in str(inputs.groups_path) and inputs.groups:
        what = "ASTRA-sim takes any path with the word `empty` for no groups at all"
        yield Finding("error", str(inputs.groups_path), what, "rename the file or its folder")


def _check_algorithm(inputs: AstraInputs, call: CollectiveCall, where: str) -> Iterator[Finding]:
    system, key = inputs.system.where, IMPLEMENTATIONS.get(call.kind)
    if key is None:
        what = "ASTRA-sim takes no time for a broadcast, which is timed here as the network has it"
        yield Finding("warning", where, what, "write the broadcast as messages to compare the two")
        return
    named = inputs.system.implementations(call.kind)
    if not named:
        yield Finding("error", system, f"{key} is missing, {where} needs it", "name an algorithm a dimension")
    elif len(named) != len(inputs.dims):
        what = f"{key} has {len(named)} entries, the network has {len(inputs.dims)} dimensions"
        yield Finding("error", system, what, "give one algorithm a dimension")
    else:
        for one, ranks in algorithms_of(inputs, call):
            yield from _check_one(call, key, one, ranks, where)
        if not call.dims and len(inputs.dims) > 1 and any(one.algorithm != "ring" for one in named):
            what = f"group {call.group} is part of a network of several dimensions: ASTRA-sim runs ring, not as named"
            yield Finding("note", where, what, "take a network of one dimension for another algorithm")


def _check_one(call: CollectiveCall, key: str, one: Implementation, ranks: int, where: str) -> Iterator[Finding]:
    if one.needs_power_of_two and ranks & (ranks - 1):
        what = f"{key} needs a power of two of ranks, here are {ranks}"
        yield Finding("error", where, what, "choose ring or direct")
    if one.algorithm == "halving_doubling" and call.kind == "all_to_all":
        yield Finding("error", where, "halvingDoubling serves no all-to-all", "choose ring or direct")
    if 0 < one.window < ranks - 1:
        what = f"direct{one.window}: the window of {one.window} peers is not modelled, all are sent to at once"
        yield Finding("warning", where, what, "choose direct", "flow")
    if one.algorithm == "double_binary_tree_astra":
        if not call.dims:
            what = f"doubleBinaryTree within group {call.group}: ASTRA-sim crashes on groups that are not all ranks"
            yield Finding("error", where, what, "choose ring or direct, or name the ranks by involved_dim")
        elif call.kind != "all_reduce":
            what = f"{key} is doubleBinaryTree: ASTRA-sim runs a tree all-reduce instead of the {call.kind}"
            yield Finding("warning", where, what, "choose ring or direct for it")


def _check_sizes(inputs: AstraInputs, calls: Calls) -> Iterator[Finding]:
    for rank, mine in enumerate(calls):
        for node, one in mine:
            if isinstance(one, CollectiveCall) and len(one.members) > 1:
                least = len(one.members) * max(1, inputs.system.splits)
                if one.kind == "all_gather" and one.size == 0:
                    what = "an all-gather of 0 bytes never ends"
                    yield Finding("error", inputs.where(rank, node), what, "drop the node or give it a size")
                elif one.size < least and one.kind != "all_gather":
                    what = f"comm_size {one.size} counts as {least}, a byte for each rank and chunk"
                    yield Finding("warning", inputs.where(rank, node), what, "give it the size that is meant")
            if inputs.is_ns3 and largest_message(inputs, one) > _INT_MAX:
                what = "a message above 2 GiB, on which the NS-3 binary hangs"
                yield Finding("error", inputs.where(rank, node), what, "use more splits", "astra-sim-ns3")


def largest_message(inputs: AstraInputs, one: Operation) -> int:
    """Bytes of the largest single message of an operation, about."""
    if isinstance(one, MessageCall):
        return one.size
    if not isinstance(one, CollectiveCall) or len(one.members) < 2:
        return 0
    shared = one.kind in ("all_gather", "broadcast") or any(
        named.algorithm == "double_binary_tree_astra" for named in inputs.system.implementations(one.kind)
    )
    return one.size // max(1, inputs.system.splits) // (1 if shared else len(one.members))
