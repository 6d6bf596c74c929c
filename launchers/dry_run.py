"""The `dry-run` target: a job is simulated in this process and leaves the trace files a profiler would have left."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.calibration import UNCALIBRATED, Calibration
from backends.dry_run import dry_run
from backends.memory import DEFAULT_MARGIN, MemoryEstimate, estimate
from backends.timeline import SimulationResult
from backends.trace import TraceInfo, write_traces
from launchers.base import Handle, Job, JobState
from runs.errors import BadInputError, CclSearchError, TargetUnavailableError
from runs.trial import Execution, FailureClass, Fidelity, TrialState

if TYPE_CHECKING:
    from backends.astra.cost import Cost
    from backends.astra.dry_run import AstraSettings

EXECUTION_FILE = "execution.json"
ANNOUNCED_S = 10.0
"""Trials on ns-3 that take longer than this are said to do so before they start."""
FLOW = "flow"
BACKENDS = (FLOW, "astra-sim", "astra-sim-ns3")


class DryRunLauncher:
    """Simulates jobs. Everything happens in `submit`; the handle names the directory that holds the outcome.

    `announce` hears how long a trial on ns-3 will take, where that is long.

    Args:
        backend: the simulator; `flow` is built in, `astra-sim` and `astra-sim-ns3` are the user's own programs.
        calibration: factors fitted to measurements, or the neutral ones.
        compress: write `.json.gz` traces.
        memory_margin: how far above the device's memory an estimate may lie (see `backends.memory`).
        astra_sim: where ASTRA-sim's program is and how it is run (`backends.astra.dry_run.read_settings`).

    Raises:
        BadInputError: the backend or a setting is unknown.
        TargetUnavailableError: nothing names ASTRA-sim's program, or it is not there.
    """

    name = "dry-run"

    def __init__(
        self, backend: str = FLOW, calibration: Calibration = UNCALIBRATED, compress: bool = False,
        memory_margin: float = DEFAULT_MARGIN, astra_sim: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        if backend not in BACKENDS:
            raise BadInputError(f"the dry run has no backend {backend!r}", f"choose one of {', '.join(BACKENDS)}")
        self.backend = backend
        self.calibration = calibration
        self.compress = compress
        self.memory_margin = memory_margin
        self.announce: Callable[[str], None] = lambda _text: None
        self._astra = _astra_settings(backend, astra_sim)

    def submit(self, job: Job) -> Handle:
        """Simulate `job` and write its trace and `execution.json`; the job is finished when this returns.

        What is wrong with the config is the job's outcome, not an error of this call.

        Raises:
            TargetUnavailableError: ASTRA-sim's program cannot be started.
            OSError: the job's directory cannot be written.
        """
        started = time.perf_counter()
        job.directory.mkdir(parents=True, exist_ok=True)
        outcome = self._run(job)
        outcome["seconds"] = time.perf_counter() - started
        path = job.directory / EXECUTION_FILE
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(outcome, indent=1, sort_keys=True), encoding="utf-8")
        temporary.replace(path)
        return {"launcher": self.name, "directory": str(job.directory), "attempt": job.attempt}

    def poll(self, handle: Handle) -> JobState:
        """FINISHED once the outcome is written, UNKNOWN when there is none."""
        return JobState.FINISHED if _outcome_path(handle).exists() else JobState.UNKNOWN

    def cancel(self, handle: Handle) -> None:
        """Nothing runs any more when `submit` has returned."""

    def collect(self, handle: Handle) -> Execution:
        """The stored outcome as an `Execution`; a missing one is a launch failure."""
        path = _outcome_path(handle)
        if not path.exists():
            return _failed(FailureClass.LAUNCH, f"{path} is missing: the simulation was interrupted", {}, None)
        outcome = json.loads(path.read_text(encoding="utf-8"))
        provenance, seconds = outcome["provenance"], outcome["seconds"]
        if outcome["failure"]:
            return _failed(FailureClass(outcome["failure"]), outcome["evidence"], provenance, seconds)
        done = Execution(TrialState.SUCCEEDED, trace_dir=path.parent / "trace", evidence="")
        return replace(done, fidelity=Fidelity.SIMULATED, seconds=seconds, xpu_hours=0.0, provenance=provenance)

    # --- one simulation ---------------------------------------------------------------------------------------------

    def _run(self, job: Job) -> dict[str, Any]:
        try:
            memory = estimate(job.workload, job.environment, job.plan, self.memory_margin)
            if not memory.fits:
                return self._outcome(FailureClass.OOM, f"out of memory (simulated): {memory.describe()}", memory)
            result = self._simulate(job)
        except TargetUnavailableError:
            raise
        except CclSearchError as error:
            hint = f" ({error.hint})" if error.hint else ""
            failure = FailureClass.TIMEOUT if getattr(error, "timed_out", False) else FailureClass.FRAMEWORK_ERROR
            return self._outcome(failure, f"{error.message}{hint}", None)
        if job.trace_dir.exists():
            shutil.rmtree(job.trace_dir)
        info = write_traces(result, job.trace_dir, self.compress)
        return self._success(result, info)

    def _simulate(self, job: Job) -> SimulationResult:
        if self._astra is None:
            return dry_run(job.workload, job.environment, job.plan, self.calibration)
        from backends.astra.dry_run import dry_run as astra_dry_run

        settings = self._astra.within(job.time_limit_s)
        return astra_dry_run(
            job.workload, job.environment, job.plan, settings, self.calibration,
            announce=lambda cost: self._announce(job, cost),
        )  # fmt: skip

    def _announce(self, job: Job, cost: Cost) -> None:
        if cost.seconds >= ANNOUNCED_S:
            self.announce(f"trial {job.trial}: ns-3 takes {cost}")

    def _outcome(self, failure: FailureClass, evidence: str, memory: MemoryEstimate | None) -> dict[str, Any]:
        provenance = {"backend": self.backend, "calibration": self.calibration.name}
        return {
            "failure": failure.value, "evidence": evidence, "provenance": provenance,
            "memory": memory.as_dict() if memory else None,
        }  # fmt: skip

    def _success(self, result: SimulationResult, info: TraceInfo) -> dict[str, Any]:
        provenance = {"backend": result.backend, "version": result.version, "calibration": result.calibration}
        return {
            "failure": None, "evidence": "", "provenance": {**provenance, "detail": result.detail}, **info.as_dict(),
            "backend": result.backend, "version": result.version, "calibration": result.calibration,
            "memory": result.memory.as_dict() if result.memory else None, "simulated": _figures(result),
            **({"notes": list(result.notes)} if result.notes else {}),
            **({"network": dict(result.network)} if result.network else {}),
        }  # fmt: skip


def _astra_settings(backend: str, given: Mapping[str, Any] | None) -> AstraSettings | None:
    """What runs ASTRA-sim, found before a job needs it; None for the built-in backend."""
    if backend == FLOW:
        if given is not None:
            raise BadInputError("dry-run: astra_sim does not go with the backend flow", "leave it out, or name backend")
        return None
    from backends.astra.dry_run import read_settings

    settings = read_settings(backend, given)
    settings.check()
    return settings


def _figures(result: SimulationResult) -> dict[str, float | None]:
    names = ("wall_s", "compute_s", "comm_s", "exposed_s", "bubble_s", "ttft_s", "tpot_s")
    return {name: getattr(result, name) for name in names}


def _failed(failure: FailureClass, evidence: str, provenance: dict[str, Any], seconds: float | None) -> Execution:
    return Execution(
        TrialState.FAILED, failure=failure, evidence=evidence, fidelity=Fidelity.SIMULATED, seconds=seconds,
        xpu_hours=0.0, provenance=provenance,
    )  # fmt: skip


def _outcome_path(handle: Handle) -> Path:
    return Path(handle["directory"]) / EXECUTION_FILE


def from_settings(settings: dict[str, Any]) -> DryRunLauncher:
    """Build the launcher from a target's settings.

    They are `backend`, `calibration` (a mapping), `compress`, `memory_margin` and `astra_sim` (a mapping).

    Raises:
        BadInputError: a setting is unknown or unusable.
        TargetUnavailableError: the backend needs a program that is not there.
    """
    known = {"backend", "calibration", "compress", "memory_margin", "astra_sim"}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise BadInputError(f"dry-run: unknown setting {', '.join(unknown)}", f"known: {', '.join(sorted(known))}")
    given = dict(settings)
    if (fitted := given.get("calibration")) is not None and not isinstance(fitted, Calibration):
        if not isinstance(fitted, dict):
            raise BadInputError(f"dry-run: calibration {fitted!r} is no mapping", "give its factors, or leave it out")
        given["calibration"] = _calibration(fitted)
    return DryRunLauncher(**given)


def _calibration(fitted: dict[str, Any]) -> Calibration:
    try:
        return Calibration.from_dict(fitted)
    except TypeError as error:
        known = ", ".join(Calibration.__dataclass_fields__)
        raise BadInputError(f"dry-run: calibration: {error}", f"known entries: {known}") from error
