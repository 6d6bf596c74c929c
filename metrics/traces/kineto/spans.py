"""Host spans of a Kineto trace: steps, serving iterations and what they say of themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from metrics.traces.kineto.collect import Span
from metrics.traces.timeline import StepKind, Steps

_PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)")
_VLLM = re.compile(r"execute_(?:\d+_)?context_(\d+)\(([^)]*)\)_generation_(\d+)\(([^)]*)\)")
_SGLANG = re.compile(r"step\[(\w+)((?: \w+=\d+)*)\]")
_RUN_BATCH = re.compile(r"(?:^|[\s.:_])_?run_batch(?:_inner)?$")
_TOKENS = re.compile(r"^(?:sq)?(\d+)")


def is_serving(name: str) -> bool:
    """Whether a span is an iteration of a serving engine (vLLM, SGLang)."""
    return bool(_VLLM.match(name) or _SGLANG.match(name) or _RUN_BATCH.search(name))


def describe(name: str) -> tuple[StepKind, int, int, int]:
    """Kind, prefill requests, prefill tokens and decode requests of a serving span; -1 for what it does not say.

    vLLM: `execute_context_<requests>(<tokens>…)_generation_<requests>(<tokens>…)`, also with the number of tokens
    after `execute_` and `sq<tokens>` inside. SGLang: `step[DECODE bs=<requests>]`, `step[EXTEND bs=<requests>
    toks=<tokens>]`.
    """
    if match := _VLLM.match(name):
        prefill, decode = int(match[1]), int(match[3])
        tokens = _TOKENS.match(match[2])
        return _kind(prefill, decode), prefill, int(tokens[1]) if tokens else -1, decode
    if match := _SGLANG.match(name):
        numbers = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", match[2])}
        requests = numbers.get("bs", -1)
        if match[1] == "DECODE":
            return StepKind.DECODE, 0, 0, requests
        if match[1] in ("EXTEND", "PREFILL"):
            return StepKind.PREFILL, requests, numbers.get("toks", -1), 0
        return StepKind.MIXED, requests, numbers.get("toks", -1), -1
    return StepKind.PLAIN, -1, -1, -1


def _kind(prefill: int, decode: int) -> StepKind:
    if prefill and decode:
        return StepKind.MIXED
    return StepKind.PREFILL if prefill else StepKind.DECODE


def find_steps(spans: Sequence[Span]) -> tuple[str, Steps]:
    """The iterations of a rank: ProfilerStep#N spans of any host category, else serving iterations, else none.

    A span inside another chosen span is not a second step. Serving spans that say what the iteration did stand over the
    ones that do not: SGLang's `step[...]` lies inside the Python frame `run_batch`. Spans on the device timeline are
    projections that ROCm places wrongly; they are never steps.
    """
    host = [span for span in spans if span.cat != "gpu_user_annotation"]
    marked = [span for span in host if _PROFILER_STEP.match(span.name)]
    if marked:
        return "ProfilerStep", _steps(_outermost(marked))
    serving = [span for span in host if is_serving(span.name)]
    telling = [span for span in serving if describe(span.name)[0] is not StepKind.PLAIN]
    return ("serving", _steps(_outermost(telling or serving))) if serving else ("", Steps())


def _outermost(spans: list[Span]) -> list[Span]:
    chosen: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        if not chosen or span.end > chosen[-1].end:
            chosen.append(span)
    return chosen


def _steps(spans: list[Span]) -> Steps:
    said = [describe(span.name) for span in spans]

    def column(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(values, np.int64)

    return Steps(
        start=column([s.start for s in spans]),
        end=column([s.end for s in spans]),
        kind=column([int(d[0]) for d in said]),
        prefill_requests=column([d[1] for d in said]),
        prefill_tokens=column([d[2] for d in said]),
        decode_requests=column([d[3] for d in said]),
        flops=column([-1] * len(spans)),
    )
