"""What a target file says of a TPU target, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from launchers.shell.script import Site
from launchers.tpu_vm.control import SliceRequest
from runs.errors import BadInputError

_CHOICES = {
    "provisioning": ("queued", "direct"),
    "capacity": ("on-demand", "spot", "reserved"),
    "lifetime": ("trial", "run"),
    "control": ("gcloud", "google-cloud-tpu"),
}
_FULL_TYPE = re.compile(r"(?P<kind>v\d+[a-z]*)-(?P<count>\d+)\Z")
_CORES_PER_CHIP = {"v2": 2, "v3": 2, "v4": 2, "v5p": 2}
_FAMILIES = {"v5e": "v5litepod"}
_SINGLE_HOST_CHIPS = {"v5litepod": 8, "v6e": 8}
_CHIPS_A_HOST = 4


@dataclass(frozen=True)
class SshSettings:
    """How workers are reached. `connect`: `gcloud` (its keys, OS Login, tunnels) or `direct` (plain ssh, own key).

    `internal` uses inside addresses, `iap` a tunnel of gcloud; `options` are words for `ssh`, `port` and `key` are for
    `direct` only.
    """

    connect: str = "gcloud"
    user: str | None = None
    key: str | None = None
    port: int | None = None
    internal: bool = False
    iap: bool = False
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class TpuSettings:
    """A TPU target. `slice` names one that exists, never created or deleted; else `accelerator` is what to ask for.

    `accelerator` is a full type (`v6e-8`, `v5litepod-16`) or a family (`v6e`, `v5e`, `v5p`), whose size then follows
    from the config. `zones` are tried in their order; with `stockout_wait_s` above 0 over and over for so long.
    `lifetime`: `trial` (a slice for each attempt) or `run` (kept for the next trial, deleted by `release` or cleanup).
    `worker_grace_s`: how long a worker may be silent before the job is given up. Times are in seconds.
    """

    zones: tuple[str, ...]
    accelerator: str = ""
    runtime_version: str = ""
    slice: str | None = None
    project: str | None = None
    provisioning: str = "queued"
    capacity: str = "on-demand"
    lifetime: str = "trial"
    control: str = "gcloud"
    gcloud: str = "gcloud"
    endpoint: str | None = None
    network: str | None = None
    subnetwork: str | None = None
    internal_ips: bool = False
    service_account: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    valid_for: str | None = None
    stockout_wait_s: float = 0.0
    worker_grace_s: float = 120.0
    remote_dir: str = "ccl-search"
    trace_bucket: str | None = None
    setup: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    launch_prefix: tuple[str, ...] = ()
    teardown: str = ""
    ledger: str | None = None
    ssh: SshSettings = SshSettings()

    @property
    def site(self) -> Site:
        """What the target adds to every script."""
        return Site(self.setup, self.env, self.launch_prefix)

    @property
    def template(self) -> SliceRequest:
        """A request for a slice, without name, zone and the product's labels."""
        return SliceRequest(
            name="",
            zone="",
            accelerator_type="",
            runtime_version=self.runtime_version,
            capacity=self.capacity,
            queued=self.provisioning == "queued",
            labels=self.labels,
            metadata=self.metadata,
            network=self.network,
            subnetwork=self.subnetwork,
            internal_ips=self.internal_ips,
            service_account=self.service_account,
            valid_for=self.valid_for,
        )


def read_settings(data: Mapping[str, Any]) -> TpuSettings:
    """Check the settings of a target file; `zone` is short for a list of one.

    Raises:
        BadInputError: a setting is unknown, missing or of the wrong kind.
    """
    given = dict(data)
    if "zone" in given:
        given["zones"] = [given.pop("zone"), *given.get("zones", [])]
    known = {entry.name for entry in fields(TpuSettings)}
    _refuse_unknown(given, known | {"zone"}, "tpu-vm")
    ssh = given.pop("ssh", None) or {}
    if not isinstance(ssh, Mapping):
        raise BadInputError("tpu-vm: ssh is no mapping", "write its settings below it, see docs/tpu.md")
    _refuse_unknown(ssh, {entry.name for entry in fields(SshSettings)}, "tpu-vm: ssh")
    values = {name: _typed(name, value) for name, value in given.items() if value is not None}
    shell = {name: _typed(name, value) for name, value in ssh.items() if value is not None}
    return _checked(TpuSettings(**{"zones": (), **values, "ssh": SshSettings(**shell)}))


