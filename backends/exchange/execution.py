"""Runs traces: on every rank one computation, one communication (receives excepted) and one host operation at a time.

Ready nodes are taken in ascending id. A collective is under way once its last member has issued it; a message goes at
once, and its receiver has it when it has arrived and been asked for. All times are whole nanoseconds.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from backends.exchange.chakra import EtNode
from backends.exchange.inputs import AstraInputs
from backends.exchange.operations import CollectiveCall, MemoryAccess, MessageCall, Operation, Work
from runs.errors import BadInputError

Calls = list[list[tuple[EtNode, Operation]]]
Token = Hashable


class Transport(Protocol):
    """What moves data: transfers start together, and end when the transport says so."""

    def start(self, now: int, batch: list[tuple[Token, CollectiveCall | MessageCall]]) -> None:
        """Transfers that begin at `now`."""

    def next_end(self) -> float:
        """When the next transfer ends, inf where none is under way."""

    def finish(self, now: int) -> list[Token]:
        """Transfers that end at `now`."""


@dataclass(frozen=True, slots=True)
class Span:
    """One node as it ran on its rank: issued at `start`, over at `end`; `moving` is when its transfer got under way.

    `moving` equals `start` for work.
    """

    node: EtNode
    what: Operation
    start: int
    moving: int
    end: int


@dataclass
class _Meeting:
    """A collective that members are joining; the first one's call and node are what the others must match."""

    call: CollectiveCall
    node: EtNode
    rank: int
    joined: dict[int, int] = field(default_factory=dict)


@dataclass
class _Mail:
    """Messages of one sender, receiver and tag: moments sent and arrived, and receives that wait for one."""

    sent: dict[int, int] = field(default_factory=dict)
    arrived: dict[int, int] = field(default_factory=dict)
    sends: int = 0
    receives: int = 0
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    sizes: list[int] = field(default_factory=list)


