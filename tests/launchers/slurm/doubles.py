"""A Slurm that answers from a script: each command takes the next of the answers prepared for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launchers.shell.runner import Completed, LocalRunner

Answer = str | tuple[int | None, str]


@dataclass(frozen=True)
class ScriptedSlurm(LocalRunner):
    """Answers by program (`sbatch --test-only` is `test`): text is output, (code, text) a complaint.

    The last answer of a program is given again and again. Files are real.
    """

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, argv: Sequence[str], stdin: str = "", timeout_s: float = 30.0) -> Completed:
        self.asked.append(tuple(argv))
        key = "test" if "--test-only" in argv else argv[0]
        prepared = self.answers.get(key, [""])
        answer = prepared.pop(0) if len(prepared) > 1 else prepared[0]
        if isinstance(answer, str):
            return Completed(tuple(argv), 0, answer, "", 0.0)
        return Completed(tuple(argv), answer[0], "", answer[1], timeout_s)

    def count(self, program: str) -> int:
        """How often a program was asked."""
        return sum(argv[0] == program for argv in self.asked)


def queue(job_id: str, state: str, reason: str = "None", name: str = "ccl-run-1-1", comment: str = "") -> str:
    """One line of squeue."""
    return f"{job_id}|{state}|{reason}|{name}|2026-11-30T10:00:00|{comment}\n"


def account(job_id: str, state: str, code: str = "0:0", derived: str = "", name: str = "ccl-run-1-1") -> str:
    """One line of sacct."""
    times = "2026-11-30T10:00:00|2026-11-30T10:00:01|2026-11-30T10:01:41|100"
    return f"{job_id}|{name}|{state}|{code}|{derived}|{times}|2|n[1-2]\n"


def write_result(folder: Path, code: int) -> None:
    """A result file as a job's script leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f'{{"exit_code": {code}, "stage": "run", "reason": "", "started": 1.5, "ended": 101.5, "restarts": 0, '
    (folder / "result.json").write_text(text + '"nodes": "n[1-2]", "host": "n1"}')
