"""The execution graph of one training step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.graph import COMPUTE, ExecutionGraph, RankClass, Segment
from backends.layout import Layout, defers_reduction
from backends.model.operations import Batch
from backends.model.shapes import LayerKind
from backends.ops import Axis, Communication, Compute, Item, Transfer
from backends.parts import Chunk, ModelParts, check_plan
from backends.stages import Action, schedule
from runs.plan import ParallelPlan
from runs.workload import Workload

DATA = "dp"


def training_graph(workload: Workload, plan: ParallelPlan) -> ExecutionGraph:
    """One optimizer step of `workload` under `plan`: one rank class per pipeline stage.

    Raises:
        BadInputError: the plan cannot realise the workload, or its schedule or degrees are impossible.
    """
    check_plan(workload, plan)
    layout = Layout(plan)
    classes = tuple(RankClass(s, s, layout.stage_ranks(s)) for s in range(plan.pp))
    graph = ExecutionGraph(workload, plan, layout, classes)
    _TrainingStep(graph, ModelParts(workload.model, plan, workload.precision)).build()
    return graph


@dataclass
class _Unit:
    """The grain of sharding and gradient reduction: one layer, or the embedding or head table."""

    segment: Segment
    dense: float
    expert: float


@dataclass
class _TrainingStep:
    graph: ExecutionGraph
    parts: ModelParts
    messages: dict[tuple[str, int, int], int] = field(default_factory=dict)
    waits: list[tuple[int, tuple[str, int, int]]] = field(default_factory=list)
    segments: dict[tuple[str, str], Segment] = field(default_factory=dict)
    units: list[int] = field(default_factory=list)
    gathered: set[tuple[int, int]] = field(default_factory=set)
    passes: dict[tuple[int, int, str], list[_Unit]] = field(default_factory=dict)
    runs: dict[tuple[str, ...], tuple[Segment, ...]] = field(default_factory=dict)

    # --- the whole step ---------------------------------------------------------------------------------------------

    def build(self) -> None:
        plan = self.graph.plan
        for stage in range(plan.pp):
            self.units = []
            order = schedule(plan.pipeline_schedule, stage, plan.pp, plan.num_microbatches, self.parts.chunks_per_stage)
            for action in order:
                self._action(stage, action, self._is_last(order, action))
        for task, key in self.waits:
            self.graph.tasks[task].deps.append(self.messages[key])
        self._finish()

    @staticmethod
    def _is_last(order: Sequence[Action], action: Action) -> bool:
        """Whether this is the chunk's last backward of the step, after which its gradients are complete."""
        if action.phase == "forward":
            return False
        return [a for a in order if a.phase == "backward" and a.chunk == action.chunk][-1] is action

    def _action(self, stage: int, action: Action, last: bool) -> None:
        chunk = self.parts.chunk(stage, action.chunk)
        virtual = action.chunk * self.graph.plan.pp + stage
        key = (stage, action.chunk, action.phase)
        if key not in self.passes:
            self.passes[key] = self._units(chunk, action.phase)
        units = self.passes[key]
        first = len(self.graph.tasks)
        end = self._run(stage, action, units, last)
        needs_input = not (chunk.first if action.phase == "forward" else chunk.last)
        if needs_input:
            start = next(i for i in range(first, end + 1) if self.graph.tasks[i].stream == COMPUTE)
            source = virtual - 1 if action.phase == "forward" else virtual + 1
            self.waits.append((start, (action.phase, action.microbatch, source)))
        if not (chunk.last if action.phase == "forward" else chunk.first):
            self._send(stage, action, virtual, end)

    def _send(self, stage: int, action: Action, virtual: int, done: int) -> None:
        plan = self.graph.plan
        target = (virtual + (1 if action.phase == "forward" else -1)) % plan.pp
        index = self.graph.add(
            (stage, target), f"pp{stage}>{target}", self._message(f"send_{action.phase}"),
            f"send {action.phase} {action.microbatch}", "communication", deps=(done,), microbatch=action.microbatch,
            chunk=action.chunk, groups=self.graph.layout.pipeline_pairs(stage, target),
        )  # fmt: skip
        self.messages[action.phase, action.microbatch, virtual] = index

    def _message(self, name: str) -> tuple[Segment, ...]:
        if (name,) not in self.runs:
            item = Communication(name, "send_recv", "pp", self._boundary_bytes(), int(self.parts.element))
            self.runs[name,] = (Segment(name, (item,)),)
        return self.runs[name,]

    def _boundary_bytes(self) -> float:
        tokens = self._batch.tokens / self.parts.sharding.sequence_split
        return self.parts.element * tokens * self.parts.model.hidden_size

    @property
    def _batch(self) -> Batch:
        workload, plan = self.graph.workload, self.graph.plan
        tokens = plan.micro_batch_size * workload.seq_len / plan.cp
        return Batch(tokens, workload.seq_len / 2)

    # --- segments ---------------------------------------------------------------------------------------------------

    def _once(self, key: tuple[str, str], items: tuple[Item, ...]) -> Segment:
        if key not in self.segments:
            self.segments[key] = Segment(" ".join(key), items)
        return self.segments[key]

    def _layer_segment(self, kind: LayerKind, phase: str) -> Segment:
        found = self.segments.get((kind, phase))
        if found is None:
            found = self._once((kind, phase), self._layer_items(kind, phase))
        return found

    def _layer_items(self, kind: LayerKind, phase: str) -> tuple[Item, ...]:
        builder, recompute = self.parts.builder(self._batch), self.graph.plan.recompute
        if phase == "forward":
            return builder.forward(kind)
        again: tuple[Item, ...] = ()
        if recompute == "full":
            again = builder.forward(kind)
        elif recompute == "selective":
            again = builder.cheap_recompute(kind)
        return (*again, *builder.backward(kind), *self._accumulate(kind))

    def _accumulate(self, kind: LayerKind) -> tuple[Item, ...]:
        """Add a layer's weight gradients to those of earlier micro-batches; sharded ones are reduced instead."""
        if self.parts.degrees.stage >= 2 and not defers_reduction(self.graph.plan):
            return ()
        count, width = sum(self.parts.layer(kind)), self.graph.plan.state_bytes.gradient
        nbytes = (self.parts.element + 2 * width) * count
        return (Compute("accumulate_gradients", "elementwise", count, nbytes, launches=6),)

    def _units(self, chunk: Chunk, phase: str) -> list[_Unit]:
        units = [_Unit(self._layer_segment(kind, phase), *self.parts.layer(kind)) for kind in chunk.kinds]
        builder = self.parts.builder(self._batch)
        table = self.parts.table(chunk) / max(1, chunk.first + chunk.last)
        if phase == "forward":
            first, last = builder.embedding, lambda: builder.head(loss=True)
        else:
            first, last = builder.embedding_backward, builder.head_backward
            units.reverse()
        before = [_Unit(self._table("embedding", phase, first), table, 0.0)] if chunk.first else []
        after = [_Unit(self._table("head", phase, last), table, 0.0)] if chunk.last else []
        return before + units + after if phase == "forward" else after + units + before

    def _table(self, name: str, phase: str, items: object) -> Segment:
        key = (name, phase)
        return self.segments[key] if key in self.segments else self._once(key, items())  # type: ignore[operator]

    # --- passes -----------------------------------------------------------------------------------------------------

    def _run(self, stage: int, action: Action, units: list[_Unit], last: bool) -> int:
        """Add one pass; returns its last compute task. Passes that talk to data-parallel peers go unit by unit."""
        stage_of_zero = self.parts.degrees.stage
        sharded = stage_of_zero >= 2 and self._needs_gather(stage, action)
        reduces = self._reduces(action, last)
        bucketed = reduces and self.graph.plan.overlap_communication and not defers_reduction(self.graph.plan)
        label = f"{action.phase} {action.microbatch}"
        if not sharded and not bucketed:
            end = self._compute(stage, action, self._joined(units), label)
            if reduces:
                self._reduce(stage, action, units, end)
            return end
        end = -1
        gather = self._gather(stage, action, units[0], 0) if sharded else None
        for position, unit in enumerate(units):
            end = self._compute(stage, action, self._joined([unit]), label, gather)
            self.units.append(end)
            if sharded and position + 1 < len(units):
                gather = self._gather(stage, action, units[position + 1], position + 1)
            if bucketed:
                self._reduce(stage, action, [unit], end)
        if reduces and not bucketed:
            self._reduce(stage, action, units, end)
        return end

    def _joined(self, units: list[_Unit]) -> tuple[Segment, ...]:
        """The segments of `units`; equal runs are one object, so that a simulator times them once."""
        key = tuple(unit.segment.name for unit in units)
        if key not in self.runs:
            self.runs[key] = tuple(unit.segment for unit in units)
        return self.runs[key]

    def _compute(
        self, stage: int, action: Action, segments: tuple[Segment, ...], label: str, gather: int | None = None
    ) -> int:
        return self.graph.add(
            (stage,), COMPUTE, segments, label, action.phase, deps=(gather,), microbatch=action.microbatch,
            chunk=action.chunk,
        )  # fmt: skip

    def _needs_gather(self, stage: int, action: Action) -> bool:
        """Whether a pass has to gather its weights: it does unless an earlier pass left them gathered.

        A forward pass leaves them where they are not resharded after it, a backward pass in a pipeline (see
        `defers_reduction`).
        """
        key = (stage, action.chunk)
        known = key in self.gathered
        forward = action.phase == "forward"
        kept = not self.graph.plan.reshard_after_forward if forward else self._stays
        (self.gathered.add if kept else self.gathered.discard)(key)
        return not known

    @property
    def _stays(self) -> bool:
        """Whether a backward pass leaves weights gathered: those that no pass reshards do so in any pipeline."""
        plan = self.graph.plan
        return defers_reduction(plan) or (plan.pp > 1 and not plan.reshard_after_forward)

    def _gather(self, stage: int, action: Action, unit: _Unit, position: int) -> int | None:
        """All-gather one unit, while the unit before it computes where the framework prefetches, else after that.

        The next unit's gather is issued before the gradients of this one are reduced, so that it does not queue
        behind them.
        """
        items = self._state_items(stage, "all_gather", unit.dense, unit.expert, self.graph.plan.state_bytes.gathered)
        if not items:
            return None
        ahead = 2 if self.graph.plan.overlap_communication else 1
        dep = self.units[-ahead] if len(self.units) >= ahead else None
        name = f"gather {unit.segment.name} {stage}"
        if (name,) not in self.runs:
            self.runs[name,] = (Segment(name, items),)
        return self.graph.add(
            (stage,), DATA, self.runs[name,],
            f"gather {action.phase} {position}", "communication", deps=(dep,), microbatch=action.microbatch,
        )  # fmt: skip

    def _reduces(self, action: Action, last: bool) -> bool:
        """Sharded gradients (ZeRO 2 and 3) are reduced after every backward, in a pipeline and otherwise once they are
        complete."""
        every = self.parts.degrees.stage >= 2 and not defers_reduction(self.graph.plan)
        return action.phase == "backward" and (last or every)

    def _reduce(self, stage: int, action: Action, units: list[_Unit], after: int) -> None:
        dense, expert = sum(u.dense for u in units), sum(u.expert for u in units)
        width = self.graph.plan.state_bytes.gradient
        kind = "reduce_scatter" if self.parts.degrees.stage else "all_reduce"
        items = self._state_items(stage, kind, dense, expert, width)
        if items:
            name = f"reduce {'all' if len(units) > 1 else units[0].segment.name} {stage} {action.chunk}"
            if (name,) not in self.runs:
                self.runs[name,] = (Segment(name, items),)
            self.graph.add(
                (stage,), DATA, self.runs[name,],
                f"reduce gradients {action.microbatch}", "communication", deps=(after,), microbatch=action.microbatch,
            )  # fmt: skip

    def _state_items(self, stage: int, kind: str, dense: float, expert: float, width: float) -> tuple[Item, ...]:
        """Collectives over model state: along the shard axis, then along replicas of shards; experts along theirs."""
        degrees, items = self.parts.degrees, list[Item]()
        dtype = 4 if width >= 4 else 2
        shared: Axis = "dp" if degrees.stage else "replicate"
        experts = self.parts.expert_replicas > 1 and expert > 0
        apart = expert and self.graph.plan.ep > 1
        everything = dense if apart else dense + expert
        if self.graph.layout.groups(shared, stage) and everything:
            items.append(Communication(f"{kind}_state", kind, shared, everything * width, dtype))  # type: ignore[arg-type]
        if degrees.stage and degrees.replicate > 1 and kind == "reduce_scatter":
            nbytes = everything * width / degrees.shard
            items.append(Communication("all_reduce_shards", "all_reduce", "replicate", nbytes, dtype))
        if apart and experts and self.graph.layout.groups("edp", stage):
            items.append(Communication(f"{kind}_experts", kind, "edp", expert * width, dtype))  # type: ignore[arg-type]
        return tuple(items)

    # --- the end of the step ----------------------------------------------------------------------------------------

    def _finish(self) -> None:
        graph, pp = self.graph, self.graph.plan.pp
        if self.parts.model.tied_embeddings and pp > 1:
            self._tied_embeddings()
        norms = [self._grad_norm(stage) for stage in range(pp)]
        ready = list(norms)
        if world := graph.layout.world:
            item = Communication("grad_norm_all_reduce", "all_reduce", "world", 4.0, 4)
            index = graph.add(
                tuple(range(pp)), "world", (Segment("grad_norm", (item,)),), "gradient norm", "communication",
                deps=norms, groups=world,
            )  # fmt: skip
            ready = [index] * pp
        for stage in range(pp):
            self._optimizer(stage, ready[stage])

    def _tied_embeddings(self) -> None:
        """First and last stage hold the same table and add their gradients."""
        graph, last = self.graph, self.graph.plan.pp - 1
        nbytes = self.parts.table(self.parts.chunk(0, 0)) * graph.plan.state_bytes.gradient
        item = Communication("all_reduce_tied_embedding", "all_reduce", "pp", nbytes, 4)
        graph.add(
            (0, last), "embedding", (Segment("tied", (item,)),), "tied embedding", "communication",
            deps=(graph.last(0), graph.last(last), graph.last(0, DATA), graph.last(last, DATA)),
            groups=graph.layout.pipeline_pairs(0, last),
        )  # fmt: skip

    def _local_state(self, stage: int) -> float:
        """Parameters whose optimizer state one device of `stage` keeps."""
        dense, expert = self.parts.stage_parameters(stage)
        if not self.parts.degrees.stage:
            return dense + expert
        return dense / self.parts.degrees.shard + expert / self.parts.expert_shard

    def _grad_norm(self, stage: int) -> int:
        graph = self.graph
        count = self._local_state(stage)
        op = Compute("grad_norm", "optimizer", 2 * count, graph.plan.state_bytes.gradient * count, launches=8)
        return graph.add(
            (stage,), COMPUTE, (Segment("grad_norm", (op,)),), "gradient norm", "optimizer",
            deps=(graph.last(stage, DATA), graph.last(stage, "embedding")),
        )  # fmt: skip

    def _optimizer(self, stage: int, ready: int) -> None:
        """Adam on the local shard; ZeRO 1 then gathers the new weights (2 and 3 do so before each use)."""
        graph, sizes = self.graph, self.graph.plan.state_bytes
        count = self._local_state(stage)
        items: tuple[Item, ...] = (
            Compute("adam", "optimizer", 12 * count,
                    (sizes.gradient + 2 * sizes.optimizer + 2 * sizes.parameter) * count, launches=24),
        )  # fmt: skip
        if graph.plan.offload:
            items = (
                Transfer("Memcpy DtoH (Device -> Pinned)", "DtoH", sizes.gradient * count),
                Compute("cpu_adam", "host", 12 * count, (sizes.gradient + 2 * sizes.optimizer) * count),
                Transfer("Memcpy HtoD (Pinned -> Device)", "HtoD", sizes.parameter * count),
            )
        done = graph.add((stage,), COMPUTE, (Segment("optimizer", items),), "optimizer", "optimizer", deps=(ready,))
        if self.parts.degrees.stage == 1:
            dense, expert = self.parts.stage_parameters(stage)
            gathers = self._state_items(stage, "all_gather", dense, expert, sizes.parameter)
            if gathers:
                graph.add(
                    (stage,), DATA, (Segment("gather weights", gathers),), "gather weights", "communication",
                    deps=(done,),
                )  # fmt: skip
