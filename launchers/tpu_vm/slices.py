"""A slice's life: asked for, waited for, watched, deleted. One step a call; what must not be lost is in the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from launchers.tpu_vm.control import (
    NODE_STOPPED,
    QUEUE_SUSPENDED,
    ControlPlane,
    Node,
    Progress,
    QueuedResource,
    SliceRequest,
)
from launchers.tpu_vm.ledger import Ledger, SliceRecord, SliceState, failed
from launchers.tpu_vm.troubles import ControlError, Trouble, classify, essence, remedy

_MOST_TRIES = 6
_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 120.0
_BAD_HEALTH = ("UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE", "TIMEOUT")


class Standing(StrEnum):
    """Where a slice stands for a job: to be waited for, usable, or not to be had."""

    WAITING = "waiting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class View:
    """What one look at a slice found; a failed one has its trouble and the service's words."""

    standing: Standing
    node: Node | None = None
    trouble: Trouble | None = None
    text: str = ""


WAIT = View(Standing.WAITING)


def judge_node(node: Node | None) -> View:
    """What the description of a slice means for a job that needs it."""
    if node is None:
        return View(Standing.FAILED, None, Trouble.NOT_FOUND, "the slice does not exist")
    said = f"{node.name} in {node.zone} is {node.state}"
    if node.state == "READY":
        return View(Standing.READY, node)
    if node.is_gone:
        return View(Standing.FAILED, node, Trouble.PREEMPTED, f"{said}: the service took it back")
    if node.state in NODE_STOPPED:
        return View(Standing.FAILED, node, Trouble.STOPPED, said)
    return View(Standing.WAITING, node, None, " ".join(part for part in (said, node.explanation) if part))


def is_unwell(node: Node) -> str:
    """Why a slice cannot be trusted; empty where it can. Its workers' silence together with this is a node failure."""
    if node.health in _BAD_HEALTH:
        return f"{node.name} has health {node.health} {node.explanation}".strip()
    return ""


