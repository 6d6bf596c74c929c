"""Which ranks form which group: tensor, context, expert, data and pipeline groups of every pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

from backends.ops import Axis
from runs.errors import BadInputError
from runs.plan import ParallelPlan

Groups = tuple[tuple[int, ...], ...]
_DEFAULT_ORDER = ("tp", "cp", "ep", "shard", "replicate", "pp")


def _axis_order(mapping: str | None) -> tuple[str, ...]:
    """The order of axes, fastest first, that a `rank_mapping` such as `ep-tp` asks for; axes it leaves out follow."""
    if not mapping or mapping == "default":
        return _DEFAULT_ORDER
    named = [part for axis in mapping.split("-") for part in (("shard", "replicate") if axis == "dp" else (axis,))]
    if len(set(named)) != len(named) or not set(named) <= set(_DEFAULT_ORDER):
        raise BadInputError(
            f"rank_mapping {mapping!r} is no order of axes", "join some of tp, cp, ep, dp, pp by '-', fastest first"
        )
    return (*named, *(axis for axis in _DEFAULT_ORDER if axis not in named))


@dataclass(frozen=True)
class ShardDegrees:
    """How model state is spread over data-parallel ranks: ZeRO `stage`, shards, and replicas of the shards.

    Stage 1 shards optimizer states. Stages 2 and 3 shard weights and gradients too, as FSDP does: 3 drops gathered
    weights after the forward pass, 2 keeps them for the backward pass (`reshard_after_forward` of the plan decides).
    """

    stage: int
    shard: int
    replicate: int

    @classmethod
    def of(cls, plan: ParallelPlan) -> ShardDegrees:
        """Read `plan`: `dp_shard` above 1 means sharding (stage 3 unless `zero_stage` says less); a `zero_stage`
        without `dp_shard` shards over all data-parallel ranks. Context-parallel ranks shard too."""
        if plan.dp_shard > 1:
            return cls(plan.zero_stage or 3, plan.dp_shard * plan.cp, plan.dp_replicate)
        if plan.zero_stage:
            return cls(plan.zero_stage, plan.dp * plan.cp, 1)
        return cls(0, 1, plan.dp * plan.cp)


COMPILED_PIPELINES = ("maxtext",)
"""Frameworks whose pipeline is one compiled program, which gathers and reduces in every pass as without a pipeline."""


def defers_reduction(plan: ParallelPlan) -> bool:
    """Whether sharded weights stay gathered after a backward pass, and their gradients whole until the last.

    So does PyTorch's pipeline with FSDP2 (`backward_maybe_with_nosync` of its stages).
    """
    return plan.pp > 1 and plan.framework not in COMPILED_PIPELINES and ShardDegrees.of(plan).stage >= 2


@dataclass(frozen=True)
class Layout:
    """The rank grid of a plan."""

    plan: ParallelPlan
    _pairs: dict[tuple[int, int], Groups] = field(default_factory=dict, repr=False, compare=False)
    _memo: dict[tuple[str, int], Groups] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def degrees(self) -> dict[str, int]:
        """Size of each axis."""
        plan = self.plan
        own = plan.ep if plan.expert_placement == "own_axis" else 1
        return {
            "tp": plan.tp, "cp": plan.cp, "ep": own, "shard": plan.dp_shard, "replicate": plan.dp_replicate,
            "pp": plan.pp,
        }  # fmt: skip

    @cached_property
    def _strides(self) -> dict[str, int]:
        strides, step = {}, 1
        for axis in _axis_order(self.plan.rank_mapping):
            strides[axis] = step
            step *= self.degrees[axis]
        return strides

    def _offsets(self, axes: tuple[str, ...]) -> list[int]:
        """Rank offsets of all positions along `axes`, the first axis fastest."""
        ranges = [range(0, self.degrees[a] * self._strides[a], self._strides[a]) for a in reversed(axes)]
        return [sum(position) for position in product(*ranges)]

    def stage_ranks(self, stage: int) -> tuple[int, ...]:
        """All ranks of pipeline stage `stage`, ascending."""
        base = stage * self._strides["pp"]
        return tuple(sorted(base + o for o in self._offsets(("tp", "cp", "ep", "shard", "replicate"))))

    def groups(self, axis: Axis, stage: int) -> Groups:
        """The groups along `axis` within `stage`; groups of one rank are left out. Equal questions give one object."""
        key = (axis, stage)
        if key not in self._memo:
            self._memo[key] = self._find_groups(axis, stage)
        return self._memo[key]

    def _find_groups(self, axis: Axis, stage: int) -> Groups:
        inside: tuple[str, ...]
        if axis == "tp":
            inside = ("tp",)
        elif axis == "cp":
            inside = ("cp",)
        elif axis == "ep":
            return self._expert_groups(stage)
        elif axis == "edp":
            return self._expert_data_groups(stage)
        elif axis == "dp":
            inside = self._shard_axes
        elif axis == "replicate":
            inside = tuple(a for a in ("cp", "shard", "replicate") if a not in self._shard_axes)
        else:
            raise BadInputError(
                f"axis {axis!r} has no groups inside a stage", "ask for tp, cp, ep, edp, dp or replicate"
            )
        return self._carve(inside, stage)

    @property
    def _shard_axes(self) -> tuple[str, ...]:
        degrees = ShardDegrees.of(self.plan)
        if degrees.stage == 0:
            return ()
        return ("cp", "shard") if self.plan.dp_shard > 1 else ("cp", "shard", "replicate")

    def _carve(self, inside: tuple[str, ...], stage: int) -> Groups:
        if prod(self.degrees[a] for a in inside) < 2:
            return ()
        outside = tuple(a for a in ("tp", "cp", "ep", "shard", "replicate") if a not in inside)
        base, members = stage * self._strides["pp"], self._offsets(inside)
        return tuple(tuple(base + o + m for m in members) for o in self._offsets(outside))

    @property
    def _expert_axes(self) -> tuple[str, ...]:
        if self.plan.expert_placement == "inside_dp_tp":
            return ("tp", "cp", "shard", "replicate")
        return ("cp", "shard", "replicate")

    def _expert_groups(self, stage: int) -> Groups:
        if self.plan.ep == 1:
            return ()
        if self.plan.expert_placement == "own_axis":
            return self._carve(("ep",), stage)
        return tuple(
            group[i : i + self.plan.ep]
            for group in self._expert_pools(stage)
            for i in range(0, len(group), self.plan.ep)
        )

    def _expert_data_groups(self, stage: int) -> Groups:
        """Ranks that hold the same experts: one of each expert group of a pool."""
        pools = self._expert_pools(stage)
        ep = self.plan.ep if self.plan.expert_placement != "own_axis" else 1
        if not pools or len(pools[0]) // ep < 2:
            return ()
        return tuple(group[i::ep] for group in pools for i in range(ep))

    def _expert_pools(self, stage: int) -> Groups:
        pools = self._carve(self._expert_axes, stage)
        if pools and len(pools[0]) % self.plan.ep and self.plan.expert_placement != "own_axis":
            raise BadInputError(
                f"ep={self.plan.ep} does not divide the {len(pools[0])} ranks that expert groups are carved from",
                "choose ep so that it divides dp·cp (dp·cp·tp where experts take tensor-parallel ranks)",
            )
        if not pools and self.plan.ep > 1 and self.plan.expert_placement != "own_axis":
            raise BadInputError(
                f"ep={self.plan.ep} finds no ranks to spread experts over", "raise dp or cp, or set ep=1"
            )
        return pools

    def pipeline_pairs(self, sender: int, receiver: int) -> Groups:
        """Sender and receiver of every message between two stages; equal questions give one object."""
        key = (sender, receiver)
        if key not in self._pairs:
            self._pairs[key] = tuple(zip(self.stage_ranks(sender), self.stage_ranks(receiver), strict=True))
        return self._pairs[key]

    @cached_property
    def world(self) -> Groups:
        """One group of all ranks."""
        return (tuple(range(self.plan.world_size)),) if self.plan.world_size > 1 else ()