class Execution:
    """One run of `calls` (what `operation` says of every node of every rank) over a transport."""

    def __init__(self, inputs: AstraInputs, calls: Calls, transport: Transport) -> None:
        self._inputs, self._calls, self._transport = inputs, calls, transport
        self._at: list[dict[int, int]] = [{node.id: i for i, (node, _) in enumerate(mine)} for mine in calls]
        self._waits: list[list[int]] = []
        self._followers: list[list[list[int]]] = []
        self._ready: list[dict[str, list[tuple[int, int]]]] = [defaultdict(list) for _ in calls]
        self._busy: list[dict[str, bool]] = [defaultdict(bool) for _ in calls]
        self._started: list[dict[int, int]] = [{} for _ in calls]
        self._moving: dict[tuple[int, int], int] = {}
        self._heap: list[tuple[int, int, int, int]] = []
        self._turns: dict[tuple[int, str], int] = defaultdict(int)
        self._meetings: dict[tuple[str, int], _Meeting] = {}
        self._mail: dict[tuple[int, int, int], _Mail] = defaultdict(_Mail)
        self._memory_free: dict[int, int] = defaultdict(int)
        self._pending: list[tuple[Token, CollectiveCall | MessageCall]] = []
        self.spans: list[list[Span]] = [[] for _ in calls]
        self._now = 0

    def run(self) -> list[list[Span]]:
        """The spans of every rank in the order they ended.

        Raises:
            BadInputError: members of a group disagree about a collective, or some nodes can never run; names one.
        """
        for rank in range(len(self._calls)):
            self._prepare(rank)
        for rank in range(len(self._calls)):
            self._issue(rank)
        self._depart()
        while True:
            now = min(self._heap[0][0] if self._heap else inf, self._transport.next_end())
            if now == inf:
                break
            self._now = int(now)
            self._settle()
            self._depart()
        self._complain()
        return self.spans

    def _prepare(self, rank: int) -> None:
        places, mine = self._at[rank], self._calls[rank]
        waits, followers = [0] * len(mine), [[] for _ in mine]  # type: tuple[list[int], list[list[int]]]
        for place, (node, _) in enumerate(mine):
            for dep in set(node.deps):
                followers[places[dep]].append(place)
                waits[place] += 1
        self._waits.append(waits)
        self._followers.append(followers)
        for place, count in enumerate(waits):
            if not count:
                self._make_ready(rank, place)

    def _make_ready(self, rank: int, place: int) -> None:
        node, what = self._calls[rank][place]
        heapq.heappush(self._ready[rank][_unit(what)], (node.id, place))

    def _settle(self) -> None:
        """All that ends now, and what starts and ends at once because of it."""
        while True:
            ended = [(rank, place) for rank, place in self._popped()]
            for token in self._transport.finish(self._now):
                ended += self._delivered(token)
            if not ended:
                return
            for rank, place in ended:
                self._end(rank, place)
            for rank in dict.fromkeys(rank for rank, _ in ended):
                self._issue(rank)

    def _popped(self) -> list[tuple[int, int]]:
        found = []
        while self._heap and self._heap[0][0] <= self._now:
            _, _, rank, place = heapq.heappop(self._heap)
            found.append((rank, place))
        return found

    def _end(self, rank: int, place: int) -> None:
        node, what = self._calls[rank][place]
        begun = self._started[rank][place]
        self.spans[rank].append(Span(node, what, begun, self._moving.pop((rank, place), begun), self._now))
        unit = _unit(what)
        if unit != "receive":
            self._busy[rank][unit] = False
        for follower in self._followers[rank][place]:
            self._waits[rank][follower] -= 1
            if not self._waits[rank][follower]:
                self._make_ready(rank, follower)

    def _issue(self, rank: int) -> None:
        for unit, ready in self._ready[rank].items():
            while ready and not self._busy[rank][unit]:
                _, place = heapq.heappop(ready)
                self._busy[rank][unit] = unit != "receive"
                self._begin(rank, place)

    def _begin(self, rank: int, place: int) -> None:
        node, what = self._calls[rank][place]
        self._started[rank][place] = self._now
        if isinstance(what, Work):
            self._at_time(self._now + (what.nanoseconds or 0), rank, place)
        elif isinstance(what, MemoryAccess):
            self._at_time(self._fetched(rank, what.size), rank, place)
        elif isinstance(what, MessageCall):
            self._post(rank, place, node, what)
        elif len(what.members) == 1:
            self._at_time(self._now, rank, place)
        else:
            self._join(rank, place, node, what)

    def _at_time(self, when: int, rank: int, place: int) -> None:
        heapq.heappush(self._heap, (when, len(self._started[rank]), rank, place))

    def _fetched(self, rank: int, size: int) -> int:
        """When a memory access ends; accesses to one pool follow each other."""
        memory = self._inputs.memory
        assert memory is not None
        pool = {"PER_NPU_MEMORY_EXPANSION": rank, "PER_NODE_MEMORY_EXPANSION": rank // max(1, memory.npus_per_node)}
        key = pool.get(memory.kind, 0)
        end = max(self._now, self._memory_free[key]) + int(memory.latency_ns + size / memory.bandwidth)
        self._memory_free[key] = end
        return end

    def _join(self, rank: int, place: int, node: EtNode, what: CollectiveCall) -> None:
        turn = self._turns[rank, what.group]
        self._turns[rank, what.group] += 1
        meeting = self._meetings.setdefault((what.group, turn), _Meeting(what, node, rank))
        if (meeting.call.kind, meeting.call.size) != (what.kind, what.size):
            mine, theirs = self._inputs.where(rank, node), self._inputs.where(meeting.rank, meeting.node)
            raise BadInputError(
                f"{mine} runs {what.kind} of {what.size} bytes as collective {turn + 1} of group {what.group}, "
                f"{theirs} runs {meeting.call.kind} of {meeting.call.size}",
                "all ranks of a group must run the same collectives of the same sizes in the same order",
            )
        meeting.joined[rank] = place
        if len(meeting.joined) == len(what.members):
            self._pending.append(((what.group, turn), what))

    def _post(self, rank: int, place: int, node: EtNode, what: MessageCall) -> None:
        mail = self._mail[what.source, what.target, what.tag]
        if what.sends:
            mail.sent[mail.sends] = place
            self._pending.append((((what.source, what.target, what.tag), mail.sends), what))
            mail.sends += 1
            return
        number = mail.receives
        mail.receives += 1
        if number in mail.arrived:
            self._at_time(self._now, rank, place)
        else:
            mail.waiting.append((number, place))

    def _depart(self) -> None:
        """Hand what has become ready at this moment to the transport, all together."""
        if not self._pending:
            return
        batch, self._pending = self._pending, []
        for token, what in batch:
            for rank, place in self._parties(token, what):
                self._moving[rank, place] = self._now
        self._transport.start(self._now, batch)

    def _parties(self, token: Token, what: CollectiveCall | MessageCall) -> list[tuple[int, int]]:
        assert isinstance(token, tuple)
        if isinstance(what, CollectiveCall):
            return list(self._meetings[token].joined.items())
        mail = self._mail[token[0]]
        waiting = [(what.target, place) for number, place in mail.waiting if number == token[1]]
        return [(what.source, mail.sent[token[1]]), *waiting]

    def _delivered(self, token: Token) -> list[tuple[int, int]]:
        """The nodes that end with a transfer."""
        assert isinstance(token, tuple)
        if isinstance(token[0], str):
            return list(self._meetings.pop(token).joined.items())
        source, target, _ = token[0]
        mail = self._mail[token[0]]
        mail.arrived[token[1]] = self._now
        ended = [(source, mail.sent[token[1]])]
        for number, place in list(mail.waiting):
            if number == token[1]:
                mail.waiting.remove((number, place))
                ended.append((target, place))
        return ended

    def _complain(self) -> None:
        """Return if every node ran.

        Raises:
            BadInputError: names the first node that could not, and what it waits for.
        """
        for meeting in self._meetings.values():
            late = [rank for rank in meeting.call.members if rank not in meeting.joined]
            where = self._inputs.where(meeting.rank, meeting.node)
            raise BadInputError(
                f"{where}: {meeting.call.kind} of group {meeting.call.group} waits for rank {late[0]} for ever",
                "all ranks of a group must run the same collectives in the same order; look at what comes before",
            )
        for (source, target, tag), mail in self._mail.items():
            if mail.waiting:
                node = self._calls[target][mail.waiting[0][1]][0]
                raise BadInputError(
                    f"{self._inputs.where(target, node)}: waits for a message of rank {source} with tag {tag} for ever",
                    "let the sender send before it waits for this rank",
                )
        for rank, mine in enumerate(self._calls):
            if len(self.spans[rank]) < len(mine):
                done = {span.node.id for span in self.spans[rank]}
                node = next(node for node, _ in mine if node.id not in done)
                raise BadInputError(f"{self._inputs.where(rank, node)}: never runs", "look for a cycle of dependencies")


def _unit(what: Operation) -> str:
    """Which of a rank's units an operation takes; receives take none."""
    if isinstance(what, Work):
        return what.unit
    if isinstance(what, MemoryAccess):
        return "gpu"
    if isinstance(what, MessageCall) and not what.sends:
        return "receive"
    return "comm"


class UnitTransport:
    """Every transfer takes a microsecond, whatever it moves: shows whether a run ends, not when."""

    def __init__(self) -> None:
        self._ends: deque[tuple[int, list[Token]]] = deque()

    def start(self, now: int, batch: list[tuple[Token, CollectiveCall | MessageCall]]) -> None:
        self._ends.append((now + 1000, [token for token, _ in batch]))

    def next_end(self) -> float:
        return self._ends[0][0] if self._ends else inf

    def finish(self, now: int) -> list[Token]:
        return self._ends.popleft()[1] if self._ends and self._ends[0][0] <= now else []
