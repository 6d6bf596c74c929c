"""The `tpu-vm` target: jobs on Cloud TPU VM slices, created for them or there already (docs/tpu.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launchers.tpu_vm.launcher import TpuVmLauncher


def from_settings(settings: dict[str, Any]) -> TpuVmLauncher:
    """Build the launcher from a target's settings (docs/tpu.md lists them).

    Raises:
        BadInputError: a setting is unknown, missing or of the wrong kind.
    """
    from launchers.tpu_vm.launcher import TpuVmLauncher
    from launchers.tpu_vm.settings import read_settings

    return TpuVmLauncher(read_settings(settings))
