"""Is a TPU target fit for use, without creating anything: programs, zones, the accelerator, and what is left over."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from launchers.checks import Check, Level, bad, ok
from launchers.tpu_vm.control import ControlPlane
from launchers.tpu_vm.launcher import control_of
from launchers.tpu_vm.ledger import Ledger, all_ledgers
from launchers.tpu_vm.leftovers import Leftovers
from launchers.tpu_vm.settings import TpuSettings, read_settings, slice_shape
from launchers.tpu_vm.troubles import ControlError, remedy


def checks(section: Mapping[str, Any], home: Path) -> Iterator[Check]:
    """Checks of the section `tpu_vm` of a target file; `home` holds the ledgers of earlier searches.

    Raises:
        BadInputError: a setting is wrong.
    """
    settings = read_settings(section)
    programs = _programs(settings)
    yield programs
    yield _accelerator(settings)
    if programs.level is not Level.OK:
        return
    control = control_of(settings)
    zones = [_zone(control, settings, zone) for zone in settings.zones]
    yield from zones
    if all(check.level is Level.OK for check in zones):
        yield _leftovers(control, settings, home)


def _programs(settings: TpuSettings) -> Check:
    needed = ["ssh", "scp"]
    needed += [settings.gcloud] if "gcloud" in (settings.control, settings.ssh.connect) else []
    missing = [name for name in needed if shutil.which(name) is None]
    if missing:
        fix = "install OpenSSH's client and the Google Cloud CLI, or set `gcloud` to where it is"
        return bad("programs", f"not found: {', '.join(missing)}", fix)
    return ok("programs", ", ".join(needed))


def _accelerator(settings: TpuSettings) -> Check:
    if settings.slice is not None:
        return ok("accelerator", f"the slice {settings.slice}, which is there already")
    shape = slice_shape(settings.accelerator)
    if shape is None:
        return ok("accelerator", f"{settings.accelerator}: a slice of each config's own size")
    return ok("accelerator", f"{settings.accelerator}: {shape[0]} workers of {shape[1]} chips")


def _zone(control: ControlPlane, settings: TpuSettings, zone: str) -> Check:
    """Whether the service answers for a zone; a slice that should be there already is looked up."""
    name = f"zone {zone}"
    try:
        if settings.slice is None:
            return ok(name, f"answers; slices there: {len(control.nodes(zone))}")
        node = control.node(zone, settings.slice)
    except ControlError as error:
        return bad(name, error.text, remedy(error.trouble).hint)
    if node is None:
        return bad(name, f"there is no slice {settings.slice}", "name the zone that has it, or another slice")
    if node.state != "READY":
        return bad(name, f"{settings.slice} is {node.state}", "start it: it is never started or stopped from here")
    return ok(name, f"{settings.slice} is READY")


def _leftovers(control: ControlPlane, settings: TpuSettings, home: Path) -> Check:
    ledgers = all_ledgers(home)
    if settings.ledger:
        ledgers.append(Ledger(Path(settings.ledger).expanduser().absolute()))
    try:
        found = [entry for entry in Leftovers(control, settings, ledgers).find() if entry.ours]
    except ControlError as error:
        return bad("leftovers", error.text, remedy(error.trouble).hint, Level.WARN)
    if found:
        names = ", ".join(f"{entry.name} ({entry.zone})" for entry in found)
        return bad("leftovers", f"{names} cost money", "`ccl-search cleanup --target FILE --delete`", Level.WARN)
    return ok("leftovers", "none of this home")
