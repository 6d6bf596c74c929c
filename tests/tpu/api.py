"""A stand-in for tpu.googleapis.com on loopback: nodes, queued resources and operations, with faults on demand.

It keeps what a launcher depends on: names, labels, operations that are not done at first, JSON fields and enum values
(Google's own client reads them), errors with their HTTP codes, endpoints that are real ssh servers. It knows nothing
of real capacity, timing, quota or TPU health.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from typing import Any

from tests.tpu.http import ApiError, handler_for
from tests.tpu.objects import Objects

Json = dict[str, Any]
_ROUTE = re.compile(
    r"/(?P<version>v2|v2alpha1)/(?P<parent>projects/[^/]+/locations/(?P<zone>[^/]+))"
    r"/(?P<kind>nodes|queuedResources|operations)(?:/(?P<id>[^/:]+))?(?::(?P<verb>\w+))?\Z"
)
_COMPUTE = re.compile(r"/compute/v1/projects/(?P<project>[^/]+)\Z")
_NODE_FIELDS = ("labels", "metadata", "schedulingConfig", "networkConfig", "runtimeVersion", "acceleratorType")
_ENUM = {"v5litepod": "V5LITE_POD", "v6e": "V6E", "v4": "V4", "v5p": "V5P"}


@dataclass
class Fault:
    """A fault of the next `times` creations in `zone` (None: any)."""

    kind: str
    times: int = 1
    zone: str | None = None


@dataclass
class Operation:
    """Done after `polls` more reads; then `finish` has its effect."""

    name: str
    target: str
    polls: int
    finish: Callable[[], Json]
    error: Json | None = None
    done: bool = False
    response: Json = field(default_factory=dict)


def hosts_of(accelerator_type: str) -> int:
    """Hosts of the types the tests use: v6e and v5e up to 8 chips have one, larger ones 4 chips a host."""
    kind, _, count = accelerator_type.partition("-")
    chips = int(count) // (2 if kind in ("v4", "v5p") else 1)
    single = 8 if kind in ("v5litepod", "v6e") else 4
    return 1 if chips <= single else chips // 4


class TpuApi:
    """The service. `addresses` are the hosts that slices get; `polls` reads pass before an operation is done."""

    def __init__(self, addresses: list[str], polls: int = 1, on_key: Callable[[str], None] | None = None) -> None:
        self.addresses = addresses
        self.polls = polls
        self.on_key = on_key
        self.lock = threading.RLock()
        self.reset()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(self.answer))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def reset(self) -> None:
        """Forget everything."""
        with self.lock:
            self.nodes: dict[str, Json] = {}
            self.queued: dict[str, Json] = {}
            self.operations: dict[str, Operation] = {}
            self.faults: list[Fault] = []
            self.outages: list[tuple[str, int]] = []
            self.objects = Objects()
            self.log: list[tuple[str, str, Json]] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def stop(self) -> None:
        """Close the port."""
        self.server.shutdown()
        self.server.server_close()

    # --- what tests do to it ----------------------------------------------------------------------------------------

    def fault(self, kind: str, times: int = 1, zone: str | None = None) -> None:
        """Let the next creations fail: stockout, reservation, quota, rate, permission, config, error500, error503."""
        self.faults.append(Fault(kind, times, zone))

    def outage(self, method: str, times: int) -> None:
        """Answer the next `times` requests of a method (GET, DELETE, POST) with 503."""
        self.outages.append((method, times))

    def set_state(self, name: str, state: str) -> None:
        """Change a slice's state behind everybody's back."""
        with self.lock:
            for node in self.nodes.values():
                if node["name"].endswith(f"/{name}"):
                    node["state"] = state

    def seed(self, name: str, zone: str, accelerator_type: str, labels: dict[str, str] | None = None) -> None:
        """A slice that somebody made before."""
        parent = f"projects/test-project/locations/{zone}"
        body = {"acceleratorType": accelerator_type, "runtimeVersion": "v2-alpha", "labels": labels or {}}
        with self.lock:
            node = self.nodes[f"{parent}/nodes/{name}"] = self._new_node(parent, name, body)
            self._ready(node)

    def names(self) -> list[str]:
        """Slices and queued resources there are."""
        with self.lock:
            return sorted(path.partition("/locations/")[2] for path in (*self.nodes, *self.queued))

    def requests(self, method: str, part: str) -> list[Json]:
        """Bodies of the requests of a method whose path holds `part`."""
        with self.lock:
            return [body for verb, path, body in self.log if verb == method and part in path]

    # --- requests ---------------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: dict[str, str], body: Json) -> Json | bytes:
        """The answer to a request.

        Raises:
            ApiError: it is an error.
        """
        with self.lock:
            self.log.append((method, path, body))
            self._outage(method, path)
            if _COMPUTE.match(path):
                return {"kind": "compute#project", "name": "test-project", "commonInstanceMetadata": {"items": []}}
            if (stored := self.objects.answer(path, query, self.url)) is not None:
                return stored
            route = _ROUTE.match(path)
            if route is None:
                raise ApiError(404, f"no route for {method} {path}")
            return {"nodes": self._nodes, "queuedResources": self._queued, "operations": self._operation}[
                route["kind"]
            ](method, route, query, body)

    def _outage(self, method: str, path: str) -> None:
        for index, (verb, left) in enumerate(self.outages):
            if verb == method and left > 0 and "/operations/" not in path:
                self.outages[index] = (verb, left - 1)
                raise ApiError(503, "The service is currently unavailable.")

    def _fault(self, zone: str, body: Json) -> str:
        for fault in self.faults:
            if fault.times > 0 and fault.zone in (None, zone):
                fault.times -= 1
                self._refuse(fault.kind, zone, body)
                return fault.kind
        return ""

    def _refuse(self, kind: str, zone: str, body: Json) -> None:
        node = body.get("tpu", {}).get("nodeSpec", [{}])[0].get("node", body)
        texts = {
            "quota": (429, f"Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. "
                           f"Limit: 0 in region {zone[:-2]}."),
            "rate": (429, "Quota exceeded for quota metric 'CreateNode requests' and limit 'Maximum number of "
                          "CreateNode requests per minute' of service 'tpu.googleapis.com'."),
            "permission": (403, f"Permission 'tpu.nodes.create' denied on 'projects/p/locations/{zone}/nodes/x'"),
            "config": (400, f'Accelerator type "{node.get("acceleratorType")}" not found in zone "{zone}".'),
            "error500": (500, "Internal error encountered."),
            "error503": (503, "The service is currently unavailable."),
        }  # fmt: skip
        if kind in texts:
            raise ApiError(*texts[kind])

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _new_node(self, parent: str, name: str, body: Json) -> Json:
        node = {key: body[key] for key in _NODE_FIELDS if key in body}
        return {
            **node,
            "name": f"{parent}/nodes/{name}",
            "state": "CREATING",
            "health": "HEALTHY",
            "id": str(uuid.uuid4().int % 2**63),
            "apiVersion": "V2",
            "createTime": _now(),
        }

    def _ready(self, node: Json) -> None:
        count = hosts_of(node["acceleratorType"])
        node["networkEndpoints"] = [
            {"ipAddress": address, "port": 8470, "accessConfig": {"externalIp": address}}
            for address in self.addresses[:count]
        ]
        kind = node["acceleratorType"].partition("-")[0]
        node["acceleratorConfig"] = {"type": _ENUM[kind], "topology": f"4x{count}"}
        node["state"] = "READY"

    def _nodes(self, method: str, route: re.Match[str], query: dict[str, str], body: Json) -> Json:
        parent, name = route["parent"], route["id"]
        if name is None:
            if method == "POST":
                return self._create_node(route, query["nodeId"], body)
            return {"nodes": [n for path, n in self.nodes.items() if path.startswith(f"{parent}/")]}
        node = self.nodes.get(f"{parent}/nodes/{name}")
        if node is None:
            raise ApiError(404, f"Resource '{parent}/nodes/{name}' was not found")
        if route["verb"] == "getGuestAttributes":
            return {"guestAttributes": [self._host_key(number) for number in self._workers_named(node, body)]}
        if method == "PATCH":
            return self._patch_node(route, node, query, body)
        if method == "DELETE":
            node["state"] = "DELETING"
            return self._start(route, node["name"], lambda: self._forget(self.nodes, node["name"]))
        return node

    @staticmethod
    def _workers_named(node: Json, body: Json) -> list[int]:
        named = [int(number) for number in body.get("workerIds", []) if number]
        return named or list(range(len(node.get("networkEndpoints", []))))

    @staticmethod
    def _host_key(number: int) -> Json:
        """What gcloud makes of it is a name for the host: its last six characters."""
        item = {"namespace": "hostkeys", "key": "ssh-ed25519", "value": f"AAAAC3NzaC1lZDI1NTE5host{number:02}"}
        return {"queryPath": "hostkeys/", "queryValue": {"items": [item]}}

    def _create_node(self, route: re.Match[str], name: str, body: Json) -> Json:
        path = f"{route['parent']}/nodes/{name}"
        if path in self.nodes:
            raise ApiError(409, f"Resource '{path}' already exists")
        kind = self._fault(route["zone"], body)
        node = self.nodes[path] = self._new_node(route["parent"], name, body)
        if kind in ("stockout", "reservation"):
            error = _no_capacity(kind, route["zone"])
            return self._start(route, path, lambda: self._forget(self.nodes, path), error)

        def finish() -> Json:
            self._ready(node)
            return {"@type": "type.googleapis.com/google.cloud.tpu.v2.Node", **node}

        return self._start(route, path, finish)

    def _patch_node(self, route: re.Match[str], node: Json, query: dict[str, str], body: Json) -> Json:
        for name in query.get("updateMask", "").split(","):
            if name in body:
                node[name] = body[name]
        keys = body.get("metadata", {}).get("ssh-keys", "")
        for line in keys.splitlines():
            if self.on_key is not None:
                self.on_key(line.partition(":")[2])
        return self._start(
            route, node["name"], lambda: {"@type": "type.googleapis.com/google.cloud.tpu.v2.Node", **node}, polls=0
        )

    # --- queued resources -------------------------------------------------------------------------------------------

    def _queued(self, method: str, route: re.Match[str], query: dict[str, str], body: Json) -> Json:
        parent, name = route["parent"], route["id"]
        if name is None:
            if method == "POST":
                return self._create_queued(route, query["queuedResourceId"], body)
            found = [_visible(q) for path, q in self.queued.items() if path.startswith(f"{parent}/")]
            return {"queuedResources": found}
        entry = self.queued.get(f"{parent}/queuedResources/{name}")
        if entry is None:
            raise ApiError(404, f"Resource '{parent}/queuedResources/{name}' was not found")
        if method == "DELETE":
            return self._delete_queued(route, entry, query)
        self._move(route["parent"], route["zone"], entry)
        return _visible(entry)

    def _create_queued(self, route: re.Match[str], name: str, body: Json) -> Json:
        path = f"{route['parent']}/queuedResources/{name}"
        if path in self.queued:
            raise ApiError(409, f"Resource '{path}' already exists")
        kind = self._fault(route["zone"], body)
        entry = self.queued[path] = {**body, "name": path, "createTime": _now(), "_fault": kind, "_reads": 0}
        entry["state"] = {"state": "WAITING_FOR_RESOURCES", "stateInitiator": "SERVICE"}
        answer = {"@type": "type.googleapis.com/google.cloud.tpu.v2.QueuedResource", **_visible(entry)}
        return self._start(route, path, lambda: answer, polls=0)

    def _move(self, parent: str, zone: str, entry: Json) -> None:
        """The life of a queued resource, a step a read."""
        entry["_reads"] += 1
        state = entry["state"]["state"]
        mine = [node for node in self.nodes.values() if node.get("queuedResource") == entry["name"]]
        if state == "WAITING_FOR_RESOURCES" and entry["_reads"] > self.polls and entry["_fault"] != "forever":
            if entry["_fault"] in ("stockout", "reservation"):
                error = _no_capacity(entry["_fault"], zone)
                entry["state"] = {"state": "FAILED", "failedData": {"error": error}, "stateInitiator": "SERVICE"}
            else:
                entry["state"] = {"state": "PROVISIONING", "provisioningData": {}, "stateInitiator": "SERVICE"}
        elif state == "PROVISIONING":
            for spec in entry["tpu"]["nodeSpec"]:
                node = self._new_node(parent, spec["nodeId"], spec["node"])
                node["queuedResource"] = entry["name"]
                self._ready(node)
                self.nodes[node["name"]] = node
            entry["state"] = {"state": "ACTIVE", "activeData": {}, "stateInitiator": "SERVICE"}
        elif state == "ACTIVE" and any(node["state"] == "PREEMPTED" for node in mine):
            entry["state"] = {"state": "SUSPENDING", "suspendingData": {}, "stateInitiator": "SERVICE"}
        elif state == "SUSPENDING":
            for node in mine:
                self.nodes.pop(node["name"])
            entry["state"] = {"state": "SUSPENDED", "suspendedData": {}, "stateInitiator": "SERVICE"}

    def _delete_queued(self, route: re.Match[str], entry: Json, query: dict[str, str]) -> Json:
        mine = [path for path, node in self.nodes.items() if node.get("queuedResource") == entry["name"]]
        if mine and query.get("force", "").lower() != "true":
            raise ApiError(400, f"Queued resource '{entry['name']}' has nodes: use force.")
        entry["state"] = {"state": "DELETING"}

        def finish() -> Json:
            for path in mine:
                self.nodes.pop(path, None)
            return self._forget(self.queued, entry["name"])

        return self._start(route, entry["name"], finish)

    # --- operations and objects -------------------------------------------------------------------------------------

    def _start(
        self,
        route: re.Match[str],
        target: str,
        finish: Callable[[], Json],
        error: Json | None = None,
        polls: int | None = None,
    ) -> Json:
        name = f"{route['parent']}/operations/operation-{uuid.uuid4().hex}"
        operation = Operation(name, target, self.polls if polls is None else polls, finish, error)
        self.operations[name] = operation
        return self._view(operation)

    def _forget(self, where: dict[str, Json], name: str) -> Json:
        where.pop(name, None)
        return {"@type": "type.googleapis.com/google.protobuf.Empty"}

    def _operation(self, _method: str, route: re.Match[str], _query: dict[str, str], _body: Json) -> Json:
        name = f"{route['parent']}/operations/{route['id']}"
        if name not in self.operations:
            raise ApiError(404, f"Resource '{name}' was not found")
        return self._view(self.operations[name])

    def _view(self, operation: Operation) -> Json:
        if not operation.done:
            if operation.polls > 0:
                operation.polls -= 1
            else:
                operation.done = True
                operation.response = operation.finish()
        meta = {"@type": "type.googleapis.com/google.cloud.tpu.v2.OperationMetadata", "target": operation.target}
        view: Json = {"name": operation.name, "metadata": meta}
        if operation.done:
            outcome = {"error": operation.error} if operation.error else {"response": operation.response}
            view |= {"done": True, **outcome}
        return view

    def settle(self) -> None:
        """Finish every deletion: nobody reads the operation of an asynchronous one."""
        with self.lock:
            for operation in list(self.operations.values()):
                while not operation.done:
                    self._view(operation)


def _no_capacity(kind: str, zone: str) -> Json:
    if kind == "reservation":
        return {
            "code": 8,
            "message": "Insufficient reserved capacity. Contact customer support to increase your reservation.",
        }
    text = (
        f'There is no more capacity in the zone "{zone}"; you can try in another zone where Cloud TPU Nodes are offered'
    )
    return {"code": 8, "message": f"{text} (see https://cloud.google.com/tpu/docs/regions) [EID: 0x1a2b3c]"}


def _visible(entry: Json) -> Json:
    return {key: value for key, value in entry.items() if not key.startswith("_")}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
