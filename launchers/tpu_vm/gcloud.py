"""The control plane by `gcloud`: the user's login, project and proxies apply. Exit codes alone are never believed."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import launchers.tpu_vm.detached as detached
from launchers.shell.runner import execute
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
from runs.errors import BadInputError, TargetUnavailableError

_READ_S = 60.0
_DELETE_S = 120.0
_PLACEHOLDER = "@@CCL@@"
_CAPACITY = {"on-demand": (), "spot": ("--spot",), "reserved": ("--reserved",)}


@dataclass(frozen=True)
class Gcloud:
    """Runs `executable` for one project (None: gcloud's own setting). `environment` is added to this process's."""

    project: str | None = None
    executable: str = "gcloud"
    environment: Mapping[str, str] = field(default_factory=dict)

    # --- creating ---------------------------------------------------------------------------------------------------

    def start_creation(self, request: SliceRequest, folder: Path) -> None:
        """See `ControlPlane`: a gcloud of its own waits for the operation, so that its error text is not lost.

        Raises:
            TargetUnavailableError: gcloud cannot be started.
        """
        try:
            detached.start(folder, self._argv(creation_arguments(request)), self._environment())
        except OSError as error:
            raise TargetUnavailableError(f"gcloud cannot be started: {error}", _INSTALL) from error

    def creation(self, request: SliceRequest, folder: Path) -> Creation:
        """See `ControlPlane`."""
        ended = detached.outcome(folder)
        if ended is None:
            if detached.is_running(folder):
                return Creation(Progress.PENDING)
            ended = detached.outcome(folder)
        if ended is None:
            return Creation(Progress.LOST)
        if ended.code == 0:
            return Creation(Progress.DONE)
        return Creation(Progress.FAILED, ended.err or ended.out or f"gcloud ended with exit code {ended.code}")

    def abandon(self, folder: Path) -> None:
        """See `ControlPlane`."""
        detached.kill(folder)

    # --- looking ----------------------------------------------------------------------------------------------------

    def node(self, zone: str, name: str) -> Node | None:
        """See `ControlPlane`."""
        found = self._describe(("tpu-vm", "describe", name, f"--zone={zone}"))
        return None if found is None else read_node(found)

    def queued_resource(self, zone: str, name: str) -> QueuedResource | None:
        """See `ControlPlane`."""
        found = self._describe(("queued-resources", "describe", name, f"--zone={zone}"))
        return None if found is None else read_queued_resource(found)

    def nodes(self, zone: str) -> list[Node]:
        """See `ControlPlane`."""
        return [read_node(entry) for entry in self._json(("tpu-vm", "list", f"--zone={zone}"), _READ_S)]

    def queued_resources(self, zone: str) -> list[QueuedResource]:
        """See `ControlPlane`."""
        found = self._json(("queued-resources", "list", f"--zone={zone}"), _READ_S)
        return [read_queued_resource(entry) for entry in found]

    # --- deleting ---------------------------------------------------------------------------------------------------

    def delete_node(self, zone: str, name: str) -> None:
        """See `ControlPlane`."""
        self._delete(("tpu-vm", "delete", name, f"--zone={zone}", "--async"))

    def delete_queued_resource(self, zone: str, name: str) -> None:
        """See `ControlPlane`."""
        self._delete(("queued-resources", "delete", name, f"--zone={zone}", "--force", "--async"))

    # --- ssh --------------------------------------------------------------------------------------------------------

    def spread_key(self, zone: str, name: str, login: Login, folder: Path) -> None:
        """Start what gives the slice the user's ssh key: one connection to every worker, followed by `detached`.

        Its exit code says nothing, the workers are asked directly afterwards. All workers, because gcloud 528 calls
        the host keys of a single worker by another name, and then refuses its own known host.
        """
        arguments = ("tpu-vm", "ssh", login.at(name), f"--zone={zone}", "--worker=all", "--command=true", *login.flags)
        detached.start(folder, self._argv(arguments, track=login.track), self._environment())

    def ssh_commands(self, zone: str, name: str, login: Login) -> list[list[str]]:
        """One `ssh ... --` for every worker, to which a remote command is appended. Nothing is connected.

        Raises:
            ControlError: gcloud refuses, or prints no such commands.
        """
        arguments = ["tpu-vm", "ssh", login.at(name), f"--zone={zone}", "--worker=all"]
        arguments += [f"--command={_PLACEHOLDER}", "--dry-run", *login.flags]
        out = self._run(arguments, _READ_S, track=login.track)
        commands = [shlex.split(line) for line in out.splitlines() if _PLACEHOLDER in line]
        if not commands:
            raise ControlError(Trouble.SSH, f"gcloud printed no ssh commands: {out[:200]!r}")
        return [argv[: argv.index(_PLACEHOLDER)] for argv in commands if _PLACEHOLDER in argv]

    def copy_objects(self, source: str, target: Path) -> str:
        """Copy what is under a `gs://` path to a folder; an error text, empty where it went well."""
        target.mkdir(parents=True, exist_ok=True)
        argv = [self.executable, "storage", "cp", "--recursive", "--quiet", f"{source.rstrip('/')}/*", str(target)]
        done = execute(tuple(argv), "", 3600.0, self._environment())
        return "" if done.ok else essence(done.err or done.complaint)

    # --- running gcloud ---------------------------------------------------------------------------------------------

    def _argv(self, arguments: Sequence[str], track: tuple[str, ...] = ()) -> tuple[str, ...]:
        project = (f"--project={self.project}",) if self.project else ()
        return (self.executable, *track, "compute", "tpus", *arguments, *project, "--quiet", "--format=json")

    def _environment(self) -> dict[str, str]:
        quiet = {"CLOUDSDK_CORE_DISABLE_PROMPTS": "1", "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true"}
        return {**os.environ, **quiet, **self.environment}

    def _run(self, arguments: Sequence[str], timeout_s: float, track: tuple[str, ...] = ()) -> str:
        done = execute(self._argv(arguments, track), "", timeout_s, self._environment())
        if done.code is None:
            if "cannot be started" in done.err:
                raise TargetUnavailableError(done.err, _INSTALL)
            raise ControlError(Trouble.UNAVAILABLE, done.complaint)
        if done.code != 0:
            raise ControlError(classify(done.err), essence(done.err) or done.complaint)
        return done.out

    def _json(self, arguments: Sequence[str], timeout_s: float) -> Any:
        out = self._run(arguments, timeout_s)
        try:
            return json.loads(out)
        except ValueError as error:
            raise ControlError(Trouble.UNAVAILABLE, f"gcloud answered no JSON: {out[:200]!r}") from error

    def _describe(self, arguments: Sequence[str]) -> dict[str, Any] | None:
        try:
            found = self._json(arguments, _READ_S)
        except ControlError as error:
            if error.trouble is Trouble.NOT_FOUND:
                return None
            raise
        if not isinstance(found, dict) or "name" not in found:
            raise ControlError(Trouble.UNAVAILABLE, f"gcloud described nothing: {str(found)[:200]}")
        return found

    def _delete(self, arguments: Sequence[str]) -> None:
        try:
            self._run(arguments, _DELETE_S)
        except ControlError as error:
            if error.trouble is not Trouble.NOT_FOUND:
                raise


_INSTALL = "install the Google Cloud CLI and log in: https://cloud.google.com/sdk/docs/install"


@dataclass(frozen=True)
class Login:
    """How gcloud reaches workers: the user there, inside addresses, or an IAP tunnel."""

    user: str | None = None
    internal: bool = False
    iap: bool = False

    def at(self, name: str) -> str:
        """`user@name`, or the name alone."""
        return f"{self.user}@{name}" if self.user else name

    @property
    def flags(self) -> tuple[str, ...]:
        """Words for `tpu-vm ssh`."""
        return ("--internal-ip",) * self.internal + ("--tunnel-through-iap",) * self.iap

    @property
    def track(self) -> tuple[str, ...]:
        """The release track that has the flags: tunnels are alpha in gcloud 528."""
        return ("alpha",) if self.iap else ()


def creation_arguments(request: SliceRequest) -> list[str]:
    """The words after `gcloud compute tpus` that create the slice."""
    zone = f"--zone={request.zone}"
    if request.queued:
        words = ["queued-resources", "create", request.name, f"--node-id={request.name}", zone]
        words.append(f"--runtime-version={request.runtime_version}")
        words += [f"--valid-until-duration={request.valid_for}"] if request.valid_for else []
    else:
        words = ["tpu-vm", "create", request.name, zone, f"--version={request.runtime_version}"]
    words += [f"--accelerator-type={request.accelerator_type}", *_CAPACITY[request.capacity]]
    words += _mapping("--labels", request.labels) + _mapping("--metadata", request.metadata)
    words += ["--internal-ips"] if request.internal_ips else []
    optional = {
        "--network": request.network,
        "--subnetwork": request.subnetwork,
        "--service-account": request.service_account,
    }
    return words + [f"{flag}={value}" for flag, value in optional.items() if value]


def _mapping(flag: str, values: Mapping[str, str]) -> list[str]:
    """`--flag=K=V,...`; a value with a comma needs gcloud's own delimiter syntax (`gcloud topic escaping`)."""
    if not values:
        return []
    text = "".join(values.values())
    if "," not in text:
        return [f"{flag}=" + ",".join(f"{key}={value}" for key, value in values.items())]
    delimiter = next((mark for mark in ":;|#~%" if mark not in text), None)
    if delimiter is None:
        raise BadInputError(f"{flag} has values with every delimiter gcloud knows", "leave commas out of them")
    return [f"{flag}=^{delimiter}^" + delimiter.join(f"{key}={value}" for key, value in values.items())]
