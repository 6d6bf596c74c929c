"""`cleanup`: TPU slices that a crashed search left behind cost money; list them, and delete what this home made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json, print_table

if TYPE_CHECKING:
    from launchers.tpu_vm.leftovers import Leftover, Leftovers

_WAIT_S = 600.0


def cleanup(
    target: Annotated[Path, typer.Option(help="Target file of kind tpu-vm.")],
    home: HomeOption = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete what this home made; without it the list is all that happens.")
    ] = False,
    wait: Annotated[
        float, typer.Option(min=0.0, help="With --delete: seconds to wait until everything is gone.")
    ] = _WAIT_S,
    as_json: JsonFlag = False,
) -> None:
    """List TPU slices that searches left behind, and delete them with --delete.

    Only slices that a ledger of this home asked for and that carry its label are deleted. Those of other homes and
    users are listed, never touched. With --delete no search may be running in this home.
    """
    from runs.errors import TargetUnavailableError
    from runs.store import resolve_home

    place = resolve_home(Path(home) if home else None)
    leftovers = _leftovers(target, place)
    hindrances: list[str] = []
    with _quiet_home(place, delete):
        found = _asked(leftovers)
        if delete and found:
            hindrances = _removed(leftovers, found, wait)
    _tell(found, hindrances, delete, as_json)
    if hindrances:
        raise TargetUnavailableError(f"{len(hindrances)} slices are still there", "run cleanup --delete again")


def _leftovers(target: Path, home: Path) -> Leftovers:
    from launchers.target_file import load_target
    from launchers.tpu_vm.launcher import control_of
    from launchers.tpu_vm.ledger import Ledger, all_ledgers
    from launchers.tpu_vm.leftovers import Leftovers
    from launchers.tpu_vm.settings import read_settings
    from runs.errors import BadInputError

    found = load_target(target)
    if found.kind != "tpu-vm":
        raise BadInputError(
            f"{target} is a target of kind {found.kind}", "only tpu-vm targets create machines; name one of that kind"
        )
    settings = read_settings(found.tpu_vm or {})
    ledgers = all_ledgers(home)
    if settings.ledger:
        ledgers.append(Ledger(Path(settings.ledger).expanduser().absolute()))
    return Leftovers(control_of(settings), settings, ledgers)


@contextmanager
def _quiet_home(home: Path, wanted: bool) -> Iterator[None]:
    """The writer lock of a home while something is deleted: a search that runs there needs its slices."""
    from ccl_search import assembly

    if not wanted or not home.is_dir():
        yield
        return
    with assembly.open_store(str(home), write=True):
        yield


def _asked(leftovers: Leftovers) -> list[Leftover]:
    from launchers.tpu_vm.troubles import ControlError

    try:
        return leftovers.find()
    except ControlError as error:
        raise _unavailable(error) from error


def _removed(leftovers: Leftovers, found: list[Leftover], wait_s: float) -> list[str]:
    from launchers.tpu_vm.troubles import ControlError

    try:
        return leftovers.remove(found, wait_s)
    except ControlError as error:
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> Exception:
    from launchers.tpu_vm.troubles import ControlError, remedy
    from runs.errors import TargetUnavailableError

    assert isinstance(error, ControlError)
    return TargetUnavailableError(f"Cloud TPU does not answer: {error.text}", remedy(error.trouble).hint)


def _tell(found: list[Leftover], hindrances: list[str], delete: bool, as_json: bool) -> None:
    deleted = delete and not hindrances
    if as_json:
        entries = [{**entry.as_dict(), "deleted": deleted and entry.ours} for entry in found]
        print_json({"leftovers": entries, "hindrances": hindrances})
        return
    if not found:
        console().print("nothing of ccl-search is left in the zones of the target and of this home's searches")
        return
    rows = [[e.name, e.zone, e.kind, e.state, e.run or "-", _fate(e, delete, deleted)] for e in found]
    print_table("TPU slices", ["name", "zone", "what", "state", "run", "fate"], rows)
    for text in hindrances:
        console().print(f"warning: {text}", markup=False)


def _fate(entry: Leftover, delete: bool, deleted: bool) -> str:
    if not entry.ours:
        return "not made by this home: left alone"
    return "deleted" if deleted else "asked to be deleted" if delete else "delete with --delete"
