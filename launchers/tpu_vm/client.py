"""The control plane by Google's own client library (extra `tpu`), for machines without `gcloud`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from launchers.tpu_vm.control import (
    Creation,
    Node,
    Progress,
    QueuedResource,
    SliceRequest,
    read_node,
    read_queued_resource,
)
from launchers.tpu_vm.troubles import ControlError, Trouble, classify, essence
from runs.errors import BadInputError

_CALL_S = 60.0
_OPERATION_FILE = "operation"
_BY_NAME = {
    "NotFound": Trouble.NOT_FOUND,
    "AlreadyExists": Trouble.EXISTS,
    "Conflict": Trouble.EXISTS,
    "Forbidden": Trouble.PERMISSION,
    "PermissionDenied": Trouble.PERMISSION,
    "Unauthorized": Trouble.AUTH,
    "Unauthenticated": Trouble.AUTH,
    "DefaultCredentialsError": Trouble.AUTH,
    "RefreshError": Trouble.AUTH,
    "BadRequest": Trouble.CONFIG,
    "InvalidArgument": Trouble.CONFIG,
    "ServiceUnavailable": Trouble.UNAVAILABLE,
    "InternalServerError": Trouble.UNAVAILABLE,
    "GatewayTimeout": Trouble.UNAVAILABLE,
    "RetryError": Trouble.UNAVAILABLE,
    "ConnectionError": Trouble.UNAVAILABLE,
}


@dataclass
class GoogleClient:
    """Talks to the TPU API v2 over REST. `endpoint` replaces Google's; `anonymous` sends no credentials (tests)."""

    project: str
    endpoint: str | None = None
    anonymous: bool = False
    timeout_s: float = _CALL_S
    library: Any = field(default=None, repr=False)

    @cached_property
    def _client(self) -> Any:
        library = self._library()
        options = {"api_endpoint": self.endpoint} if self.endpoint else {}
        credentials = None
        if self.anonymous:
            credentials = importlib.import_module("google.auth.credentials").AnonymousCredentials()
        return library.TpuClient(transport="rest", credentials=credentials, client_options=options)

    def _library(self) -> Any:
        if self.library is None:
            try:
                self.library = importlib.import_module("google.cloud.tpu_v2")
            except ImportError as error:
                raise BadInputError(
                    "the google-cloud-tpu client is not installed", "pip install 'ccl-search[tpu]', or use gcloud"
                ) from error
        return self.library

    # --- creating ---------------------------------------------------------------------------------------------------

    def start_creation(self, request: SliceRequest, folder: Path) -> None:
        """See `ControlPlane`. A refusal is written down, to be told by `creation`."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / _OPERATION_FILE
        path.unlink(missing_ok=True)
        (folder / "err").unlink(missing_ok=True)
        try:
            operation = self._call(lambda: self._create(request))
        except ControlError as error:
            (folder / "err").write_text(f"{error.trouble.value}\n{error.text}", encoding="utf-8")
            return
        path.write_text(str(operation.operation.name), encoding="utf-8")

    def creation(self, request: SliceRequest, folder: Path) -> Creation:
        """See `ControlPlane`."""
        refusal = folder / "err"
        if refusal.exists():
            return Creation(Progress.FAILED, refusal.read_text(encoding="utf-8").partition("\n")[2])
        path = folder / _OPERATION_FILE
        if not path.exists():
            return Creation(Progress.LOST)
        name = path.read_text(encoding="utf-8")
        operation = self._call(lambda: self._client.get_operation({"name": name}))
        if not operation.done:
            return Creation(Progress.PENDING)
        if operation.HasField("error"):
            return Creation(Progress.FAILED, str(operation.error.message))
        return Creation(Progress.DONE)

    def abandon(self, folder: Path) -> None:
        """See `ControlPlane`. Nothing of this machine waits for an operation."""

    def _create(self, request: SliceRequest) -> Any:
        library, parent = self._library(), self._parent(request.zone)
        node = self._node(request)
        if not request.queued:
            return self._client.create_node(
                parent=parent, node_id=request.name, node=node, timeout=self.timeout_s, retry=None
            )
        specification = library.QueuedResource.Tpu.NodeSpec(parent=parent, node_id=request.name, node=node)
        asked = library.QueuedResource(tpu=library.QueuedResource.Tpu(node_spec=[specification]))
        if request.capacity == "spot":
            asked.spot = library.QueuedResource.Spot()
        elif request.capacity == "reserved":
            asked.guaranteed = library.QueuedResource.Guaranteed(reserved=True)
        return self._client.create_queued_resource(
            parent=parent, queued_resource_id=request.name, queued_resource=asked, timeout=self.timeout_s, retry=None
        )

    def _node(self, request: SliceRequest) -> Any:
        library = self._library()
        network = library.NetworkConfig(
            network=request.network or "",
            subnetwork=request.subnetwork or "",
            enable_external_ips=not request.internal_ips,
        )
        node = library.Node(
            accelerator_type=request.accelerator_type,
            runtime_version=request.runtime_version,
            labels=dict(request.labels),
            metadata=dict(request.metadata),
            network_config=network,
        )
        if not request.queued:
            node.scheduling_config = library.SchedulingConfig(
                spot=request.capacity == "spot", reserved=request.capacity == "reserved"
            )
        if request.service_account:
            node.service_account = library.ServiceAccount(email=request.service_account)
        return node

    # --- looking and deleting ---------------------------------------------------------------------------------------

    def node(self, zone: str, name: str) -> Node | None:
        """See `ControlPlane`."""
        found = self._existing(
            lambda: self._client.get_node(name=self._name(zone, "nodes", name), timeout=self.timeout_s)
        )
        return None if found is None else read_node(self._json(found))

    def queued_resource(self, zone: str, name: str) -> QueuedResource | None:
        """See `ControlPlane`."""
        path = self._name(zone, "queuedResources", name)
        found = self._existing(lambda: self._client.get_queued_resource(name=path, timeout=self.timeout_s))
        return None if found is None else read_queued_resource(self._json(found))

    def nodes(self, zone: str) -> list[Node]:
        """See `ControlPlane`."""
        parent = self._parent(zone)
        found = self._call(lambda: list(self._client.list_nodes(parent=parent, timeout=self.timeout_s)))
        return [read_node(self._json(entry)) for entry in found]

    def queued_resources(self, zone: str) -> list[QueuedResource]:
        """See `ControlPlane`."""
        parent = self._parent(zone)
        found = self._call(lambda: list(self._client.list_queued_resources(parent=parent, timeout=self.timeout_s)))
        return [read_queued_resource(self._json(entry)) for entry in found]

    def delete_node(self, zone: str, name: str) -> None:
        """See `ControlPlane`."""
        path = self._name(zone, "nodes", name)
        self._existing(lambda: self._client.delete_node(name=path, timeout=self.timeout_s))

    def delete_queued_resource(self, zone: str, name: str) -> None:
        """See `ControlPlane`."""
        asked = {"name": self._name(zone, "queuedResources", name), "force": True}
        self._existing(lambda: self._client.delete_queued_resource(request=asked, timeout=self.timeout_s))

    # --- pieces -----------------------------------------------------------------------------------------------------

    def _parent(self, zone: str) -> str:
        return f"projects/{self.project}/locations/{zone}"

    def _name(self, zone: str, kind: str, name: str) -> str:
        return f"{self._parent(zone)}/{kind}/{name}"

    def _json(self, message: Any) -> dict[str, Any]:
        found: dict[str, Any] = type(message).to_dict(
            message, use_integers_for_enums=False, preserving_proto_field_name=False
        )
        return found

    def _existing(self, call: Callable[[], Any]) -> Any:
        try:
            return self._call(call)
        except ControlError as error:
            if error.trouble is Trouble.NOT_FOUND:
                return None
            raise

    def _call(self, call: Callable[[], Any]) -> Any:
        """The answer of a call, its errors told apart by text first (quota and stockout share a code), then by type."""
        try:
            return call()
        except BadInputError:
            raise
        except Exception as error:
            text = str(error)
            trouble = classify(text)
            if trouble is Trouble.FAILED:
                names = [kind.__name__ for kind in type(error).__mro__]
                trouble = next((_BY_NAME[name] for name in names if name in _BY_NAME), Trouble.FAILED)
            if trouble is Trouble.FAILED and not type(error).__module__.startswith(("google", "requests", "urllib3")):
                raise
            raise ControlError(trouble, essence(text)) from error
