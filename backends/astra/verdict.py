"""Whether a run of ASTRA-sim has a result. Its exit code does not say: it exits 0 with nothing done, and dies with
everything done. What counts is that every rank reported its end.
"""

from __future__ import annotations

from dataclasses import dataclass

from backends.astra.output import Output
from backends.astra.process import Ended

_SHOWN = 6
_STATISTICS = "Only GPU and COMM types are supported"


@dataclass(frozen=True)
class Verdict:
    """`reason` is why there is no result, empty for an accepted run; `notes` are what an accepted run must say."""

    accepted: bool
    reason: str = ""
    notes: tuple[str, ...] = ()
    stuck: tuple[tuple[int, int], ...] = ()


def judge(ended: Ended, output: Output, ranks: int) -> Verdict:
    """Accept a run exactly if `ranks` distinct ranks reported their end and time passed."""
    finished = output.finished
    missing = [rank for rank in range(ranks) if rank not in finished]
    if missing:
        return Verdict(False, _failure(ended, output, ranks, missing), stuck=tuple(output.stuck))
    if max(report.finished_ns or 0 for report in finished.values()) <= 0:
        return Verdict(False, "every rank finished after 0 cycles: nothing was simulated")
    return Verdict(True, notes=tuple(_notes(ended, output)), stuck=tuple(output.stuck))


def _failure(ended: Ended, output: Output, ranks: int, missing: list[int]) -> str:
    how = {
        "time limit": f"no end within {ended.seconds:.3g} s, so it was ended",
        "output limit": "it printed without end, so it was ended",
    }.get(ended.ending, ended.signal_name or f"exit code {ended.code}")
    parts = [f"{ranks - len(missing)} of {ranks} ranks finished ({how})"]
    if cause := first_complaint(output):
        parts.append(cause)
    if output.stuck:
        nodes = [f"{node} on rank {rank}" for rank, node in output.stuck[:_SHOWN]]
        more = f" and {len(output.stuck) - _SHOWN} more" if len(output.stuck) > _SHOWN else ""
        parts.append(f"nodes that never ended: {', '.join(nodes)}{more}")
    elif finished := [rank for rank in range(ranks) if rank not in missing]:
        parts.append(f"waiting: rank {', '.join(map(str, missing[:_SHOWN]))}" if finished else "")
    return "; ".join(part for part in parts if part)


def first_complaint(output: Output) -> str:
    """The first line that gives a reason: an exception dropped, else a complaint that is more than a frame for one.

    Where there is none, such as from a container engine that starts nothing, the last words of the error stream.
    """
    telling = [text for text in output.complaints if not _is_frame(text)]
    causes = [*output.swallowed, *telling] or output.complaints
    return causes[0].removeprefix("what():").strip() if causes else output.last_words


def _is_frame(text: str) -> bool:
    return text.startswith(("terminate called", "Hardware Resource")) or "has unreleased nodes" in text


def _notes(ended: Ended, output: Output) -> list[str]:
    notes = []
    if ended.ending == "exit" and ended.code:
        how = ended.signal_name or f"exit code {ended.code}"
        notes.append(f"the program ended with {how} after every rank had finished; its results are complete")
    if ended.ending == "lingering":
        notes.append("the program did not end by itself after every rank had finished; its results are complete")
    if ended.ending in ("time limit", "output limit"):
        notes.append(f"the program was ended at its {ended.ending} after every rank had finished")
    for text in output.swallowed:
        lost = "statistics of ranks are missing" if text.startswith(_STATISTICS) else "it went on after an error"
        notes.append(f"{lost}: {text}")
    if output.stuck:
        shown = ", ".join(f"{node} (rank {rank})" for rank, node in output.stuck[:_SHOWN])
        notes.append(f"nodes were left over: {shown}")
    return notes
