"""What Slurm's commands print, as typed rows. Text with explicit formats is the same in every release since 21.08."""

from __future__ import annotations

import re
from dataclasses import dataclass

QUEUE_FORMAT = "%i|%T|%r|%j|%V|%k"
ACCOUNTING_FIELDS = (
    "JobID", "JobName", "State", "ExitCode", "DerivedExitCode", "Submit", "Start", "End", "ElapsedRaw", "NNodes",
    "NodeList",
)  # fmt: skip
TERMINAL = frozenset(
    {
        "COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
        "DEADLINE", "REVOKED",
    }
)  # fmt: skip
RUNNING = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"})
_CODE = re.compile(r"(\d+):(\d+)")


_TASKS = re.compile(r"\[?([0-9,:-]*)(?:%\d+)?\]?")
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def covers(row_id: str, job_id: str) -> bool:
    """Whether a row is about a job: the ids are the same, or the row's is that of a task of the job, or of several.

    A site whose sbatch makes an array of every job has ids such as `123_4`, before they start also `123_[0-3%2]`.
    """
    if row_id == job_id:
        return True
    row_array, _, tasks = row_id.partition("_")
    array, _, task = job_id.partition("_")
    return bool(tasks) and row_array == array and (not task or task in task_numbers(tasks))


def task_numbers(text: str) -> set[str]:
    """The tasks in `4`, `[0-3%2]` or `[1,5-9:2]`; empty for a text of another form."""
    found = _TASKS.fullmatch(text)
    parts = [_RANGE.fullmatch(part) for part in found.group(1).split(",")] if found else []
    ranges = [(int(part[1]), int(part[2] or part[1]), int(part[3] or 1)) for part in parts if part is not None]
    return {str(number) for first, last, step in ranges for number in range(first, last + 1, max(step, 1))}


@dataclass(frozen=True)
class ExitStatus:
    """`code:signal` as Slurm prints it. Slurm 22.05's accounting keeps 7 bits of the code, scontrol all of them."""

    code: int
    signal: int

    @property
    def ok(self) -> bool:
        """Neither a code nor a signal."""
        return self.code == 0 and self.signal == 0


def exit_status(text: str) -> ExitStatus | None:
    """Parse `code:signal`; None where there is none."""
    found = _CODE.fullmatch(text.strip())
    return ExitStatus(int(found.group(1)), int(found.group(2))) if found else None


def state_word(text: str) -> str:
    """The first word of a state: `CANCELLED by 1000` is CANCELLED."""
    return text.split()[0] if text.split() else ""


@dataclass(frozen=True)
class QueueRow:
    """One job of squeue. `reason` may hold blanks."""

    job_id: str
    state: str
    reason: str
    name: str
    submitted: str
    comment: str


def queue_rows(text: str) -> list[QueueRow]:
    """Rows of `squeue -h -o QUEUE_FORMAT`; lines of another shape are left out."""
    rows = []
    for line in text.splitlines():
        parts = line.split("|", 5)
        if len(parts) == 6:
            rows.append(QueueRow(parts[0].strip(), state_word(parts[1]), *(part.strip() for part in parts[2:])))
    return rows


def whole_row(rows: list[QueueRow]) -> QueueRow:
    """The row that says how a job stands of which there are several tasks: it has ended when all of them have."""
    ways = (
        [row for row in rows if row.state in RUNNING],
        [row for row in rows if row.state not in TERMINAL],
        [row for row in rows if row.state != "COMPLETED"],
        rows,
    )
    return next(group[0] for group in ways if group)


@dataclass(frozen=True)
class AccountRow:
    """One row of sacct: a job (`step` empty) or a step of it (`batch`, `extern`, `0`, ...)."""

    job_id: str
    step: str
    name: str
    state: str
    exit: ExitStatus | None
    derived: ExitStatus | None
    submitted: str
    started: str
    ended: str
    seconds: float | None
    nodes: int | None
    node_list: str


def account_rows(text: str) -> list[AccountRow]:
    """Rows of `sacct -n -P -o ACCOUNTING_FIELDS`; lines of another shape are left out."""
    return [
        _account_row(parts) for line in text.splitlines() if len(parts := line.split("|")) == len(ACCOUNTING_FIELDS)
    ]


def _account_row(parts: list[str]) -> AccountRow:
    job_id, _, step = parts[0].partition(".")
    seconds, nodes = (int(text) if text.strip().isdigit() else None for text in (parts[8], parts[9]))
    return AccountRow(
        job_id=job_id,
        step=step,
        name=parts[1],
        state=state_word(parts[2]),
        exit=exit_status(parts[3]),
        derived=exit_status(parts[4]),
        submitted=parts[5],
        started=parts[6],
        ended=parts[7],
        seconds=None if seconds is None else float(seconds),
        nodes=nodes,
        node_list=parts[10],
    )


@dataclass(frozen=True)
class ControlRecord:
    """What `scontrol show job` knows besides: the whole exit code, the highest one of any step, restarts."""

    state: str
    reason: str
    exit: ExitStatus | None
    derived: ExitStatus | None
    restarts: int
    seconds: float | None
    nodes: int | None
    node_list: str


def control_record(text: str) -> ControlRecord | None:
    """Parse one record of `scontrol -o -d show job`; None where it is none.

    Paths in it may hold anything, so that each field is taken where it stands first: all of these precede the paths.
    """
    if "JobState=" not in text:
        return None
    return ControlRecord(
        state_word(_field(text, "JobState")),
        _field(text, "Reason"),
        exit_status(_field(text, "ExitCode")),
        exit_status(_field(text, "DerivedExitCode")),
        int(_field(text, "Restarts") or 0),
        _duration(_field(text, "RunTime")),
        int(_field(text, "NumNodes").partition("-")[0] or 0) or None,
        _field(text, "NodeList"),
    )


def _field(text: str, name: str) -> str:
    found = re.search(rf"(?:^|\s){name}=(\S*)", text)
    return found.group(1) if found else ""


def _duration(text: str) -> float | None:
    """Seconds of `[days-]hours:minutes:seconds`."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
