"""An attempt on its workers: start everywhere, ask everywhere, end everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import launchers.tpu_vm.remote as remote
from launchers.shell.command import Command
from launchers.shell.result import Result, parse_result
from launchers.shell.script import Site
from launchers.tpu_vm.remote import WorkerJob
from launchers.tpu_vm.slices import Standing, View, is_unwell
from launchers.tpu_vm.state import AttemptState, Phase
from launchers.tpu_vm.workers import Answer, Workers
from runs.trial import FailureClass

_START_S = 60.0
_POLL_S = 25.0
_END_S = 60.0
_SETTLE_S = 5.0
_LOOK_EVERY_S = 60.0


@dataclass
class Running:
    """Drives the workers of one attempt. `look` describes the slice; it may raise `ControlError`."""

    state: AttemptState
    look: Callable[[], View]
    grace_s: float
    clock: Callable[[], float]

    @property
    def workers(self) -> Workers:
        """The workers' connections."""
        return Workers(tuple(tuple(argv) for argv in self.state.commands))

    def job(self, worker: int) -> WorkerJob:
        """A worker's part of the job."""
        return worker_job(self.state, worker)

    # --- start ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start what is not started: the first worker alone, so that two jobs never hold half of a slice each."""
        everyone = range(len(self.workers))
        for group in ([0], [worker for worker in everyone if worker]):
            wanted = [worker for worker in group if worker not in self.state.on]
            answers = self._ask({worker: remote.start_text(self.job(worker)) for worker in wanted}, _START_S)
            self.state.on += [worker for worker, answer in answers.items() if answer.word == "started"]
            if not set(group) <= set(self.state.on):
                self._hindered(answers)
                return
        self.state.phase, self.state.started = Phase.RUNNING, self.clock()

    def _hindered(self, answers: dict[int, Answer]) -> None:
        busy = {worker: answer.rest for worker, answer in answers.items() if answer.word == "busy"}
        if 0 in busy:
            note = f"the TPU is busy with {busy[0]}"
            if note not in self.state.notes[-1:]:
                self.state.notes.append(note)
            return
        for worker, holder in busy.items():
            self.state.silent.setdefault(str(worker), self.clock())
            self.state.notes.append(f"worker {worker} is busy with {holder}")
        if self.state.silent:
            self._judge_silence(answers)

    # --- ask --------------------------------------------------------------------------------------------------------

    def probe(self) -> None:
        """Ask every worker; the attempt ends with the last one, with the first that fails, or with the slice."""
        answers = self._ask({w: remote.poll_text(self.job(w)) for w in range(len(self.workers))}, _POLL_S)
        results = {worker: result_of(answer) for worker, answer in answers.items()}
        vanished = [worker for worker, answer in answers.items() if answer.word in ("gone", "absent")]
        failing = [worker for worker, result in results.items() if result is not None and result.exit_code]
        if all(result is not None for result in results.values()):
            self.state.end(self.clock())
        elif vanished or failing:
            self._end_with(vanished, failing, results)
        elif self.state.silent or self.clock() - self.state.looked > _LOOK_EVERY_S:
            self._judge_silence(answers)

    def _end_with(self, vanished: list[int], failing: list[int], results: dict[int, Result | None]) -> None:
        """One worker is lost: give the others a moment to say why, then end them, for they wait for it."""
        now = self.clock()
        self.state.failing = self.state.failing or now
        if now - self.state.failing < _SETTLE_S and not vanished:
            return
        self.end([worker for worker, result in results.items() if result is None])
        if vanished:
            reason = f"worker {_list(vanished)}: the job vanished without a result (killed from outside, or a restart)"
            self.state.end(now, FailureClass.NODE_FAILURE, reason)
        else:
            self.state.end(now, None, f"worker {_list(failing)} failed; the others were ended")

    def _judge_silence(self, answers: dict[int, Answer]) -> None:
        """Somebody does not answer, or it is time to look: what does the service say of the slice?"""
        now = self.clock()
        self.state.looked = now
        view = self.look()
        if view.standing is Standing.FAILED:
            self._lost(view)
            return
        overdue = [int(worker) for worker, since in self.state.silent.items() if now - since > self.grace_s]
        unwell = is_unwell(view.node) if view.node is not None else ""
        if overdue:
            said = next((answers[w].complaint for w in overdue if w in answers and answers[w].complaint), "")
            text = f"worker {_list(overdue)} did not answer for {self.grace_s:.0f} s"
            self.end(self.others(overdue))
            self.state.end(now, FailureClass.NODE_FAILURE, ": ".join(part for part in (text, unwell, said) if part))

    def _lost(self, view: View) -> None:
        trouble = view.trouble.value if view.trouble else ""
        failure = FailureClass.PREEMPTED if trouble in ("preempted", "suspended") else FailureClass.NODE_FAILURE
        self.state.end(self.clock(), failure, view.text)

    def others(self, workers: Iterable[int]) -> list[int]:
        """All workers but these."""
        return [worker for worker in range(len(self.workers)) if worker not in set(workers)]

    def _ask(self, texts: dict[int, str], timeout_s: float) -> dict[int, Answer]:
        """Ask, and remember since when who is silent."""
        answers = self.workers.ask(texts, timeout_s)
        for worker, answer in answers.items():
            if answer.word:
                self.state.silent.pop(str(worker), None)
            else:
                self.state.silent.setdefault(str(worker), self.clock())
        return answers

    # --- end --------------------------------------------------------------------------------------------------------

    def end(self, workers: list[int]) -> dict[int, str]:
        """End the attempt's processes on these workers; for each that may still run some, what is known of it."""
        answers = self.workers.ask({worker: remote.end_text(self.job(worker)) for worker in workers}, _END_S)
        return {
            worker: f"processes {answer.rest} do not end" if answer.word == "left" else answer.complaint or "no answer"
            for worker, answer in answers.items()
            if answer.word != "ended"
        }


def result_of(answer: Answer) -> Result | None:
    """The result a worker told; one that cannot be read is a failure, for the job has ended."""
    if answer.word != "result":
        return None
    return parse_result(answer.rest) or Result(1, "run", "", 0.0, 0.0, 0, "", "")


def pack_job(command: Command, site: Site, teardown: str, **facts: Any) -> dict[str, Any]:
    """What `worker_job` needs, as JSON data."""
    return {
        **facts,
        "teardown": teardown,
        "site": {"setup": site.setup, "env": dict(site.env), "launch_prefix": list(site.launch_prefix)},
        "command": {
            "argv": list(command.argv),
            "env": dict(command.env),
            "per_node": command.per_node,
            "nodes": command.nodes,
            "xpus_per_node": command.xpus_per_node,
            "working_dir": command.working_dir,
            "files": dict(command.files),
            "framework_version": command.framework_version,
        },
    }


def worker_job(state: AttemptState, worker: int) -> WorkerJob:
    """A worker's part of the job that a state describes."""
    job = state.job
    command = {**job["command"], "argv": tuple(job["command"]["argv"])}
    site = {**job["site"], "launch_prefix": tuple(job["site"]["launch_prefix"])}
    return WorkerJob(
        root=job["root"],
        trial=job["trial"],
        folder=job["folder"],
        name=job["name"],
        worker=worker,
        command=Command(**command),
        site=Site(**site),
        master=state.master,
        port=job["port"],
        limit_s=job["limit_s"],
        trace_dir=job["trace_dir"],
        teardown=job["teardown"],
    )


def _list(workers: list[int]) -> str:
    return ", ".join(map(str, workers))
