"""What the workers of an ended attempt left: fetched, judged, and kept as one `Execution`."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import launchers.tpu_vm.remote as remote
from launchers.base import Handle
from launchers.shell.evidence import Evidence
from launchers.shell.layout import RESULT_FILE
from launchers.shell.logs import read_evidence
from launchers.shell.outcome import Account, Verdict, common_provenance, describe_exit, execution, judge_exit
from launchers.shell.result import Result, parse_result
from launchers.tpu_vm.gcloud import Gcloud
from launchers.tpu_vm.running import Running
from launchers.tpu_vm.state import AttemptState
from runs.trial import Execution, FailureClass, Fidelity, TrialState

EXECUTION_FILE = "execution.json"
_FETCH_S = 1800.0
_TRIES = 3
_PAUSE_S = 2.0
_OF_THE_MACHINES = (FailureClass.NODE_FAILURE.value, FailureClass.PREEMPTED.value)
_LOG_BYTES = 2**20


@dataclass
class Collecting:
    """Collects one attempt. `directory` is the trial's folder, `folder` the attempt's in it."""

    handle: Handle
    state: AttemptState
    running: Running
    control: Any
    sleep: Callable[[float], None] = time.sleep

    @property
    def directory(self) -> Path:
        """The trial's folder."""
        return Path(self.handle["directory"])

    @property
    def folder(self) -> Path:
        """The attempt's folder."""
        return Path(self.handle["local_dir"])

    # --- fetching ---------------------------------------------------------------------------------------------------

    def fetch(self, with_traces: bool, tries: int = _TRIES, timeout_s: float = _FETCH_S) -> dict[int, str]:
        """Bring logs and traces of all workers here, under `worker-i`; what hindered it, by worker.

        A worker's files appear by renaming, so that half a fetch is never taken for all.
        """
        left = dict.fromkeys(range(len(self.running.workers)), "not asked")
        for attempt in range(tries):
            if attempt:
                self.sleep(_PAUSE_S * attempt)
            texts = {worker: remote.pack_text(self.running.job(worker), with_traces) for worker in left}
            targets = {worker: self.folder / f"worker-{worker}.part" for worker in left}
            for target in targets.values():
                shutil.rmtree(target, ignore_errors=True)
            answers = self.running.workers.fetch(texts, targets, timeout_s)
            for worker in [worker for worker, complaint in answers.items() if not complaint]:
                self._place(worker, targets[worker], with_traces)
            left = {worker: complaint for worker, complaint in answers.items() if complaint}
            if not left:
                break
        return left

    def _place(self, worker: int, fetched: Path, with_traces: bool) -> None:
        """Logs to the attempt's folder (`rank-i.out` where evidence is looked for), traces to the trial's."""
        logs = self.folder / f"worker-{worker}"
        _move(fetched / self.handle["folder"], logs)
        for path in sorted(logs.glob("rank-*.out")):
            shutil.copyfile(path, self.folder / path.name)
        if with_traces:
            _move(fetched / "trace", self.directory / "trace" / f"worker-{worker}")
        shutil.rmtree(fetched, ignore_errors=True)

    def fetch_bucket(self) -> str:
        """Bring traces from the `gs://` path here; what hindered it, empty where it went well."""
        source = str(self.state.job["trace_dir"])
        if not source or not isinstance(self.control, Gcloud):
            return "" if not source else "traces in a bucket need gcloud on this machine"
        return self.control.copy_objects(source, self.directory / "trace")

    # --- judging ----------------------------------------------------------------------------------------------------

    def judge(self, missing: dict[int, str], bucket: str) -> Execution:
        """The `Execution`: the launcher's own verdict first, then what the workers' results and logs say."""
        results = self._results()
        evidence = self._evidence()
        verdict = self._verdict(results, evidence, missing)
        if verdict.failure is None and bucket:
            verdict = Verdict(FailureClass.TRACE_MISSING, f"traces cannot be copied from the bucket: {bucket}")
        account = Account(self._seconds(results), self.handle["xpus"], self._provenance(results))
        return execution(verdict, evidence, account, self.handle, self.directory / "trace")

    def _results(self) -> dict[int, Result]:
        found = {}
        for worker in range(self.handle["nodes"]):
            path = self.folder / f"worker-{worker}" / RESULT_FILE
            result = parse_result(path.read_text(encoding="utf-8") if path.is_file() else None)
            if result is not None:
                found[worker] = result
        return found

    def _evidence(self) -> Evidence:
        for name in ("job.err", "job.out"):
            with (self.folder / name).open("wb") as stream:
                for path in sorted(self.folder.glob(f"worker-*/{name}")):
                    stream.write(path.read_bytes()[-_LOG_BYTES:])
        return read_evidence(self.folder, per_node=bool(self.state.job["command"]["per_node"]))

    def _verdict(self, results: dict[int, Result], evidence: Evidence, missing: dict[int, str]) -> Verdict:
        if self.state.failure and not self._ended_well(results):
            return Verdict(FailureClass(self.state.failure), self.state.reason)
        if any(result.reason == "time_limit" for result in results.values()):
            longest = max(result.seconds for result in results.values())
            return Verdict(FailureClass.TIMEOUT, f"no end within the time limit, after {longest:.0f} s")
        failing = {w: r for w, r in results.items() if r.exit_code and r.reason != "signal"}
        failing = failing or {w: r for w, r in results.items() if r.exit_code}
        if failing:
            worker, result = next(iter(failing.items()))
            judged = judge_exit(result.exit_code, result.stage, evidence)
            return replace(judged, reason=f"worker {worker}: {judged.reason}")
        if missing:
            told = "; ".join(missing.values())
            return Verdict(FailureClass.NODE_FAILURE, f"files of {len(missing)} workers cannot be fetched: {told}")
        if len(results) < self.handle["nodes"]:
            lost = sorted(set(range(self.handle["nodes"])) - set(results))
            return Verdict(FailureClass.NODE_FAILURE, f"no result from worker {', '.join(map(str, lost))}")
        return Verdict(None)

    def _ended_well(self, results: dict[int, Result]) -> bool:
        """Every worker has a good result after all: one that was silent for too long went on by itself."""
        if self.state.failure not in _OF_THE_MACHINES or len(results) < self.handle["nodes"]:
            return False
        return all(result.exit_code == 0 for result in results.values())

    def _seconds(self, results: dict[int, Result]) -> float | None:
        if results and (not self.state.failure or self._ended_well(results)):
            return max(result.ended for result in results.values()) - min(r.started for r in results.values())
        return self.state.ended - self.state.started if self.state.started and self.state.ended else None

    def _provenance(self, results: dict[int, Result]) -> dict[str, Any]:
        first = results.get(0)
        facts = common_provenance(self.handle, first)
        return {
            **facts,
            "slice": self.state.slice_name,
            "zone": self.state.zone,
            "accelerator_type": self.state.accelerator_type,
            "existing_slice": not self.state.slice_key,
            "provisioning_seconds": self.state.ready - self.state.asked if self.state.ready else None,
            "held_seconds": time.time() - self.state.ready if self.state.ready else None,
            "hosts": {str(worker): result.host for worker, result in results.items()},
            "exit_codes": {str(worker): describe_exit(result.exit_code) for worker, result in results.items()},
            "slices_not_had": list(self.state.failures),
            "remarks": list(self.state.notes),
        }


