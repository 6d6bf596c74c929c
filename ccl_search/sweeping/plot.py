"""Pictures of a sweep: what each knob does, and the study's partitions on its topologies. By matplotlib, when asked."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccl_search.sweeping.effects import Effect
from runs.errors import BadInputError

if TYPE_CHECKING:
    from ccl_search.sweeping.moe.experiment import Experiment

ENDINGS = (".png", ".svg", ".pdf")
_MOST_KNOBS = 9
_COLUMNS = 3
_INCHES = (4.0, 2.8)
_COLOUR = "#0072b2"
_WITHOUT_CLOCK: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
"""Metadata that makes equal plots equal files."""


def check(path: Path) -> None:
    """Whether a plot can be written to `path`, as far as that is known before there is anything to draw.

    Raises:
        BadInputError: the ending is none of a picture, the folder is not there, or matplotlib is not installed.
    """
    if path.suffix.lower() not in ENDINGS:
        raise BadInputError(f"--plot {path} has no ending that says what to draw", f"use {', '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise BadInputError(f"there is no folder {path.parent}", "make it, or name another file with --plot")
    if find_spec("matplotlib") is None:
        raise _no_matplotlib()


def draw_effects(effects: Sequence[Effect], metric: str, unit: str, path: Path) -> None:
    """One panel a knob, the largest effects first: mean, best and worst of each choice. The ending gives the format.

    Raises:
        BadInputError: nothing varies, matplotlib is not installed or does not know the ending, or `path` cannot be
            written.
    """
    if not effects:
        raise BadInputError("there is no effect to draw", "a sweep needs two configs that succeeded and differ")
    shown = effects[:_MOST_KNOBS]
    figure, panels = _panels(len(shown))
    for axes, effect in zip(panels, shown, strict=False):
        levels = sorted(effect.levels, key=lambda level: str(level.choice).zfill(8))
        at = range(len(levels))
        means = [level.mean for level in levels]
        axes.bar(at, means, color=_COLOUR, width=0.6)
        axes.vlines(at, [min(x.best, x.worst) for x in levels], [max(x.best, x.worst) for x in levels], color="#555555")
        axes.set_xticks(list(at), [str(level.choice) for level in levels], fontsize="x-small", rotation=20)
        axes.set_title(effect.knob, loc="left", fontsize="medium")
        axes.set_ylabel(f"{metric} ({unit})" if unit else metric, fontsize="x-small")
    _save(figure, path)


def draw_study(found: Experiment, path: Path) -> None:
    """One panel a model: seconds of each partition on each topology, ring_direct and RoCE HPCC; raises as above."""
    from ccl_search.sweeping.moe import quantities

    splits = [f"TP{tp}EP{ep}" for tp, ep in found.study.partitions]
    figure, panels = _panels(len(found.results.models))
    for axes, key in zip(panels, found.results.models, strict=False):
        for place in found.study.topologies:
            times = [quantities.one(found.results.model(key), place, tp) for tp, _ in found.study.partitions]
            axes.plot(splits, times, marker="o", markersize=3, label=f"topology {place}")
        axes.set_title(key, loc="left", fontsize="medium")
        axes.set_ylabel("seconds", fontsize="x-small")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize="x-small")
    _save(figure, path)


def _panels(count: int) -> tuple[Any, list[Any]]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise _no_matplotlib() from error
    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    figure = Figure(figsize=(_INCHES[0] * columns, _INCHES[1] * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in panels[count:]:
        spare.set_visible(False)
    return figure, panels


def _no_matplotlib() -> BadInputError:
    return BadInputError(
        "--plot needs matplotlib, which is not installed", "install the extra: pip install 'ccl-search[plot]'"
    )


def _save(figure: Any, path: Path) -> None:
    clockless = _WITHOUT_CLOCK.get(path.suffix.lower(), {})
    try:
        figure.savefig(path, dpi=150, metadata=clockless)
    except (ValueError, OSError) as error:
        raise BadInputError(f"cannot write the plot {path}: {error}", "use .png, .svg or .pdf") from error
