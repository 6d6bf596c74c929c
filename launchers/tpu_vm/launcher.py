"""`TpuVmLauncher`: jobs on TPU VM slices. Nothing lives in this process: handle, state file, ledger and workers do."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import launchers.tpu_vm.remote as remote
import launchers.tpu_vm.state as state
from launchers.base import Handle, Job, JobState
from launchers.shell.command import Command
from launchers.shell.layout import Attempt, attempt_of, required_command
from launchers.shell.outcome import common_handle
from launchers.tpu_vm.client import GoogleClient
from launchers.tpu_vm.collecting import Collecting, store, stored
from launchers.tpu_vm.control import ControlPlane
from launchers.tpu_vm.gcloud import Gcloud
from launchers.tpu_vm.ledger import Ledger, ledger_for
from launchers.tpu_vm.obtaining import Obtaining, kept_slice
from launchers.tpu_vm.running import Running, pack_job, worker_job
from launchers.tpu_vm.settings import TpuSettings, accelerator_type, slice_shape
from launchers.tpu_vm.slices import Slices
from launchers.tpu_vm.state import AttemptState, Phase
from launchers.tpu_vm.troubles import ControlError, remedy
from runs.errors import BadInputError, TargetUnavailableError
from runs.trial import Execution, FailureClass, TrialState

_CONTROL_PATIENCE_S = 900.0
_LIMIT_MARGIN_S = 60.0
_QUICK_FETCH_S = 60.0
_STEPS = 4
_STATES = {
    Phase.PROVISIONING: JobState.QUEUED,
    Phase.CONNECTING: JobState.QUEUED,
    Phase.STARTING: JobState.QUEUED,
    Phase.RUNNING: JobState.RUNNING,
    Phase.ENDED: JobState.FINISHED,
    Phase.REFUSED: JobState.UNKNOWN,
}


class TpuVmLauncher:
    """Runs each job on a slice of `settings`; `control` is gcloud or Google's client where none is given."""

    name = "tpu-vm"

    def __init__(
        self,
        settings: TpuSettings,
        control: ControlPlane | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.control: ControlPlane = control or control_of(settings)
        self.clock = clock
        self._lock = threading.Lock()

    # --- the contract -----------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> Handle:
        """Note the job and the slice it needs, ask for the slice, and return without waiting for it.

        Raises:
            BadInputError: the job has no command, or its devices do not fit the slice.
            TargetUnavailableError: gcloud cannot be started.
        """
        attempt = self._attempt(job)
        handle = self._handle(job, attempt)
        known = state.load(attempt.local_dir)
        if known is not None and known.phase is not Phase.REFUSED:
            return handle
        current = self._first_state(job, attempt)
        state.save(attempt.local_dir, current)
        shutil.rmtree(job.trace_dir, ignore_errors=True)
        getting = self._obtaining(handle, current)
        if not self.settings.slice:
            with self._lock:
                self._choose_slice(getting)
        state.save(attempt.local_dir, current)
        if not self.settings.slice:
            self._first_step(getting)
        return handle

    def poll(self, handle: Handle) -> JobState:
        """Do what is next for the job, and say how it stands. Every call it makes has a time limit.

        Raises:
            TargetUnavailableError: no slice can be had until the user mends something (told once).
        """
        folder = Path(handle["local_dir"])
        current = state.load(folder)
        if current is None:
            return JobState.UNKNOWN
        try:
            for _ in range(_STEPS):
                before = current.phase
                self._step(handle, current)
                if current.phase in (before, Phase.ENDED):
                    break
        finally:
            state.save(folder, current)
        return _STATES[current.phase]

    def cancel(self, handle: Handle) -> None:
        """End the job on every worker, keep its logs, and delete the slice if it was made for this job.

        Raises:
            TargetUnavailableError: processes may still run on an existing slice.
        """
        folder = Path(handle["local_dir"])
        current = state.load(folder)
        if current is None or current.phase is Phase.REFUSED:
            return
        running = self._running(handle, current)
        survivors = running.end(list(range(len(running.workers)))) if current.commands else {}
        if current.commands and current.phase is not Phase.ENDED:
            Collecting(handle, current, running, self.control).fetch(False, tries=1, timeout_s=_QUICK_FETCH_S)
            self._remove_files(running, current)
        if current.phase is not Phase.ENDED:
            current.end(self.clock(), FailureClass.CANCELLED, "cancelled")
        gone = self._let_go(current)
        state.save(folder, current)
        if survivors and not gone and not self._is_gone(current):
            told = "; ".join(f"worker {worker}: {text}" for worker, text in survivors.items())
            raise TargetUnavailableError(
                f"{handle['name']} may still run on {current.slice_name}: {told}",
                "look at the slice; cancel again once its workers answer",
            )

    def collect(self, handle: Handle) -> Execution:
        """Fetch logs and traces from every worker, judge the job, let the slice go. A second call answers the same."""
        folder = Path(handle["local_dir"])
        found = stored(folder)
        if found is not None:
            return found
        current = state.load(folder)
        if current is None or current.phase is Phase.REFUSED:
            return Execution(
                TrialState.FAILED, failure=FailureClass.LAUNCH, evidence=f"{folder} has no record of a job"
            )
        running = self._running(handle, current)
        collecting = Collecting(handle, current, running, self.control)
        missing = collecting.fetch(True, tries=1 if current.failure else 3) if current.commands else {}
        bucket = collecting.fetch_bucket() if current.started else ""
        execution = collecting.judge(missing, bucket)
        self._tidy(running, current)
        if not self._let_go(current):
            execution = replace(execution, provenance={**execution.provenance, "remarks": list(current.notes)})
        store(folder, execution)
        state.save(folder, current)
        return execution

    # --- beyond the contract ----------------------------------------------------------------------------------------

    def script(self, job: Job) -> str:
        """The script of the first worker; nothing is started. Others differ in their number, all in the address."""
        attempt = self._attempt(job)
        current = self._first_state(job, attempt)
        current.master = "FIRST-WORKER"
        return remote.script_text(worker_job(current, 0))

    def release(self, run_id: str, directory: Path) -> list[str]:
        """Delete the slices that were kept for the trials of a run; what hindered it. `directory`: a trial's folder."""
        slices = self._slices(ledger_for(directory, self.settings.ledger))
        told = [slices.release(record.key) for record in slices.ledger.of_run(run_id)]
        return [text for text in told if text]

    # --- steps ------------------------------------------------------------------------------------------------------

    def _step(self, handle: Handle, current: AttemptState) -> None:
        """One step in the current phase; what the control plane does not answer is waited for, within bounds."""
        try:
            if current.phase is Phase.PROVISIONING:
                with self._lock:
                    self._obtaining(handle, current).provision()
            elif current.phase is Phase.CONNECTING:
                self._obtaining(handle, current).connect()
            elif current.phase is Phase.STARTING:
                self._running(handle, current).start()
            elif current.phase is Phase.RUNNING:
                self._running(handle, current).probe()
            current.answered = self.clock()
        except ControlError as error:
            self._unanswered(handle, current, error)

    def _unanswered(self, handle: Handle, current: AttemptState, error: ControlError) -> None:
        note = f"{error.trouble.value}: {error.text}"
        if note not in current.notes[-1:]:
            current.notes.append(note)
        silent_s = self.clock() - (current.answered or current.asked)
        if current.phase is Phase.RUNNING:
            return
        if remedy(error.trouble).fatal or silent_s > _CONTROL_PATIENCE_S:
            getting = self._obtaining(handle, current)
            raise getting.refusal(error.text, remedy(error.trouble).hint)

    def _first_step(self, getting: Obtaining) -> None:
        try:
            with self._lock:
                getting.slices.advance(getting.state.slice_key)
        except ControlError as error:
            getting.state.notes.append(error.text)
        except TargetUnavailableError:
            getting.slices.release(getting.state.slice_key)
            raise

    def _choose_slice(self, getting: Obtaining) -> None:
        kept = None
        if self.settings.lifetime == "run":
            kept = kept_slice(getting.book, getting.state.job["run_id"], getting.state.accelerator_type)
        if kept is not None:
            getting.take(kept)
        else:
            getting.plan(self.settings.zones[0], 0.0)

    # --- letting go -------------------------------------------------------------------------------------------------

    def _let_go(self, current: AttemptState) -> bool:
        """Delete the slice if it is this attempt's own; whether it is gone or going."""
        if not current.slice_key:
            return False
        lost = current.failure in (FailureClass.PREEMPTED.value, FailureClass.NODE_FAILURE.value)
        if self.settings.lifetime == "run" and not lost:
            return False
        hindrance = self._slices(Ledger(Path(current.job["ledger"]))).release(current.slice_key)
        if hindrance:
            current.notes.append(f"{hindrance}; run: ccl-search cleanup")
        return not hindrance

    def _tidy(self, running: Running, current: AttemptState) -> None:
        """Free a slice that goes on living: no process, no lock, no files of the trial."""
        if current.commands and self._lives_on(current):
            running.end(list(range(len(running.workers))))
            self._remove_files(running, current)

    def _remove_files(self, running: Running, current: AttemptState) -> None:
        if self._lives_on(current):
            texts = {worker: remote.remove_text(running.job(worker)) for worker in range(len(running.workers))}
            running.workers.ask(texts, _QUICK_FETCH_S)

    def _lives_on(self, current: AttemptState) -> bool:
        return not current.slice_key or self.settings.lifetime == "run"

    def _is_gone(self, current: AttemptState) -> bool:
        try:
            node = self.control.node(current.zone, current.slice_name)
        except ControlError:
            return False
        return node is None or node.is_gone or node.state in ("STOPPED", "TERMINATED")

    # --- pieces -----------------------------------------------------------------------------------------------------

    def _attempt(self, job: Job) -> Attempt:
        self._command(job)
        return attempt_of(job, self.settings.remote_dir)

    def _command(self, job: Job) -> Command:
        """The job's command, laid out over the workers that the slice will have."""
        command = required_command(job)
        if self.settings.slice:
            return command
        full_type = accelerator_type(self.settings.accelerator, command.world_size)
        shape = slice_shape(full_type)
        fitted = laid_out(command, shape) if shape is not None else command
        if fitted is None:
            raise BadInputError(
                f"trial {job.trial} runs on {command.nodes} workers of {command.xpus_per_node} chips, "
                f"{full_type} has {shape[0]} of {shape[1]}"
                if shape
                else full_type,
                "choose configs that fill the slice, or name only the family (accelerator: v6e)",
            )
        return fitted

    def _handle(self, job: Job, attempt: Attempt) -> Handle:
        command = self._command(job)
        prefix = "" if self.settings.trace_bucket else "worker-*/"
        return {
            **common_handle(self.name, attempt, command),
            "trace_globs": [f"{prefix}{pattern}" for pattern in command.trace_globs],
            "folder": attempt.folder,
        }

    def _first_state(self, job: Job, attempt: Attempt) -> AttemptState:
        command, settings = self._command(job), self.settings
        run, trial = Path(attempt.job_dir).parts[-2:]
        bucket = f"{settings.trace_bucket.rstrip('/')}/{run}/{trial}/{attempt.folder}" if settings.trace_bucket else ""
        facts = {
            "root": settings.remote_dir,
            "trial": f"{run}/{trial}",
            "folder": attempt.folder,
            "name": attempt.mark,
            "run_id": job.run_id,
            "number": job.trial,
            "attempt": job.attempt,
            "port": attempt.port,
            "limit_s": job.time_limit_s + _LIMIT_MARGIN_S,
            "trace_dir": bucket,
            "ledger": str(ledger_for(job.directory, settings.ledger).folder),
        }
        return AttemptState(
            phase=Phase.PROVISIONING,
            slice_name=settings.slice or "",
            zone=settings.zones[0],
            asked=self.clock(),
            accelerator_type=accelerator_type(settings.accelerator, command.world_size) if settings.accelerator else "",
            job=pack_job(command, settings.site, settings.teardown, **facts),
        )

    def _slices(self, ledger: Ledger) -> Slices:
        return Slices(self.control, ledger, self.settings.template, self.clock)

    def _obtaining(self, handle: Handle, current: AttemptState) -> Obtaining:
        slices = self._slices(Ledger(Path(current.job["ledger"])))
        return Obtaining(self.settings, slices, current, Path(handle["local_dir"]), int(handle["nodes"]), self.clock)

    def _running(self, handle: Handle, current: AttemptState) -> Running:
        return Running(current, self._obtaining(handle, current).view, self.settings.worker_grace_s, self.clock)


def laid_out(command: Command, shape: tuple[int, int]) -> Command | None:
    """`command` on `shape` = (workers, chips a worker); None where it does not fit.

    A program that runs once a worker does not mind how its chips are spread: 16 chips of v6e are four workers of four,
    whatever the environment calls a node. Trace files that are one a worker are then expected from the new number.
    """
    workers, chips = shape
    if command.nodes == workers and command.xpus_per_node <= chips:
        return command
    if not command.per_node or command.world_size != workers * chips:
        return None
    count = workers if command.trace_count == command.nodes else command.trace_count
    return replace(command, nodes=workers, xpus_per_node=chips, trace_count=count)


def control_of(settings: TpuSettings) -> ControlPlane:
    """The control plane that the settings name."""
    if settings.control == "google-cloud-tpu":
        return GoogleClient(str(settings.project), settings.endpoint)
    return Gcloud(settings.project, settings.gcloud)
