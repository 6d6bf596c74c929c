"""The execution graph of serving one batch: prefill iterations, then decode iterations of a batch of fixed size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from backends.compute import parameters
from backends.graph import COMPUTE, ExecutionGraph, RankClass, Segment
from backends.layout import Layout
from backends.memory import concurrent_sequences, prefill_tokens
from backends.model.operations import Batch, LayerBuilder
from backends.ops import Communication, Compute, Item, Transfer
from backends.parts import ModelParts, check_plan
from runs.plan import ParallelPlan
from runs.workload import Workload

DECODE_STEPS = 128
"""Decode iterations that are simulated at least, so that a benchmark entry has the number its rules ask for."""
PREFILL_STEPS = 5
"""Prefill iterations of a workload that generates nothing further."""
KV_BLOCK = 16
"""Tokens of a block of the paged key/value cache: attention reads whole blocks (Kwon et al. 2023)."""
GATHERING_BACKENDS = ("naive", "allgather_reducescatter")
"""All-to-all backends that gather all tokens on all expert ranks and reduce-scatter the results."""


def inference_graph(workload: Workload, plan: ParallelPlan) -> ExecutionGraph:
    """All iterations of one batch under `plan`; replicas of data parallelism run alike, one class per stage.

    The batch is split over replicas; a replica serves at most `max_num_seqs` at a time (equal waves follow each
    other, one is simulated), prefills at most `max_num_batched_tokens` tokens an iteration, and then decodes.
    Pipeline stages work on as many parts of the batch as there are stages.

    Raises:
        BadInputError: the plan cannot realise the workload.
    """
    check_plan(workload, plan)
    layout = Layout(plan)
    classes = tuple(RankClass(s, s, layout.stage_ranks(s)) for s in range(plan.pp))
    graph = ExecutionGraph(workload, plan, layout, classes)
    _Serving(graph, ModelParts(workload.model, plan, workload.precision)).build()
    return graph


@dataclass(frozen=True)
class Iteration:
    """One engine iteration: sequences and tokens in prefill, sequences in decode, the context they see."""

    phase: str
    sequences: int
    tokens: int
    context: float
    sampled: int

    def batch(self, share: float, cp: int) -> Batch:
        """The part of it that is `share` of all, on one context-parallel rank."""
        if self.phase == "decode":
            tokens = self.sequences * share
            return Batch(tokens, self.context, tokens * self.context / cp, tokens)
        return Batch(self.tokens * share / cp, self.context, 0.0, self.sampled * share)


def iterations(workload: Workload, plan: ParallelPlan) -> list[Iteration]:
    """The iterations that serve one wave, in order."""
    sequences, length = concurrent_sequences(workload, plan), workload.input_len or workload.seq_len
    prefill = _prefill(sequences, length, prefill_tokens(workload, plan))
    wanted = workload.output_len or 1
    if wanted <= 1:
        repeats = -(-PREFILL_STEPS // len(prefill))
        return prefill * repeats
    steps = max(wanted, DECODE_STEPS)
    contexts = [-(-(length + i + 1) // KV_BLOCK) * KV_BLOCK for i in range(steps)]
    return prefill + [Iteration("decode", sequences, sequences, float(c), sequences) for c in contexts]


def _prefill(sequences: int, length: int, chunk: int) -> list[Iteration]:
    if chunk >= length:
        at_once = chunk // length
        sizes = [at_once] * (sequences // at_once) + ([sequences % at_once] if sequences % at_once else [])
        return [Iteration("prefill", n, n * length, length / 2, n) for n in sizes]
    starts = range(0, length, chunk)
    parts = [(start, min(chunk, length - start)) for start in starts]
    return [
        Iteration("prefill", 1, tokens, start + tokens / 2, int(start + tokens == length))
        for _ in range(sequences)
        for start, tokens in parts
    ]


@dataclass
class _Serving:
    graph: ExecutionGraph
    parts: ModelParts
    messages: dict[tuple[int, int, int], int] = field(default_factory=dict)
    units: dict[int, list[int]] = field(default_factory=dict)
    work: tuple[int, int] = (0, 0)
    _once: dict[tuple[object, ...], Segment] = field(default_factory=dict)
    _passes: dict[tuple[object, ...], tuple[Segment, ...]] = field(default_factory=dict)

    def build(self) -> None:
        plan = self.graph.plan
        steps = iterations(self.graph.workload, plan)
        self.graph.steps = len(steps)
        for step, iteration in enumerate(steps):
            self.work = (iteration.sequences, iteration.tokens)
            groups = min(plan.pp, iteration.sequences) if iteration.phase == "decode" else 1
            for group in range(groups):
                for stage in range(plan.pp):
                    self._pass(step, iteration, group, groups, stage)

    def _pass(self, step: int, iteration: Iteration, group: int, groups: int, stage: int) -> None:
        plan, batch = self.graph.plan, iteration.batch(1 / groups, self.graph.plan.cp)
        segments = self._segments(batch, stage, iteration.phase)
        deps = [self.messages.get(self._needs(step, iteration, group, stage))]
        label = f"{iteration.phase} {step}" + (f" part {group}" if groups > 1 else "")
        end = self._run(segments, stage, deps, label, iteration.phase, step, group)
        if plan.pp > 1:
            self._send(step, batch, group, stage, end)

    def _needs(self, step: int, iteration: Iteration, group: int, stage: int) -> tuple[int, int, int]:
        """The message a pass waits for: activations of the stage before, or the tokens of the last iteration."""
        if stage > 0:
            return step, group, stage - 1
        last = self.graph.plan.pp - 1
        previous = step - 1
        first_decode = iteration.phase == "decode" and (previous, group, last) not in self.messages
        return (previous, 0 if first_decode else group, last) if iteration.phase == "decode" else (-1, 0, 0)

    def _send(self, step: int, batch: Batch, group: int, stage: int, done: int) -> None:
        plan = self.graph.plan
        target = (stage + 1) % plan.pp
        hidden = self.parts.element * batch.tokens / self.parts.sharding.sequence_split * self.parts.model.hidden_size
        nbytes = hidden if target else max(4.0, 4.0 * batch.sampled)
        name = "send_hidden_states" if target else "send_tokens"
        segments = self._message(name, nbytes)
        self.messages[step, group, stage] = self.graph.add(
            (stage, target), f"pp{stage}>{target}", segments, name, "communication", deps=(done,), microbatch=group,
            step=step, groups=self.graph.layout.pipeline_pairs(stage, target),
        )  # fmt: skip

    def _message(self, name: str, nbytes: float) -> tuple[Segment, ...]:
        key = (name, nbytes)
        if key not in self._passes:
            self._passes[key] = (Segment(name, (Communication(name, "send_recv", "pp", nbytes),)),)
        return self._passes[key]

    # --- segments ---------------------------------------------------------------------------------------------------

    def _segment(self, key: tuple[object, ...], items: Callable[[], tuple[Item, ...]]) -> Segment:
        if key not in self._once:
            self._once[key] = Segment(" ".join(map(str, key[:2])), items())
        return self._once[key]

    def _builder(self, batch: Batch) -> LayerBuilder:
        backend = self.graph.plan.all2all_backend
        gathers = backend in GATHERING_BACKENDS or (backend is None and self.graph.plan.framework in ("vllm", "sglang"))
        return self.parts.builder(batch, "all_gather" if gathers else "all_to_all")

    def _segments(self, batch: Batch, stage: int, phase: str) -> tuple[Segment, ...]:
        key = (stage, phase, batch)
        if key not in self._passes:
            self._passes[key] = tuple(self._pass_segments(batch, stage, phase))
        return self._passes[key]

    def _pass_segments(self, batch: Batch, stage: int, phase: str) -> list[Segment]:
        chunk, builder = self.parts.chunk(stage, 0), self._builder(batch)
        layers = {
            kind: self._segment((kind, phase, batch), lambda kind=kind: builder.forward(kind))  # type: ignore[misc]
            for kind in set(chunk.kinds)
        }
        segments = [layers[kind] for kind in chunk.kinds]
        if chunk.first:
            seconds = 1e-6 * parameters()["host"]["serving_iteration_us"]
            schedule = Compute("schedule_iteration", "host", 0.0, 0.0, seconds=seconds)
            segments.insert(0, self._segment(("embedding", phase, batch), lambda: (schedule, *builder.embedding())))
        if chunk.last and batch.sampled:
            segments.append(self._segment(("head", phase, batch), lambda: builder.head(loss=False)))
        return segments

    # --- passes -----------------------------------------------------------------------------------------------------

    def _run(
        self, segments: tuple[Segment, ...], stage: int, deps: list[int | None], label: str, phase: str, step: int,
        group: int,
    ) -> int:  # fmt: skip
        if not self.graph.plan.offload:
            return self._add(segments, stage, deps, label, phase, step, group)
        return self._streamed(segments, stage, deps, label, phase, step, group)

    def _add(
        self, segments: tuple[Segment, ...], stage: int, deps: list[int | None], label: str, phase: str, step: int,
        group: int,
    ) -> int:  # fmt: skip
        return self.graph.add(
            (stage,), COMPUTE, segments, label, phase, deps=deps, microbatch=group, step=step, work=self.work
        )

    def _streamed(
        self, segments: tuple[Segment, ...], stage: int, deps: list[int | None], label: str, phase: str, step: int,
        group: int,
    ) -> int:  # fmt: skip
        """Weights live on the host: each layer's are copied while the layer before it runs."""
        done = self.units.setdefault(stage, [])
        end = -1
        for segment in segments:
            nbytes = self._layer_bytes(segment)
            copy = None
            if nbytes:
                item = Transfer("Memcpy HtoD (Pinned -> Device)", "HtoD", nbytes)
                self._passes.setdefault(("copy", nbytes), (Segment("load weights", (item,)),))
                loads = self._passes["copy", nbytes]
                free = done[-2] if len(done) > 1 else None
                copy = self.graph.add((stage,), "copy", loads, "load weights", "copy", deps=(free,), step=step)
            one = self._passes.setdefault(("one", id(segment)), (segment,))
            end = self._add(one, stage, [*deps, copy], label, phase, step, group)
            done.append(end)
            deps = []
        return end

    def _layer_bytes(self, segment: Segment) -> float:
        kind = segment.name.split()[0]
        if kind not in ("dense", "moe"):
            return 0.0
        return self.graph.plan.state_bytes.parameter * sum(self.parts.layer("moe" if kind == "moe" else "dense"))
