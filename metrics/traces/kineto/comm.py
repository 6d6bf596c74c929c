"""The communication kernels of a rank: which operation, how many bytes, in which group, from the best record there
is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import metrics.identify as identify
from metrics.traces.kineto.collect import Span
from metrics.traces.kineto.events import KernelArgs
from metrics.traces.timeline import NEVER, Collectives, Ints, Op

_MOST = 2**53  # bytes and counts above it are damage: no message is that long, and a float no longer holds it


@dataclass
class Annotation:
    """What the host said about a launch: an operation and, where recorded, the collective's arguments."""

    op: Op
    args: KernelArgs | None


class HostAnnotations:
    """Host spans `nccl:*` and `record_param_comms` by thread, to be asked for the one around a launch."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans: dict[int, list[Span]] = {}
        for span in sorted(spans, key=lambda s: s.start):
            if span.cat != "gpu_user_annotation" and span.name.startswith(("nccl:", "record_param_comms")):
                self._spans.setdefault(span.thread, []).append(span)
        self._starts = {thread: [s.start for s in found] for thread, found in self._spans.items()}

    def around(self, thread: int, time: int) -> Annotation:
        """The operation and arguments of the annotations that contain `time` on `thread`; `UNKNOWN` when there are
        none."""
        spans = self._spans.get(thread, [])
        last = bisect_right(self._starts.get(thread, []), time)
        inside = [span for span in spans[max(0, last - 8) : last] if span.end >= time]
        op, args = Op.UNKNOWN, None
        for span in inside:
            args = span.args if span.args is not None and span.args.collective else args
            op = identify.op_of_collective(span.name) if span.name.startswith("nccl:") else op
        if args is not None and op is Op.UNKNOWN:
            op = identify.op_of_collective(str(args.collective))
        return Annotation(op, args)


def collectives(
    rows: Ints,
    names: Sequence[str],
    name_ids: Ints,
    args: dict[int, KernelArgs],
    launches: tuple[Ints, Ints],
    hosts: HostAnnotations,
) -> tuple[Collectives, list[str]]:
    """One row for each kernel in `rows`, and the names of the process groups.

    `args` holds kernels' own collective arguments by row, `launches` launch time and thread of every kernel (`NEVER`,
    -1: none).
    """
    groups: dict[str, int] = {}
    out = []
    called = zip(rows.tolist(), launches[0][rows].tolist(), launches[1][rows].tolist(), strict=True)
    for kernel, (row, time, thread) in enumerate(called):
        own = args.get(row)
        host = hosts.around(thread, time) if own is None and time != NEVER else Annotation(Op.UNKNOWN, None)
        best = own or host.args
        op = identify.op_of_collective(str(own.collective)) if own else host.op
        if op is Op.UNKNOWN:
            op = identify.op_of_kernel(names[name_ids[row]])
        out.append((kernel, int(op), *_sizes(best), *_group(best, groups)))
    table = np.array(out, np.int64).reshape(-1, 7)
    return Collectives(rows, *(table[:, i] for i in range(1, 7))), list(groups)


def _sizes(args: KernelArgs | None) -> tuple[int, int, int]:
    if args is None:
        return -1, -1, -1
    size = identify.element_bytes(str(args.dtype)) if args.dtype is not None else None
    return _bytes(args.in_elements, size), _bytes(args.out_elements, size), _int(args.group_size)


def _bytes(elements: object, size: int | None) -> int:
    count = _int(elements)
    return count * size if size is not None and 0 <= count * size <= _MOST else -1


def _int(value: object) -> int:
    known = type(value) is int or (isinstance(value, int | float | str) and str(value).strip().isdigit())
    number = int(value) if known else -1  # type: ignore[call-overload]
    return number if abs(number) <= _MOST else -1


def _group(args: KernelArgs | None, groups: dict[str, int]) -> tuple[int, int]:
    """Index of the group's name (with its ranks, since names repeat across disjoint groups) and the sequence number."""
    if args is None or args.group is None:
        return -1, -1
    key = f"{args.group} {args.group_ranks or ''}".strip()
    return groups.setdefault(key, len(groups)), _int(args.sequence)
