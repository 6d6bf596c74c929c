"""From a submitted job to a slice it can start on: zones in turn, faults told apart, connection made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import launchers.tpu_vm.detached as detached
import launchers.tpu_vm.ledger as ledger
from launchers.tpu_vm.control import Endpoint, Node, workers_of
from launchers.tpu_vm.gcloud import Gcloud, Login
from launchers.tpu_vm.ledger import Ledger, SliceRecord
from launchers.tpu_vm.settings import TpuSettings, slice_shape
from launchers.tpu_vm.slices import Slices, Standing, View, judge_node
from launchers.tpu_vm.state import AttemptState, Phase
from launchers.tpu_vm.troubles import ControlError, Trouble, remedy
from launchers.tpu_vm.workers import direct_commands
from runs.errors import TargetUnavailableError
from runs.trial import FailureClass

_STOCKOUT_PAUSE_S = 60.0
_TAKEN_BACK = (Trouble.PREEMPTED, Trouble.SUSPENDED)


@dataclass
class Obtaining:
    """Gets one attempt its slice. `folder` is the attempt's folder on this machine."""

    settings: TpuSettings
    slices: Slices
    state: AttemptState
    folder: Path
    workers: int
    clock: Callable[[], float]

    # --- a slice ----------------------------------------------------------------------------------------------------

    def provision(self) -> None:
        """One step towards a usable slice.

        Raises:
            ControlError: the control plane did not answer; nothing has changed.
            TargetUnavailableError: there is no slice to be had until the user mends something.
        """
        view = self.view()
        if view.standing is Standing.READY and view.node is not None:
            self.state.phase, self.state.ready = Phase.CONNECTING, self.clock()
            self.state.accelerator_type = view.node.accelerator_type or self.state.accelerator_type
        elif view.standing is Standing.FAILED:
            self._failed(view)
        elif view.text and view.text not in self.state.notes[-1:]:
            self.state.notes.append(view.text)

    def view(self) -> View:
        """How the attempt's slice stands: its own, or the one that existed before."""
        if self.state.slice_key:
            waiting = self.state.phase is Phase.PROVISIONING
            return self.slices.advance(self.state.slice_key) if waiting else self.slices.look(self.state.slice_key)
        for zone in self.settings.zones:
            node = self.slices.control.node(zone, self.state.slice_name)
            if node is not None:
                self.state.zone = zone
                return judge_node(node)
        return View(Standing.FAILED, None, Trouble.NOT_FOUND, f"no slice is called {self.state.slice_name}")

    def _failed(self, view: View) -> None:
        trouble = view.trouble or Trouble.FAILED
        self.state.failures.append(f"{self.state.zone}: {view.text}")
        self.state.troubles.append(trouble.value)
        if not self.state.slice_key:
            raise self.refusal(view.text, remedy(trouble).hint or "choose another slice")
        self._drop()
        if trouble in _TAKEN_BACK:
            self.state.end(self.clock(), FailureClass.PREEMPTED, view.text)
        elif not remedy(trouble).next_zone and remedy(trouble).fatal:
            raise self.refusal(view.text, remedy(trouble).hint)
        else:
            self._next_zone()

    def _drop(self) -> None:
        hindrance = self.slices.release(self.state.slice_key)
        if hindrance:
            self.state.notes.append(hindrance)

    def _next_zone(self) -> None:
        self.state.zones_tried += 1
        now, zones = self.clock(), self.settings.zones
        if self.state.zones_tried % len(zones):
            self.plan(zones[self.state.zones_tried % len(zones)], 0.0)
            return
        found = [Trouble(name) for name in self.state.troubles[-len(zones) :]]
        waited = now - self.state.asked
        if Trouble.STOCKOUT in found and waited < self.settings.stockout_wait_s:
            self.plan(zones[0], now + min(_STOCKOUT_PAUSE_S, self.settings.stockout_wait_s - waited))
            return
        told = "; ".join(self.state.failures[-len(zones) :])
        if all(remedy(trouble).fatal for trouble in found):
            raise self.refusal(told, remedy(found[0]).hint)
        self.state.end(now, remedy(found[0]).failure, f"no slice to be had: {told}")

    def plan(self, zone: str, not_before: float) -> None:
        """Note a slice in the ledger, to be asked for from `not_before` on."""
        token, job = ledger.new_token(), self.state.job
        record = SliceRecord(
            name=ledger.slice_name(job["run_id"], f"{job['number']}-{job['attempt']}", token),
            zone=zone,
            token=token,
            run_id=job["run_id"],
            job=job["name"],
            accelerator_type=self.state.accelerator_type,
            queued=self.settings.provisioning == "queued",
            lifetime=self.settings.lifetime,
            created=self.clock(),
            project=self.settings.project,
            not_before=not_before,
        )
        self.book.save(record)
        self.take(record)

    def take(self, record: SliceRecord) -> None:
        """Make a slice of the ledger this attempt's."""
        self.state.slice_key, self.state.slice_name, self.state.zone = record.key, record.name, record.zone

    @property
    def book(self) -> Ledger:
        """The ledger."""
        return self.slices.ledger

    def refusal(self, text: str, hint: str) -> TargetUnavailableError:
        """The attempt can never run here: the error to raise."""
        self.state.phase = Phase.REFUSED
        return TargetUnavailableError(f"TPU target: {text}", hint)

    # --- a connection -----------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """One step towards ssh command lines for every worker.

        Raises:
            ControlError: see `provision`.
        """
        if detached.outcome(self.folder / "connect") is None and detached.is_running(self.folder / "connect"):
            return
        view = self.view()
        if view.standing is not Standing.READY or view.node is None:
            self.lost(view)
            return
        endpoints = self._endpoints(view.node)
        self.state.master = endpoints[0].internal if endpoints else ""
        commands = self._direct(view.node) if self.settings.ssh.connect == "direct" else self._by_gcloud()
        if commands is None:
            return
        if len(commands) != self.workers:
            reason = f"{self.state.slice_name} has {len(commands)} workers, the config needs {self.workers}"
            self.state.end(self.clock(), FailureClass.LAUNCH, reason)
            return
        self.state.commands, self.state.phase = commands, Phase.STARTING

    def lost(self, view: View) -> None:
        """The slice is not ready any more: end the attempt, unless it only restarts."""
        if view.standing is Standing.FAILED:
            trouble = view.trouble or Trouble.FAILED
            failure = FailureClass.PREEMPTED if trouble in _TAKEN_BACK else FailureClass.NODE_FAILURE
            self.state.end(self.clock(), failure, view.text)

    @staticmethod
    def _endpoints(node: Node) -> tuple[Endpoint, ...]:
        shape = slice_shape(node.accelerator_type)
        return workers_of(node, shape[0] if shape else 0)

    def _direct(self, node: Node) -> list[list[str]]:
        ssh = self.settings.ssh
        endpoints = self._endpoints(node)
        addresses = [e.internal if ssh.internal or not e.external else e.external for e in endpoints]
        alias = self.state.slice_name if self.state.slice_key else ""
        return direct_commands(addresses, ssh.user, ssh.key, ssh.port, ssh.options, alias)

    def _by_gcloud(self) -> list[list[str]] | None:
        control, folder = self.slices.control, self.folder / "connect"
        if not isinstance(control, Gcloud):
            raise ControlError(Trouble.CONFIG, "ssh by gcloud needs the gcloud control plane")
        ssh = self.settings.ssh
        login = Login(ssh.user, ssh.internal, ssh.iap)
        if not folder.exists():
            control.spread_key(self.state.zone, self.state.slice_name, login, folder)
            return None
        found = control.ssh_commands(self.state.zone, self.state.slice_name, login)
        return [[argv[0], *ssh.options, *argv[1:]] for argv in found]


def kept_slice(book: Ledger, run_id: str, accelerator_type: str) -> SliceRecord | None:
    """A slice of an earlier trial of the run that fits; None where a new one is needed."""
    found = [record for record in book.of_run(run_id) if record.accelerator_type == accelerator_type]
    return replace(found[-1]) if found else None