@dataclass
class Slices:
    """Takes the slices of one ledger through their lives. `template` is the request without name, zone and labels."""

    control: ControlPlane
    ledger: Ledger
    template: SliceRequest
    clock: Callable[[], float] = field(default=time.time)

    def advance(self, key: str) -> View:
        """Do the next thing for a slice that is wanted, and say how it stands.

        Raises:
            ControlError: the control plane did not answer or refused; nothing has changed.
        """
        record = self._record(key)
        if record.state is SliceState.PLANNED:
            return self._ask(record)
        if record.state is SliceState.ASKED:
            return self._follow(record)
        if record.state is SliceState.GRANTED:
            return self._look(record)
        return View(Standing.FAILED, None, Trouble(record.trouble or Trouble.NOT_FOUND), record.text or "deleted")

    def look(self, key: str) -> View:
        """How a slice that was granted stands now (see `advance`)."""
        return self._look(self._record(key))

    def release(self, key: str) -> str:
        """Delete a slice if it is ours; what hinders it, empty where the deletion was accepted or nothing is there.

        A refusal stays in the ledger: `ccl-search cleanup` tries again.
        """
        record = self._record(key)
        folder = self.ledger.workplace(record)
        self.control.abandon(folder)
        if record.state in (SliceState.PLANNED, SliceState.DELETED):
            self.ledger.save(replace(record, state=SliceState.DELETED))
            return ""
        try:
            return self._delete(record)
        except ControlError as error:
            self.ledger.save(failed(record, error.trouble, essence(error.text)))
            return f"slice {record.name} in {record.zone} could not be deleted: {essence(error.text)}"

    # --- asking -----------------------------------------------------------------------------------------------------

    def _record(self, key: str) -> SliceRecord:
        record = self.ledger.load(key)
        if record is None:
            raise ControlError(Trouble.NOT_FOUND, f"the ledger {self.ledger.folder} has no slice {key}")
        return record

    def request(self, record: SliceRecord) -> SliceRequest:
        """The request that a record stands for; labels of the product cannot be overridden."""
        return replace(
            self.template,
            name=record.name,
            zone=record.zone,
            accelerator_type=record.accelerator_type,
            labels={**self.template.labels, **record.labels},
        )

    def _ask(self, record: SliceRecord) -> View:
        if self.clock() < record.not_before:
            return replace(WAIT, text=record.text)
        record = self.ledger.save(replace(record, state=SliceState.ASKED, tries=record.tries + 1))
        self.control.start_creation(self.request(record), self.ledger.workplace(record))
        return WAIT

    def _follow(self, record: SliceRecord) -> View:
        standing = self.control.creation(self.request(record), self.ledger.workplace(record))
        if standing.progress is Progress.PENDING:
            return WAIT
        if standing.progress is Progress.FAILED and classify(standing.text) is not Trouble.EXISTS:
            return self._refused(record, classify(standing.text), essence(standing.text))
        return self._confirm(record, standing.text)

    def _confirm(self, record: SliceRecord, text: str) -> View:
        """Believe what exists, whatever the creating command said of itself."""
        labels = self._labels(record)
        if labels is None:
            return self._again(record, Trouble.UNAVAILABLE, "the request was accepted, but there is no slice")
        if not record.owns(labels):
            self.ledger.save(replace(failed(record, Trouble.EXISTS, essence(text)), state=SliceState.DELETED))
            return View(Standing.FAILED, None, Trouble.EXISTS, f"{record.name} in {record.zone} is somebody else's")
        return self._look(self.ledger.save(replace(record, state=SliceState.GRANTED)))

    def _refused(self, record: SliceRecord, trouble: Trouble, text: str) -> View:
        if remedy(trouble).again and trouble is not Trouble.STOCKOUT:
            return self._again(record, trouble, text)
        return self._give_up(record, trouble, text)

    def _again(self, record: SliceRecord, trouble: Trouble, text: str) -> View:
        if record.tries >= _MOST_TRIES:
            return self._give_up(record, trouble, f"{text} ({record.tries} tries)")
        pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (record.tries - 1))
        noted = failed(record, trouble, text)
        self.ledger.save(replace(noted, state=SliceState.PLANNED, not_before=self.clock() + pause))
        return replace(WAIT, text=text)

    def _give_up(self, record: SliceRecord, trouble: Trouble, text: str) -> View:
        record = self.ledger.save(failed(record, trouble, text))
        self._delete(record)
        return View(Standing.FAILED, None, trouble, text)

    # --- looking ----------------------------------------------------------------------------------------------------

    def _labels(self, record: SliceRecord) -> dict[str, str] | None:
        """Labels of the real thing of that name; None where there is none."""
        found: QueuedResource | Node | None = None
        if record.queued:
            found = self.control.queued_resource(record.zone, record.name)
        found = found or self.control.node(record.zone, record.name)
        return None if found is None else dict(found.labels)

    def _look(self, record: SliceRecord) -> View:
        if record.queued:
            waiting = self._look_queued(record)
            if waiting is not None:
                return waiting
        return judge_node(self.control.node(record.zone, record.name))

    def _look_queued(self, record: SliceRecord) -> View | None:
        """How the queued resource stands; None where its slice is to be looked at."""
        queued = self.control.queued_resource(record.zone, record.name)
        if queued is None:
            return View(Standing.FAILED, None, Trouble.NOT_FOUND, f"queued resource {record.name} is gone")
        if queued.state == "ACTIVE":
            return None
        said = f"queued resource {queued.name} in {queued.zone} is {queued.state}"
        if queued.state in QUEUE_SUSPENDED:
            return View(Standing.FAILED, None, Trouble.SUSPENDED, f"{said}: the service took the slice back")
        if queued.state == "FAILED":
            text = queued.error or said
            return View(Standing.FAILED, None, classify(text), essence(text))
        if queued.state == "DELETING":
            return View(Standing.FAILED, None, Trouble.NOT_FOUND, said)
        return replace(WAIT, text=said)

    # --- deleting ---------------------------------------------------------------------------------------------------

    def _delete(self, record: SliceRecord) -> str:
        """Delete what exists under the record's name and carries its token; see `release`."""
        if record.queued:
            queued = self.control.queued_resource(record.zone, record.name)
            if queued is not None:
                return self._delete_checked(record, queued)
        node = self.control.node(record.zone, record.name)
        if node is not None:
            return self._delete_checked(record, node)
        self.ledger.save(replace(record, state=SliceState.DELETED))
        return ""

    def _delete_checked(self, record: SliceRecord, found: Node | QueuedResource) -> str:
        if not record.owns(found.labels):
            self.ledger.save(replace(record, state=SliceState.DELETED))
            return f"{found.name} in {found.zone} does not carry our label: it is left alone"
        if found.state == "DELETING":
            pass
        elif isinstance(found, QueuedResource):
            self.control.delete_queued_resource(record.zone, record.name)
        else:
            self.control.delete_node(record.zone, record.name)
        self.ledger.save(replace(record, state=SliceState.DELETING))
        return ""
