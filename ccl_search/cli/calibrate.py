"""`calibrate`: fit the simulator's factors to measured trials."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json, print_table

if TYPE_CHECKING:
    from ccl_search.calibrating.files import CalibrationFile
    from ccl_search.calibrating.measurements import Measurements

Source = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        help="A measured run, a CSV file of measured trials, or what nccl-tests printed; repeat for several files of "
        "nccl-tests (docs/calibration.md).",
    ),
]
Name = Annotated[str | None, typer.Option("--name", help="What the calibration is to be called.")]
Environment = Annotated[
    str | None,
    typer.Option(
        help="Bundled environment of rows that name none, as perlmutter-a100-sockets (CSV), or that nccl-tests ran on."
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", help="Use rows that match COLUMN=PATTERN only; repeat for several (CSV only)."),
]
Links = Annotated[
    list[str] | None,
    typer.Option(
        "--links",
        help="Keep the bandwidths and latencies of this calibration of the same cluster (a name or a file) instead of "
        "fitting them; repeat for the geometric mean of several.",
    ),
]
Repeats = Annotated[int, typer.Option(min=1, help="Repeats of the 5-fold cross-validation.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of folds and bootstrap.")]
ListFlag = Annotated[bool, typer.Option("--list", help="List the calibrations there are, and fit nothing.")]


def calibrate(
    source: Source = None,
    name: Name = None,
    environment: Environment = None,
    where: Where = None,
    links: Links = None,
    repeats: Repeats = 5,
    seed: Seed = 0,
    list_: ListFlag = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Fit the simulator's efficiency factors to measured step times, and keep them under a name.

    Compute speed by group of operations, bandwidth and latency by kind of link, launches, overhead of a step; from
    nccl-tests, bandwidth and latency alone. The error is that of configs (or sizes) the fit did not see. A simulated
    run is refused. `simulate --calibration NAME`, or `calibration: NAME` in a target file, uses it.
    """
    from ccl_search.calibrating import files
    from runs.errors import BadInputError

    if list_:
        _list(files.stored(home), as_json)
        return
    if not source or name is None:
        raise BadInputError("--from and --name are needed", "as --from trials.csv --name my-cluster; or give --list")
    files.check_name(name)
    rules = _Rules(environment, tuple(where or ()), tuple(links or ()), repeats, seed)
    found = _fitted(source, name, rules, home)
    path = files.save(found, home)
    if as_json:
        print_json({**found.as_dict(), "path": str(path)})
    else:
        _show(found, path)


@dataclass(frozen=True)
class _Rules:
    """What the options of a fit say: which rows, whose links, how often and how it is cross-validated."""

    environment: str | None
    where: tuple[str, ...]
    links: tuple[str, ...]
    repeats: int
    seed: int


def _fitted(sources: list[str], name: str, rules: _Rules, home: str | None) -> CalibrationFile:
    from ccl_search.calibrating import files
    from ccl_search.calibrating.calibrate import calibrate as fit
    from ccl_search.calibrating.links import calibrate_links
    from runs.errors import BadInputError

    def notice(text: str) -> None:
        console().print(text, soft_wrap=True, markup=False)

    of_links = [_is_nccl(source) for source in sources]
    if all(of_links):
        if rules.where:
            raise BadInputError("--where is for CSV files", "leave out the files of nccl-tests that are not wanted")
        if rules.links:
            raise BadInputError("--links is for step times", "nccl-tests show the links: nothing else would be fitted")
        paths = [Path(source) for source in sources]
        return calibrate_links(paths, rules.environment, name, rules.repeats, rules.seed, notice)
    if len(sources) > 1:
        raise BadInputError(
            f"--from {sources[1]}: several sources are for nccl-tests output", "name one run or one CSV file"
        )
    links = [files.find(each, home) for each in rules.links]
    measured = _read(sources[0], rules.environment, rules.where, home)
    return fit(measured, name, rules.repeats, rules.seed, notice, links)