def _move(source: Path, target: Path) -> None:
    if not source.is_dir():
        return
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)


def store(folder: Path, found: Execution) -> None:
    """Keep an execution, so that a second `collect` answers the same without the slice."""
    data = {
        "state": found.state.value,
        "trace_dir": str(found.trace_dir) if found.trace_dir else None,
        "failure": found.failure.value if found.failure else None,
        "evidence": found.evidence,
        "seconds": found.seconds,
        "xpu_hours": found.xpu_hours,
        "provenance": found.provenance,
    }
    temporary = folder / f"{EXECUTION_FILE}.tmp"
    temporary.write_text(json.dumps(data, indent=1), encoding="utf-8")
    temporary.replace(folder / EXECUTION_FILE)


def stored(folder: Path) -> Execution | None:
    """The execution that `store` kept; None where there is none."""
    try:
        data = json.loads((folder / EXECUTION_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Execution(
        TrialState(data["state"]),
        trace_dir=Path(data["trace_dir"]) if data["trace_dir"] else None,
        failure=FailureClass(data["failure"]) if data["failure"] else None,
        evidence=data["evidence"],
        fidelity=Fidelity.MEASURED,
        seconds=data["seconds"],
        xpu_hours=data["xpu_hours"],
        provenance=data["provenance"],
    )
