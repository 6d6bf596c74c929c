"""`Timeline`: what every reader produces and every metric tool reads. Columns are numpy arrays, times are exact
integers.

Times are integer nanoseconds, except device times on XLA lanes, whose device clock counts picoseconds: `Lane.tick_s`
says how long one tick of kernels and copies is. `launch` and steps are always in nanoseconds of one host-aligned
clock, so that the two can be compared. Unset integers are -1, unset reals NaN; a tool turns them into a reason, never
into a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]

T = TypeVar("T")

NS = 1e-9
PS = 1e-12


class Op(IntEnum):
    """What a communication kernel does. `UNKNOWN`: it communicates, but no record says which operation it is."""

    UNKNOWN = 0
    ALLREDUCE = 1
    ALLGATHER = 2
    REDUCESCATTER = 3
    ALLTOALL = 4
    BROADCAST = 5
    P2P = 6
    REDUCE = 7
    BARRIER = 8
    GATHER = 9
    SCATTER = 10
    PERMUTE = 11


class CopyKind(IntEnum):
    """Direction of a memory transfer. Memsets are transfers without a direction."""

    MEMSET = 0
    H2D = 1
    D2H = 2
    D2D = 3
    P2P = 4
    OTHER = 5


class StepKind(IntEnum):
    """What an iteration did. Training and forward-only steps are `PLAIN`."""

    PLAIN = 0
    PREFILL = 1
    DECODE = 2
    MIXED = 3


NEVER = -(2**63)  # `launch` of a kernel or copy whose launching call was not recorded (clocks may be negative)
MOE = 1  # bit of `Kernels.flags`: expert GEMM, routing, dispatch, combine or finalize
COPY_OP = 2  # bit of `Kernels.flags`: an XLA copy-start or copy-done, which is neither compute nor communication
IN_FLIGHT = 4  # bit of `Kernels.flags`: not an op but the time of an asynchronous collective from start to end of done


def _ints() -> Ints:
    return np.empty(0, np.int64)


def _reals() -> Reals:
    return np.empty(0, np.float64)


@dataclass
class Kernels:
    """Device kernels in file order. `name` indexes `Lane.names`; `launch` is the host time of the launching call
    (`NEVER`: not recorded); `coverage` is blocks per SM (NaN: unknown); `comm` is 1 for communication, 0 for
    compute, 2 for XLA copy ops; `flags` are bits such as `MOE`."""

    start: Ints = field(default_factory=_ints)
    end: Ints = field(default_factory=_ints)
    name: Ints = field(default_factory=_ints)
    stream: Ints = field(default_factory=_ints)
    launch: Ints = field(default_factory=_ints)
    coverage: Reals = field(default_factory=_reals)
    comm: Ints = field(default_factory=_ints)
    flags: Ints = field(default_factory=_ints)

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Collectives:
    """One row per communication kernel: `kernel` is its row in `Kernels`. Sizes in bytes (-1: not recorded).

    `group` indexes `Lane.groups` (process group names, -1 unknown), `seq` is the sequence number in the group.
    """

    kernel: Ints = field(default_factory=_ints)
    op: Ints = field(default_factory=_ints)
    in_bytes: Ints = field(default_factory=_ints)
    out_bytes: Ints = field(default_factory=_ints)
    group_size: Ints = field(default_factory=_ints)
    group: Ints = field(default_factory=_ints)
    seq: Ints = field(default_factory=_ints)

    def __len__(self) -> int:
        return len(self.kernel)


@dataclass
class Copies:
    """Memory copies and memsets. `kind` is a `CopyKind`, `bytes` -1 where not recorded."""

    start: Ints = field(default_factory=_ints)
    end: Ints = field(default_factory=_ints)
    kind: Ints = field(default_factory=_ints)
    bytes: Ints = field(default_factory=_ints)
    launch: Ints = field(default_factory=_ints)

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Steps:
    """Iterations in order, on the host clock of the lane. `kind` is a `StepKind`; `requests` in prefill and decode and
    `tokens` of prefill are what a serving span says of itself (-1: nothing); `flops` what an XLA step carries (-1)."""

    start: Ints = field(default_factory=_ints)
    end: Ints = field(default_factory=_ints)
    kind: Ints = field(default_factory=_ints)
    prefill_requests: Ints = field(default_factory=_ints)
    prefill_tokens: Ints = field(default_factory=_ints)
    decode_requests: Ints = field(default_factory=_ints)
    flops: Ints = field(default_factory=_ints)

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Marks:
    """Annotated pipeline bubbles (`start`, `end`), and memory samples (`time`, bytes `allocated` on the device)."""

    bubble_start: Ints = field(default_factory=_ints)
    bubble_end: Ints = field(default_factory=_ints)
    memory_time: Ints = field(default_factory=_ints)
    memory_allocated: Ints = field(default_factory=_ints)


@dataclass
class Samples:
    """Hardware counters of Nsight's GPU metrics: time, metric (index into `Lane.names`), value."""

    time: Ints = field(default_factory=_ints)
    metric: Ints = field(default_factory=_ints)
    value: Reals = field(default_factory=_reals)


@dataclass
class Lane:
    """One device of one rank. `ranks`: the ranks it stands for (several when a simulated file represents a class).

    `launches`: whether kernels carry their launch time at all. `sm_count`: None where the trace does not say. `why`:
    reasons for what the family or the file cannot give, by subject (`coverage`, `step`, …), in the words a user
    should see.
    """

    family: str
    source: str
    rank: int
    device: str
    ranks: tuple[int, ...] = ()
    world_size: int | None = None
    device_name: str = ""
    sm_count: int | None = None
    tick_s: float = NS
    launches: bool = False
    step_kind: str = ""
    names: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    kernels: Kernels = field(default_factory=Kernels)
    collectives: Collectives = field(default_factory=Collectives)
    copies: Copies = field(default_factory=Copies)
    steps: Steps = field(default_factory=Steps)
    marks: Marks = field(default_factory=Marks)
    samples: Samples = field(default_factory=Samples)
    why: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """`make()`, computed once for this lane however many tools ask for it."""
        if key not in self.memo:
            self.memo[key] = make()
        found: T = self.memo[key]
        return found

    @property
    def weight(self) -> int:
        """How many ranks it stands for."""
        return max(1, len(self.ranks))

    @property
    def label(self) -> str:
        """How a user names it."""
        if self.family != "kineto":
            return self.device
        return f"rank {self.rank} {self.device}" if self.facts.get("devices", 1) > 1 else f"rank {self.rank}"

    @property
    def has_work(self) -> bool:
        """Whether any device activity was recorded."""
        return len(self.kernels) + len(self.copies) > 0


@dataclass
class Timeline:
    """All lanes of a trace folder, ordered by rank and device, and what went wrong reading it."""

    source: str
    family: str
    lanes: list[Lane]
    warnings: list[str] = field(default_factory=list)

    @property
    def device_lanes(self) -> list[Lane]:
        """Lanes on which a device did anything."""
        return [lane for lane in self.lanes if lane.has_work]


def rows(table: Any, chosen: Any) -> Any:
    """The same column table with only the `chosen` rows (indices or mask)."""
    return type(table)(**{f.name: getattr(table, f.name)[chosen] for f in fields(table)})