def _is_nccl(source: str) -> bool:
    """Whether a file is what nccl-tests printed; a CSV file or a run's name is not."""
    from ccl_search.calibrating.nccl_tests import is_nccl_text

    path = Path(source)
    if path.suffix == ".csv" or not path.is_file():
        return False
    return is_nccl_text(path.read_text(encoding="utf-8", errors="replace"))


def _read(source: str, environment: str | None, where: tuple[str, ...], home: str | None) -> Measurements:
    from ccl_search import assembly
    from ccl_search.calibrating.table import read_table
    from ccl_search.calibrating.trials import read_run
    from runs.errors import BadInputError

    if Path(source).suffix == ".csv" or Path(source).is_file():
        return read_table(Path(source), environment, where)
    if environment or where:
        raise BadInputError("--environment and --where are for CSV files", "a run knows its environment")
    with assembly.open_store(home, write=False) as store:
        return read_run(store, source)


def _list(stored: list[CalibrationFile], as_json: bool) -> None:
    if as_json:
        print_json([each.as_dict() for each in stored])
        return
    rows = []
    for each in stored:
        held_out = _held_out(each)
        shares = [_figure(held_out, "spearman", ".2f"), _figure(held_out, "median_error", ".1%")]
        facts = [str(each.provenance.get(key) or "") for key in ("configs", "date", "source")]
        rows.append([each.calibration.name, *shares, *facts])
    heads = ["calibration!", ">held-out Spearman", ">held-out error", ">configs", "data until!", "source"]
    print_table("calibrations", heads, rows)


def _held_out(found: CalibrationFile) -> dict[str, Any]:
    """The errors held out: of step times, or of collectives where the fit was to those."""
    errors: dict[str, Any] = found.fit.get("held_out") or found.fit.get("held_out_collectives") or {}
    return errors


def _show(found: CalibrationFile, path: Path) -> None:
    out = console()
    used, dropped = found.provenance["rows_used"], found.provenance["rows_dropped"]
    text = f"{found.provenance['source']}: {len(used)} rows used, {found.provenance['configs']} distinct configs"
    out.print(text, soft_wrap=True, markup=False)
    for test in found.provenance.get("tests", ()):
        out.print(test, soft_wrap=True, markup=False)
    if links := found.provenance.get("links_of"):
        out.print(f"links kept from {', '.join(links)}", soft_wrap=True, markup=False)
    for reason, rows in dropped.items():
        out.print(f"dropped {len(rows)}: {reason}", soft_wrap=True, markup=False)
    _print_factors(found)
    errors = {
        "uncalibrated": found.fit["uncalibrated"], "where fitted": found.fit["in_sample"], "held out": _held_out(found),
    }  # fmt: skip
    rows = [
        [
            label,
            _figure(each, "spearman", ".2f"),
            _figure(each, "median_error", ".1%"),
            _figure(each, "factor_90", ".2f"),
        ]
        for label, each in errors.items()
    ]
    what = found.fit.get("of", "step times")
    print_table("error (95 % interval)", [f"{what}!", ">Spearman!", ">median error!", ">9 of 10 within factor!"], rows)
    spread = found.fit["replicate_spread"]
    if spread["configs"]:
        out.print(
            f"repeated measurements of {spread['configs']} configs spread by {spread['median']:.1%} (median), "
            f"{spread['largest']:.1%} at most"
        )
    out.print(f"saved {path}", soft_wrap=True, markup=False)


def _print_factors(found: CalibrationFile) -> None:
    factors = found.as_dict()["factors"]
    rows = [[f"{kind} {name}", f"{value:.3f}"] for kind in _KINDS for name, value in factors[kind].items()]
    rows.append(["launch", f"{factors['launch']:.3f}"])
    rows.append(["overhead of a step (s)", f"{factors['step_overhead_s']:.3f}"])
    print_table(f"calibration {found.calibration.name}", ["factor!", ">value!"], rows)


_KINDS = ("compute", "bandwidth", "latency")


def _figure(errors: dict[str, Any], name: str, form: str) -> str:
    found = errors.get(name)
    if not found:
        return ""
    return f"{found['value']:{form}} ({found['low']:{form}} to {found['high']:{form}})"