_LISTS = ("zones", "launch_prefix", "options")
_MAPPINGS = ("labels", "metadata", "env")
_FLAGS = ("internal_ips", "internal", "iap")
_NUMBERS = ("stockout_wait_s", "worker_grace_s")


def _typed(name: str, value: Any) -> Any:
    """A setting as the type its field has; numbers of YAML become text where text is wanted."""
    wrong = BadInputError(f"tpu-vm: {name} cannot be {value!r}", "see docs/tpu.md for every setting and its form")
    if name in _LISTS:
        if not isinstance(value, (list, tuple)):
            raise wrong
        return tuple(str(entry) for entry in value)
    if name in _MAPPINGS:
        if not isinstance(value, Mapping):
            raise wrong
        return {str(key): str(entry) for key, entry in value.items()}
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise wrong
        return value
    if name in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            raise wrong
        return float(value)
    if name == "port":
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong
        return value
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise wrong
    return str(value)


def _refuse_unknown(given: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(given) - known)
    if unknown:
        raise BadInputError(f"{where}: unknown setting {', '.join(unknown)}", f"known: {', '.join(sorted(known))}")


def _checked(settings: TpuSettings) -> TpuSettings:
    for name, choices in _CHOICES.items():
        if getattr(settings, name) not in choices:
            raise BadInputError(f"tpu-vm: {name} is {getattr(settings, name)!r}", f"choose one of {', '.join(choices)}")
    if settings.ssh.connect not in ("gcloud", "direct"):
        raise BadInputError(f"tpu-vm: ssh.connect is {settings.ssh.connect!r}", "choose gcloud or direct")
    if not settings.zones:
        raise BadInputError("tpu-vm: no zone is named", "set zone, or zones in the order they should be tried")
    if settings.slice is None and not (settings.accelerator and settings.runtime_version):
        raise BadInputError(
            "tpu-vm: neither an existing slice nor what to create is named",
            "set slice, or accelerator (v6e-8) and runtime_version (v2-alpha-tpuv6e)",
        )
    if settings.accelerator:
        accelerator_type(settings.accelerator, 8)
    if settings.trace_bucket and not settings.trace_bucket.startswith("gs://"):
        raise BadInputError(f"tpu-vm: trace_bucket is {settings.trace_bucket!r}", "write gs://BUCKET/FOLDER")
    if settings.control == "google-cloud-tpu" and not settings.project:
        raise BadInputError("tpu-vm: the google-cloud-tpu client needs a project", "set project")
    if settings.control != "gcloud" and settings.ssh.connect == "gcloud":
        raise BadInputError("tpu-vm: ssh by gcloud needs control: gcloud", "set ssh.connect: direct")
    return settings


def accelerator_type(accelerator: str, chips: int) -> str:
    """The full type for a job of `chips`: a full type as it is, a family with the size of the job.

    v5e is called `v5litepod` by the service; v4 and v5p count two cores a chip.

    Raises:
        BadInputError: it is neither a type nor a family.
    """
    if _FULL_TYPE.match(accelerator):
        return accelerator
    kind = _FAMILIES.get(accelerator, accelerator)
    if kind not in (*_CORES_PER_CHIP, *_SINGLE_HOST_CHIPS):
        known = sorted({*_CORES_PER_CHIP, *_SINGLE_HOST_CHIPS, *_FAMILIES})
        raise BadInputError(
            f"tpu-vm: accelerator {accelerator!r} is no TPU type", f"write v6e-8, v5litepod-16, or {', '.join(known)}"
        )
    return f"{kind}-{chips * _CORES_PER_CHIP.get(kind, 1)}"


def slice_shape(full_type: str) -> tuple[int, int] | None:
    """(workers, chips a worker) of a type; None for a type this version does not know.

    v5e and v6e up to 8 chips are one host, larger ones and the other generations have 4 chips a host.
    """
    match = _FULL_TYPE.match(full_type)
    if match is None:
        return None
    kind, count = match["kind"], int(match["count"])
    if kind not in (*_CORES_PER_CHIP, *_SINGLE_HOST_CHIPS):
        return None
    chips = max(1, count // _CORES_PER_CHIP.get(kind, 1))
    if chips <= max(_SINGLE_HOST_CHIPS.get(kind, 0), _CHIPS_A_HOST):
        return 1, chips
    return chips // _CHIPS_A_HOST, _CHIPS_A_HOST
