"""`validate`: check a workload card, a benchmark entry or a config space before anything is launched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccl_search.cli.output import JsonFlag, console, counted, print_json
from runs.errors import BadInputError

if TYPE_CHECKING:
    from runs.card import Finding
    from runs.space import ConfigSpace

app = typer.Typer(help="Check a workload card, a benchmark entry or a config space.", no_args_is_help=True)
_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_PLURALS = {"info": "info"}


@app.command("card")
def card(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Workload cards to read; none is changed.")],
    as_json: JsonFlag = False,
) -> None:
    """Read workload cards and tell what is wrong with them. Exit code 2 if one cannot be used."""
    reports = [_card_report(path) for path in files]
    if as_json:
        print_json({"files": reports})
    else:
        for report in reports:
            _show(report)
    _exit(reports)


@app.command("entry")
def entry(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with card.yaml, script.sh and trace/.")],
    as_json: JsonFlag = False,
) -> None:
    """Tell whether a folder is a complete benchmark entry. Exit code 2 if it is not."""
    from runs.entry import check_entry

    report = _report(directory, check_entry(directory))
    _print(report, as_json)


@app.command("space")
def space(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A config space in YAML.")],
    as_json: JsonFlag = False,
) -> None:
    """Check a config space: knobs, choices, constraints. Exit code 2 if it cannot be used."""
    from runs import space as spaces

    try:
        report = _report(file, []) | _space_facts(spaces.load(file))
    except BadInputError as error:
        report = _refused(file, error)
    _print(report, as_json)


def _card_report(path: Path) -> dict[str, Any]:
    from runs.card import CardError, load_card

    try:
        loaded = load_card(path)
    except CardError as error:
        return _report(path, error.findings) | {"hint": error.hint}
    return _report(path, loaded.findings) | {
        "repairs": [repair.as_dict() for repair in loaded.repairs],
        "normalised": loaded.card.normalised(),
    }


def _report(path: Path, findings: Sequence[Finding]) -> dict[str, Any]:
    """What is told about one file: usable unless a finding is an error."""
    usable = all(finding.severity != "error" for finding in findings)
    return {"file": str(path), "usable": usable, "findings": [finding.as_dict() for finding in findings]}


def _refused(path: Path, error: BadInputError) -> dict[str, Any]:
    told = {"code": "space_invalid", "severity": "error", "message": error.message, "line": None, "file": path.name}
    return {"file": str(path), "usable": False, "findings": [told], "hint": error.hint}


def _space_facts(space: ConfigSpace) -> dict[str, Any]:
    return {
        "name": space.name,
        "knobs": list(space.keys),
        "points": space.size,
        "constraints": [constraint.name for constraint in space.constraints],
        "world_size": space.world_size_expression.text,
    }


def _print(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
    else:
        _show(report)
    _exit([report])


def _exit(reports: Sequence[dict[str, Any]]) -> None:
    if not all(report["usable"] for report in reports):
        raise typer.Exit(BadInputError.exit_code)


def _show(report: dict[str, Any]) -> None:
    """One line for each finding, `FILE:LINE: severity code: message`, and a last line that sums up."""
    from rich.text import Text

    screen = console()
    for told in report["findings"]:
        line = Text(_place(report["file"], told) + ": ")
        line.append(told["severity"], style=_STYLES[told["severity"]])
        line.append(f" {told['code']}: {_printable(told['message'])}")
        screen.print(line, soft_wrap=True)
    if report.get("hint"):
        screen.print(Text(f"hint: {_printable(report['hint'])}"), soft_wrap=True)
    screen.print(Text(_summary(report)), soft_wrap=True)


def _place(path: str, told: dict[str, Any]) -> str:
    """The path as the user gave it, or for a file within an entry its path there, with the line."""
    place = path if told["file"] in ("", Path(path).name) else str(Path(path) / told["file"])
    return _printable(f"{place}:{told['line']}" if told["line"] else place)


def _summary(report: dict[str, Any]) -> str:
    severities = [told["severity"] for told in report["findings"]]
    counts = ", ".join(
        counted(severities.count(each), each, _PLURALS.get(each, "")) for each in _STYLES if each in severities
    )
    facts = f"; {len(report['knobs'])} knobs, {report['points']} points" if "knobs" in report else ""
    verdict = "usable" if report["usable"] else "not usable"
    return f"{_printable(report['file'])}: {verdict} ({counts or 'no findings'}){facts}"


def _printable(text: str) -> str:
    from runs.card.findings import printable

    return printable(text)
