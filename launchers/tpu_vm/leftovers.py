"""What crashed searches left in the cloud: found by ledger and label, deleted only where both agree."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from launchers.tpu_vm.control import ControlPlane, Node, QueuedResource
from launchers.tpu_vm.ledger import LABEL, TOKEN_LABEL, Ledger, SliceRecord, SliceState
from launchers.tpu_vm.settings import TpuSettings
from launchers.tpu_vm.slices import Slices

_PAUSE_S = 5.0


@dataclass(frozen=True)
class Leftover:
    """A slice or queued resource of ccl-search that exists. `ours`: a ledger of this home asked for it.

    `key` is its record in `ledger`; empty for what another home or user made, which is never deleted here.
    """

    name: str
    zone: str
    kind: str
    state: str
    ours: bool
    run: str = ""
    job: str = ""
    key: str = ""
    ledger: Ledger | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """JSON data."""
        facts = {"name": self.name, "zone": self.zone, "kind": self.kind, "state": self.state, "ours": self.ours}
        return {**facts, "run": self.run, "job": self.job}


@dataclass
class Leftovers:
    """Finds and removes what the ledgers of one home left, through one control plane."""

    control: ControlPlane
    settings: TpuSettings
    ledgers: list[Ledger]
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    def find(self) -> list[Leftover]:
        """Everything labelled by ccl-search in the target's zones and in those of the ledgers, zone by zone.

        Raises:
            ControlError: the control plane did not answer.
        """
        known = {record.token: (ledger, record) for ledger, record in self._records()}
        zones = dict.fromkeys((*self.settings.zones, *(record.zone for _, record in known.values())))
        return [entry for zone in zones for entry in self._of_zone(zone, known)]

    def remove(self, found: Iterable[Leftover], wait_s: float) -> list[str]:
        """Delete what is ours and wait until it is gone; what hindered it, one line each.

        Raises:
            ControlError: the control plane did not answer.
        """
        ours = [entry for entry in found if entry.ours and entry.ledger is not None]
        keys = {(entry.ledger, entry.key) for entry in ours if entry.ledger is not None}
        told = [self._slices(ledger).release(key) for ledger, key in sorted(keys, key=lambda pair: pair[1])]
        deadline = self.clock() + wait_s
        left = self._still(ours)
        while left and self.clock() < deadline:
            self.sleep(_PAUSE_S)
            left = self._still(ours)
        self.note_gone()
        return [text for text in told if text] + [f"{e.kind} {e.name} in {e.zone} is {e.state}" for e in left]

    def note_gone(self) -> None:
        """Mark records whose slice does not exist any more."""
        there = {entry.key for entry in self.find()}
        for ledger, record in self._records():
            if record.may_exist and record.key not in there:
                ledger.save(replace(record, state=SliceState.DELETED))

    def _records(self) -> list[tuple[Ledger, SliceRecord]]:
        return [
            (ledger, record)
            for ledger in self.ledgers
            for record in ledger.records()
            if record.project in (None, self.settings.project) or self.settings.project is None
        ]

    def _of_zone(self, zone: str, known: dict[str, tuple[Ledger, SliceRecord]]) -> list[Leftover]:
        queued = [entry for entry in self.control.queued_resources(zone) if LABEL in entry.labels]
        names = {entry.name for entry in queued}
        alone = [n for n in self.control.nodes(zone) if LABEL in n.labels and n.queued_resource not in names]
        return [*(self._leftover(entry, known) for entry in queued), *(self._leftover(entry, known) for entry in alone)]

    def _leftover(self, found: Node | QueuedResource, known: dict[str, tuple[Ledger, SliceRecord]]) -> Leftover:
        kind = "queued resource" if isinstance(found, QueuedResource) else "slice"
        ledger, record = known.get(found.labels.get(TOKEN_LABEL, ""), (None, None))
        if record is None or (record.name, record.zone) != (found.name, found.zone):
            return Leftover(found.name, found.zone, kind, found.state, False, found.labels.get("ccl-run", ""))
        return Leftover(
            found.name, found.zone, kind, found.state, True, record.run_id, record.job, record.key, ledger
        )  # fmt: skip

    def _slices(self, ledger: Ledger) -> Slices:
        return Slices(self.control, ledger, self.settings.template, self.clock)

    def _still(self, ours: list[Leftover]) -> list[Leftover]:
        keys = {entry.key for entry in ours}
        return [entry for entry in self.find() if entry.key in keys] if keys else []
