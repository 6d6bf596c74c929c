"""The control plane of TPU slices: what is asked of it, and what it answers. Two implementations share these types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

NODE_STOPPED = frozenset({"STOPPED", "STOPPING", "TERMINATED", "HIDING", "HIDDEN", "DELETING"})
QUEUE_SUSPENDED = frozenset({"SUSPENDING", "SUSPENDED"})


@dataclass(frozen=True)
class Endpoint:
    """Addresses of one worker; `external` is None where the slice has internal addresses only."""

    internal: str
    external: str | None


@dataclass(frozen=True)
class Node:
    """A slice as the service describes it. Worker i is `endpoints[i]`."""

    name: str
    zone: str
    state: str
    health: str = ""
    explanation: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    endpoints: tuple[Endpoint, ...] = ()
    accelerator_type: str = ""
    queued_resource: str = ""

    @property
    def is_gone(self) -> bool:
        """The service took the slice back."""
        return self.state == "PREEMPTED"


@dataclass(frozen=True)
class QueuedResource:
    """A request that waits for capacity. `error` is the service's word where `state` is FAILED."""

    name: str
    zone: str
    state: str
    error: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SliceRequest:
    """A slice to be created. `queued`: by a queued resource of the same name. `capacity`: on-demand, spot, reserved."""

    name: str
    zone: str
    accelerator_type: str
    runtime_version: str
    capacity: str = "on-demand"
    queued: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    network: str | None = None
    subnetwork: str | None = None
    internal_ips: bool = False
    service_account: str | None = None
    valid_for: str | None = None


class Progress(StrEnum):
    """How a request to create stands. `LOST`: nobody knows; look at what exists."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"


@dataclass(frozen=True)
class Creation:
    """The standing of a request to create, with the service's text where it failed."""

    progress: Progress
    text: str = ""


class ControlPlane(Protocol):
    """Every method has a time limit of its own and raises `ControlError`; what does not exist is None, no error."""

    def start_creation(self, request: SliceRequest, folder: Path) -> None:
        """Ask for a slice and return at once; what a later process needs to follow it is in `folder`."""
        ...

    def creation(self, request: SliceRequest, folder: Path) -> Creation:
        """How the request whose traces are in `folder` stands."""
        ...

    def abandon(self, folder: Path) -> None:
        """Stop waiting for a request on this machine; what it created is deleted by the caller."""
        ...

    def node(self, zone: str, name: str) -> Node | None:
        """The slice of that name."""
        ...

    def queued_resource(self, zone: str, name: str) -> QueuedResource | None:
        """The queued resource of that name."""
        ...

    def nodes(self, zone: str) -> list[Node]:
        """All slices of a zone."""
        ...

    def queued_resources(self, zone: str) -> list[QueuedResource]:
        """All queued resources of a zone."""
        ...

    def delete_node(self, zone: str, name: str) -> None:
        """Ask for a slice to be deleted; one that does not exist is no error. Does not wait."""
        ...

    def delete_queued_resource(self, zone: str, name: str) -> None:
        """Ask for a queued resource and its slice to be deleted; as `delete_node`."""
        ...


def read_node(data: Mapping[str, Any]) -> Node:
    """A slice from the service's JSON."""
    location, name = _place(str(data["name"]))
    endpoints = tuple(
        Endpoint(str(entry.get("ipAddress", "")), (entry.get("accessConfig") or {}).get("externalIp") or None)
        for entry in data.get("networkEndpoints") or []
    )
    symptoms = [str(entry.get("symptomType", "")) for entry in data.get("symptoms") or []]
    explanation = "; ".join(part for part in (str(data.get("healthDescription") or ""), *symptoms) if part)
    return Node(
        name=name,
        zone=location,
        state=str(data.get("state", "UNKNOWN")),
        health=str(data.get("health", "")),
        explanation=explanation,
        labels=dict(data.get("labels") or {}),
        endpoints=endpoints,
        accelerator_type=str(data.get("acceleratorType", "")),
        queued_resource=str(data.get("queuedResource", "")).rpartition("/")[2],
    )


def read_queued_resource(data: Mapping[str, Any]) -> QueuedResource:
    """A queued resource from the service's JSON. It has no labels of its own: those of its slices count."""
    location, name = _place(str(data["name"]))
    state = data.get("state") or {}
    specs = (data.get("tpu") or {}).get("nodeSpec") or []
    labels: dict[str, str] = {}
    for spec in specs:
        labels.update((spec.get("node") or {}).get("labels") or {})
    error = (state.get("failedData") or {}).get("error") or {}
    return QueuedResource(
        name=name,
        zone=location,
        state=str(state.get("state", "")),
        error=str(error.get("message", "")),
        labels=labels,
        nodes=tuple(str(spec.get("nodeId", "")) for spec in specs),
    )


def workers_of(node: Node, expected: int) -> tuple[Endpoint, ...]:
    """One endpoint a worker: with several networks the service lists every worker that many times in a row."""
    count = len(node.endpoints)
    if expected and count > expected and count % expected == 0:
        return node.endpoints[:: count // expected]
    return node.endpoints


def _place(resource: str) -> tuple[str, str]:
    """(zone, last part) of `projects/P/locations/Z/nodes/N`."""
    parts = resource.split("/")
    zone = parts[parts.index("locations") + 1] if "locations" in parts[:-1] else ""
    return zone, parts[-1]
