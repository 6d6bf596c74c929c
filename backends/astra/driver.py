"""One run of ASTRA-sim from files to a judged result."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.astra.ns3_files import NetworkRecord, read_record
from backends.astra.output import (
    LOG_FOLDER,
    Operation,
    Output,
    RankReport,
    last_words,
    log_files,
    parse_operations,
    parse_output,
    read_lines,
)
from backends.astra.process import STDERR, STDOUT, Ended, Limits, run
from backends.astra.programs import Engine, Program
from backends.astra.staging import OPERATIONS_FILE, RunFiles, stage
from backends.astra.verdict import Verdict, judge
from runs.errors import CclSearchError

_HINT = "docs/astra_sim.md lists what ASTRA-sim does with such inputs; --backend flow does without it"


@dataclass(frozen=True)
class AstraRun:
    """One run, judged. Times in ns.

    `operations` are the nodes as they ran, empty unless asked for; `lost` counts log lines without a counterpart, so
    above zero the log lost its beginning. `network` is what ns-3 recorded.
    """

    engine: Engine
    version: str
    ranks: int
    ended: Ended
    output: Output
    verdict: Verdict
    operations: tuple[Operation, ...] = ()
    lost: int = 0
    network: NetworkRecord | None = None

    @property
    def reports(self) -> dict[int, RankReport]:
        """What the ranks that finished reported."""
        return self.output.finished

    @property
    def wall_ns(self) -> int:
        """When the slowest rank finished; 0 if none did."""
        return max((report.finished_ns or 0 for report in self.reports.values()), default=0)

    def require(self) -> None:
        """Return if the run was accepted.

        Raises:
            AstraRunError: it was not; the message has the reason.
        """
        if not self.verdict.accepted:
            raise AstraRunError(self)

    def summary(self) -> dict[str, Any]:
        """The figures of the slowest rank, of each rank, and everything that must be said, as plain data."""
        slowest = max(self.reports.items(), key=lambda item: item[1].finished_ns or 0, default=(None, RankReport()))
        return {
            "wall_ns": self.wall_ns, "compute_ns": slowest[1].compute_ns, "comm_ns": slowest[1].comm_ns,
            "slowest_rank": slowest[0], "engine": self.engine, "version": self.version,
            "accepted": self.verdict.accepted, "reason": self.verdict.reason, "notes": list(self.verdict.notes),
            "ranks": {rank: _report(report) for rank, report in self.reports.items()},
            "network": self.network.as_dict() if self.network else None, "seconds": round(self.ended.seconds, 3),
        }  # fmt: skip


class AstraRunError(CclSearchError):
    """A run without a result. `timed_out`: it was ended at its time limit."""

    def __init__(self, run: AstraRun) -> None:
        super().__init__(f"{run.version.split()[0]} ASTRA-sim: {run.verdict.reason}", _HINT)
        self.run = run
        self.timed_out = run.ended.ending == "time limit"


def _report(report: RankReport) -> dict[str, Any]:
    return {name: value for name, value in vars(report).items() if value is not None}


def drive(
    files: RunFiles, program: Program, engine: Engine, limits: Limits | None = None, operations: bool = False,
    keep: Path | None = None,
) -> AstraRun:  # fmt: skip
    """Run `engine` on `files` in a folder of its own and judge what came of it.

    `operations` has the time of every node logged and read. `keep` is where the run folder is left (it must not
    exist); otherwise it is removed.

    Raises:
        BadInputError: a file cannot be read.
        TargetUnavailableError: the program is not there or cannot be started.
        OSError: the run folder cannot be written.
    """
    folder = keep if keep is not None else Path(tempfile.mkdtemp(prefix="ccl-astra-"))
    if keep is not None:
        keep.mkdir(parents=True)
    try:
        return _drive(files, program, engine, limits or Limits(), operations, folder.resolve())
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _drive(
    files: RunFiles, program: Program, engine: Engine, limits: Limits, operations: bool, folder: Path
) -> AstraRun:
    name = f"ccl-astra-{uuid.uuid4().hex[:12]}"
    words = [*program.line(engine, folder, name), *stage(files, engine, folder, operations)]
    ended = run(words, folder, files.ranks, limits, program.stop_line(engine, folder, name))
    logs = [path for path in (folder / OPERATIONS_FILE,) if path.is_file()] or log_files(folder / LOG_FOLDER)
    output = parse_output(_printed(folder, logs))
    output.last_words = last_words(read_lines(folder / STDERR))
    found, lost = parse_operations(_lines(logs)) if operations else ([], 0)
    return AstraRun(
        engine, program.version(engine), files.ranks, ended, output, judge(ended, output, files.ranks), tuple(found),
        lost, read_record(folder) if engine == "ns3" else None,
    )  # fmt: skip


def _printed(folder: Path, logs: list[Path]) -> Iterator[str]:
    """What the program said: its two streams, then its log."""
    for name in (STDOUT, STDERR):
        yield from read_lines(folder / name)
    yield from _lines(logs)


def _lines(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        yield from read_lines(path)
