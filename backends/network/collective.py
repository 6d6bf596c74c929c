"""What is asked of the network, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from runs.errors import BadInputError

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]
Algorithm = Literal[
    "auto",
    "ring",
    "direct",
    "halving_doubling",
    "double_binary_tree",
    "double_binary_tree_astra",
    "hierarchical",
    "multi_ring",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


@dataclass(frozen=True)
class Collective:
    """One collective, run by each of `groups` at the same time, so that the groups contend.

    `nbytes`, the same on every rank: all_reduce, reduce_scatter, all_to_all: the full input buffer of one rank;
    all_gather: the full output; broadcast: the buffer, from the first rank of a group; send_recv: the message, from
    the first rank of a group to the second. `groups` holds device numbers in rank order; no device twice. None as the
    algorithm is `auto`. A group of one rank moves nothing. A device may be in several groups of send_recv only.

    Raises:
        BadInputError: an unknown kind or algorithm, a size that is no positive number, a group that is impossible.
    """

    kind: Kind
    nbytes: float
    groups: tuple[tuple[int, ...], ...]
    algorithm: Algorithm | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInputError(f"no collective is called {self.kind!r}", f"known: {', '.join(KINDS)}")
        if self.algorithm is not None and self.algorithm not in ALGORITHMS:
            raise BadInputError(f"no algorithm is called {self.algorithm!r}", f"known: {', '.join(ALGORITHMS)}")
        if not 0 < self.nbytes < 2**63:
            raise BadInputError(f"{self.kind} of {self.nbytes} bytes", "give a size above zero")
        if not self.groups or not all(self.groups):
            raise BadInputError(f"{self.kind}: there is no group, or an empty one", "name the ranks of each group")
        self._check_groups()

    def _check_groups(self) -> None:
        if self.kind == "send_recv":
            if any(len(group) != 2 or group[0] == group[1] for group in self.groups):
                raise BadInputError("send_recv: a group is (sender, receiver)", "give two different ranks a group")
            return
        members = [device for group in self.groups for device in group]
        if len(set(members)) != len(members):
            raise BadInputError(f"{self.kind}: a device is in two groups, or twice in one", "make the groups disjoint")


@dataclass(frozen=True)
class CollectiveTiming:
    """`seconds` from the start to the last rank's end; payload plus header bytes on each link used; the fullest link.

    `bottleneck_link` is the link that was busiest over the time, -1 when nothing moved. `algorithm` is what ran.
    """

    seconds: float
    link_bytes: Mapping[int, float]
    bottleneck_link: int
    algorithm: str = ""
