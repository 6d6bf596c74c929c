"""The front as a picture, drawn with matplotlib (the extra `plot`) from the document of `report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runs.errors import BadInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_SIZE_INCHES = (7.5, 5.0)
_MOST_LABELS = 12
_LABEL_PLACES = ((7, 7), (7, -14), (-16, 7), (-16, -14))


def draw(document: Mapping[str, Any], path: Path, x: str, y: str) -> None:
    """Write the plot of metric `y` over metric `x` to `path`; its ending gives the format (png, svg, pdf).

    Raises:
        BadInputError: matplotlib is not installed, does not know the ending, cannot write there, or there is nothing
            to draw.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInputError(
            "--plot needs matplotlib, which is not installed", "install the extra: pip install 'ccl-search[plot]'"
        ) from error
    if not any(run["front"] for run in document["runs"]):
        raise BadInputError("there is no candidate to draw", "`ccl-search show RUN` says why trials failed")
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    _fill(figure.subplots(), document, x, y)
    try:
        figure.savefig(path, dpi=150, metadata=_without_clock(path))
    except OSError as error:
        raise BadInputError(
            f"cannot write the plot {path}: {error.strerror or error}",
            "name a folder that is there and can be written to",
        ) from error
    except ValueError as error:
        raise BadInputError(f"cannot write the plot {path}: {error}", "use .png, .svg or .pdf") from error


def _fill(axes: Axes, document: Mapping[str, Any], x: str, y: str) -> None:
    specs = {axis["metric"]: axis for axis in document["axes"]}
    for place, run in enumerate(document["runs"]):
        _draw_run(axes, run, place, specs, x, y)
    axes.set_xlabel(_label(specs[x]))
    axes.set_ylabel(_label(specs[y]))
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(0.1)
    axes.legend(frameon=False, fontsize="small")
    axes.set_title(_title(document), loc="left", fontsize="medium")


def _draw_run(
    axes: Axes, run: Mapping[str, Any], number: int, specs: Mapping[str, Mapping[str, Any]], x: str, y: str
) -> None:
    colour = _COLOURS[number % len(_COLOURS)]
    members = sorted(run["front"], key=lambda member: member["values"][x])
    dominated = run["dominated"]
    kind = f", {run['fidelity']}" if run["fidelity"] else ""
    name = f"{run['run_id']} ({run['proposer']}{kind})"
    if dominated:
        axes.scatter(
            [p["values"][x] for p in dominated], [p["values"][y] for p in dominated],
            s=22, facecolors="none", edgecolors=colour, alpha=0.55, linewidths=1.0,
        )  # fmt: skip
    xs, ys = [m["values"][x] for m in members], [m["values"][y] for m in members]
    if len(specs) == 2 and len(members) > 1:
        _staircase(axes, xs, ys, colour, specs[x]["direction"])
    axes.scatter(xs, ys, s=42, color=colour, zorder=3, label=f"{name}: front of {len(members)}")
    _mark(axes, run, members, number, x, y)


def _staircase(axes: Axes, xs: Sequence[float], ys: Sequence[float], colour: str, direction: str) -> None:
    """The border of what the front dominates: between two members it keeps the worse value of each."""
    where = "post" if direction == "minimize" else "pre"
    axes.step(xs, ys, where=where, color=colour, linewidth=1.3)  # type: ignore[arg-type]


def _mark(
    axes: Axes, run: Mapping[str, Any], members: Sequence[Mapping[str, Any]], number: int, x: str, y: str
) -> None:
    """Circle the knee and number the trials, each run's numbers on another side of its points."""
    colour, side = _COLOURS[number % len(_COLOURS)], _LABEL_PLACES[number % len(_LABEL_PLACES)]
    for member in members:
        place = (member["values"][x], member["values"][y])
        if member["trial"] == run["knee"]:
            axes.scatter(*place, s=190, facecolors="none", edgecolors=colour, linewidths=1.6, zorder=4)
        if len(members) <= _MOST_LABELS:
            text = f"{member['trial']} (knee)" if member["trial"] == run["knee"] else str(member["trial"])
            axes.annotate(text, place, textcoords="offset points", xytext=side, fontsize="small", color=colour)


def _label(axis: Mapping[str, Any]) -> str:
    unit = f" ({axis['unit']})" if axis["unit"] else ""
    return (
        f"{axis['label'] or axis['metric']}{unit}, {'lower' if axis['direction'] == 'minimize' else 'higher'} is better"
    )


def _title(document: Mapping[str, Any]) -> str:
    if len(document["runs"]) == 1:
        run = document["runs"][0]
        return f"hypervolume {run['hypervolume']:.4g}; filled: front, hollow: dominated, numbers: trials"
    return "filled: front, hollow: dominated, numbers: trials"


def _without_clock(path: Path) -> dict[str, Any]:
    """Metadata that makes equal plots equal files."""
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
