"""`sweep`: many configs on the simulator at once, or the bundled MoE topology study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccl_search.cli.groups import Goal, Subject, grouped
from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json, print_table

if TYPE_CHECKING:
    from ccl_search.problem import ProblemSource
    from ccl_search.sweeping.effects import Effect
    from ccl_search.sweeping.moe.experiment import Experiment
    from ccl_search.sweeping.sweep import Options, Sweep
    from runs.store import Store

STUDY = "moe-study"
_GRID, _STUDY = "Sweeping", "The MoE study"

What = Annotated[
    str | None,
    typer.Argument(metavar="[SPACE|moe-study]", help="Config space (file or bundled name), or the study `moe-study`."),
]
Sample = Annotated[
    int | None,
    typer.Option(min=1, help="Draw this many configs instead of all.", show_default="the grid", rich_help_panel=_GRID),
]
Seed = Annotated[int, typer.Option(help="Seed of the sample.", rich_help_panel=_GRID)]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Processes.", show_default="the cores there are", rich_help_panel=_GRID)
]
Quick = Annotated[
    bool, typer.Option("--quick", help="No trace: only the simulator's own step time.", rich_help_panel=_GRID)
]
Traces = Annotated[bool, typer.Option("--traces", help="Keep the trace of every config.", rich_help_panel=_GRID)]
Top = Annotated[int, typer.Option(min=1, help="Best configs to show and to give a folder.", rich_help_panel=_GRID)]
CalibrationName = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        help="A name of `calibrate --list`, or a file.",
        show_default="uncalibrated",
        rich_help_panel=_GRID,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="New .csv, .json or .parquet file, a row a config.", rich_help_panel=_GRID),
]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Draw the effects into this .png, .svg or .pdf.", rich_help_panel=_GRID)
]
Resume = Annotated[
    str | None, typer.Option("--resume", metavar="RUN", help="Go on with this sweep.", rich_help_panel=_GRID)
]
Models = Annotated[
    str | None,
    typer.Option(help="Models of the study, as flash,glm.", show_default="all four", rich_help_panel=_STUDY),
]
Backend = Annotated[str, typer.Option(help="Simulator; flow is built in.", rich_help_panel=_STUDY)]
Sensitivity = Annotated[
    bool,
    typer.Option(
        "--sensitivity", help="Vary what the study leaves open by 1/2 and 2 (minutes).", rich_help_panel=_STUDY
    ),
]
Mapping = Annotated[
    str, typer.Option("--mapping", help="Ranks: tp-ep (tensor groups contiguous) or ep-tp.", rich_help_panel=_STUDY)
]
Write = Annotated[
    Path | None, typer.Option("--write", help="Put the tables into this Markdown page.", rich_help_panel=_STUDY)
]


@dataclass(frozen=True)
class Grid:
    """The options of a sweep over a space, with those that the study has too."""

    sample: Sample = None
    seed: Seed = 0
    jobs: Jobs = None
    quick: Quick = False
    traces: Traces = False
    top: Top = 5
    calibration: CalibrationName = None
    out: Out = None
    plot: Plot = None
    resume: Resume = None

    def options(self, home: str | None) -> Options:
        """What a new sweep is told; the calibration may be one that is kept in `home`."""
        from ccl_search.calibrating import files
        from ccl_search.sweeping.sweep import Options

        calibration = files.find(self.calibration, home)
        return Options(calibration, self.sample, self.seed, self.quick, self.traces, self.top)


@dataclass(frozen=True)
class Study:
    """The options of the MoE study."""

    models: Models = None
    backend: Backend = "flow"
    sensitivity: Sensitivity = False
    mapping: Mapping = "tp-ep"
    write: Write = None


@grouped
def sweep(
    *,
    what: What = None,
    subject: Subject,
    goal: Goal,
    grid: Grid,
    study: Study,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Simulate every config of a space, or a sample, in parallel processes; show the best and what each knob does.

    The sweep is a run of the store: list, show, export and pareto read it. `sweep moe-study` runs the bundled study of
    MoE inference on six server topologies and shows its figures and findings beside the published ones.
    """
    if study.backend != "flow":
        raise _bad(f"no backend is called {study.backend!r}", "choose flow, which is built in")
    _check_files(grid, study)
    if what == STUDY:
        _refuse_for_study(subject, goal, grid)
        _run_study(study, grid, home, as_json)
        return
    _refuse_for_grid(what, subject, goal, grid, study)
    source = subject.source(space=what or subject.space, **goal.terms)
    with _store(home) as store:
        found = _sweep(source, goal.constraints, grid, store, home)
        _write_files(found, store, grid.out, grid.plot)
    if as_json:
        print_json(found.as_dict(grid.top))
    else:
        _show(found, grid.top)
        _tell_files(grid.out, grid.plot)
    _end(found)


def _check_files(grid: Grid, study: Study) -> None:
    """Refuse what could not be written in the end, before there is anything to write."""
    from ccl_search.sweeping import files, plot

    if grid.out is not None:
        files.kind_of(grid.out)
    if grid.plot is not None:
        plot.check(grid.plot)
    if study.write is not None:
        from ccl_search.sweeping.moe import page

        page.around(study.write)


def _refuse_for_grid(what: str | None, subject: Subject, goal: Goal, grid: Grid, study: Study) -> None:
    if study != Study():
        raise _bad("--models, --sensitivity, --mapping and --write are for `sweep moe-study`", "leave them out")
    if what is not None and subject.space is not None:
        raise _bad(f"two spaces: {what} and --space {subject.space}", "give one")
    fixed = replace(grid, resume=None, jobs=None, top=Grid().top, out=None, plot=None)
    if grid.resume is not None and (what is not None or fixed != Grid() or _given(subject) or _given(goal)):
        raise _bad(
            f"sweep {grid.resume} goes on with what it was started with",
            "only --jobs, --top, --out, --plot and --home go with --resume",
        )


def _given(group: Subject | Goal) -> bool:
    return any(value is not None for value in vars(group).values())


def _write_files(found: Sweep, store: Store, out: Path | None, plot: Path | None) -> None:
    if out is not None:
        from ccl_search import exporting
        from ccl_search.sweeping import files

        exporting.write(store, found.run_id, files.kind_of(out), out)
    if plot is not None:
        from ccl_search.sweeping.plot import draw_effects

        draw_effects(found.effects, found.metric, found.unit, plot)


def _end(found: Sweep) -> None:
    """The exit code of a stopped sweep, or of one without a result."""
    if found.interrupted:
        raise typer.Exit(130)
    if not found.best:
        raise _no_result(found)


def _bad(message: str, hint: str) -> Exception:
    from runs.errors import BadInputError

    return BadInputError(message, hint)


def _no_result(found: Sweep) -> Exception:
    from runs.errors import BudgetExhaustedError

    return BudgetExhaustedError(
        f"sweep {found.run_id}: none of {len(found.trials)} configs has a score",
        f"`ccl-search show {found.run_id}` says why",
    )


def _store(home: str | None) -> Store:
    from ccl_search import assembly

    return assembly.open_store(home, write=True)


def _sweep(source: ProblemSource, constraints: tuple[str, ...], grid: Grid, store: Store, home: str | None) -> Sweep:
    from ccl_search.problem import resolve
    from ccl_search.settings import SearchSettings
    from ccl_search.sweeping import sweep as sweeping

    with _Progress("configs") as advance:
        if grid.resume is not None:
            return sweeping.resume(grid.resume, store, grid.jobs, advance)
        settings = SearchSettings(seed=grid.seed, constraints=constraints)
        return sweeping.start(resolve(source), grid.options(home), store, settings, grid.jobs, advance)


class _Progress:
    """A bar on stderr where that is a terminal; `advance(done, total)` moves it."""

    def __init__(self, what: str) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        out = console()
        self._bar = Progress(*columns, console=out, transient=True, disable=not out.is_terminal)
        self._task = self._bar.add_task(what, total=None)

    def __enter__(self) -> Callable[..., None]:
        self._bar.start()
        return self._advance

    def __exit__(self, *_exc: object) -> None:
        self._bar.stop()

    def _advance(self, done: int, total: int, *_more: float) -> None:
        self._bar.update(self._task, completed=done, total=total)


def _show(found: Sweep, top: int) -> None:
    from runs.trial import TrialState

    best = found.best[:top]
    knobs = [effect.knob for effect in found.effects]
    rows = [
        [str(t.number), f"{t.score:.6g}", f"{t.values.get(found.metric, float('nan')):.6g}", *_choices(t.config, knobs)]
        for t in best
    ]
    unit = f" ({found.unit})" if found.unit else ""
    if rows:
        print_table(f"best of sweep {found.run_id}", [">trial!", ">score!", f">{found.metric}{unit}!", *knobs], rows)
    for effect in found.effects:
        _print_effect(effect, found)
    states = {state.value: found.count(state) for state in TrialState if found.count(state)}
    counted = ", ".join(f"{count} {state}" for state, count in states.items()) or "no config"
    left = "; stopped, go on with --resume" if found.interrupted else ""
    console().print(
        f"sweep {found.run_id}: {counted}, {found.seconds:.1f} s{left}; `ccl-search show {found.run_id}`",
        soft_wrap=True,
    )


def _choices(config: dict[str, Any] | None, knobs: list[str]) -> list[str]:
    return [str((config or {}).get(knob, "")) for knob in knobs]


def _print_effect(effect: Effect, found: Sweep) -> None:
    rows = [
        [str(level.choice), str(level.count), *(f"{x:.5g}" for x in (level.mean, level.best, level.worst))]
        for level in effect.levels
    ]
    title = f"{effect.knob}: mean {found.metric} differs {effect.spread:.2f}-fold"
    print_table(title, [f"{effect.knob}!", ">configs!", ">mean!", ">best!", ">worst!"], rows)


def _tell_files(*paths: Path | None) -> None:
    for path in paths:
        if path is not None:
            console().print(f"wrote {path}", soft_wrap=True, markup=False)


# --- the study --------------------------------------------------------------------------------------------------------


def _refuse_for_study(subject: Subject, goal: Goal, grid: Grid) -> None:
    if _given(subject) or _given(goal) or replace(grid, jobs=None, out=None, plot=None) != Grid():
        raise _bad(
            "the MoE study brings its own workloads, servers, space and measure",
            "beside its own options only --jobs, --out, --plot, --home and --json go with it; or sweep the space with "
            "`sweep --space moe-study --workload moe-prefill-v4-flash`",
        )


def _run_study(study: Study, grid: Grid, home: str | None, as_json: bool) -> None:
    from ccl_search.sweeping import files
    from ccl_search.sweeping.moe import definitions, experiment, keeping, page

    models = [name.strip() for name in (study.models or "").split(",") if name.strip()]
    chosen = definitions.study().only(models)
    with _store(home) as store:
        try:
            with _Progress("parts") as advance:
                found = experiment.run(
                    chosen, sensitivity=study.sensitivity, mapping=study.mapping, processes=grid.jobs, progress=advance
                )
        except KeyboardInterrupt:
            console().print("stopped; the study is stored when it is whole, so nothing is kept")
            raise typer.Exit(130) from None
        runs = keeping.keep(store, found)
    if grid.out is not None:
        files.write([cell.as_dict() for cell in found.results.matrix.cells], grid.out)
    if grid.plot is not None:
        from ccl_search.sweeping.plot import draw_study

        draw_study(found, grid.plot)
    if study.write is not None:
        page.write(found, study.write)
    if as_json:
        print_json(_study_document(found, runs))
        return
    _show_study(found, runs)
    _tell_files(grid.out, grid.plot, study.write)


def _show_study(found: Experiment, runs: dict[str, str]) -> None:
    from ccl_search.sweeping.moe.tables import narrow_tables

    for table in narrow_tables(found):
        print_table(table.title, table.heads, table.rows)
        if table.note:
            console().print(table.note, soft_wrap=True)
    cells = len(found.results.matrix.cells)
    console().print(
        f"{cells} configurations in {found.seconds:.1f} s ({found.cpu_seconds:.1f} s of processor time); runs "
        + ", ".join(f"{key} {run}" for key, run in runs.items()),
        soft_wrap=True,
    )


def _study_document(found: Experiment, runs: dict[str, str]) -> dict[str, Any]:
    from ccl_search.sweeping.moe import quantities
    from ccl_search.sweeping.moe.definitions import published

    facts = [
        {
            "model": m,
            "quantity": q,
            "what": published()["quantities"][q],
            "published": v,
            "unit": u,
            "section": s,
            "ours": quantities.value(found.results, m, q),
        }
        for m, q, v, u, s in published()["facts"]
    ]
    return {
        "study": STUDY,
        "mapping": found.mapping,
        "runs": runs,
        "findings": [each.as_dict() for each in found.findings],
        "figures": facts,
        "variants": list(found.variants),
        "cells": [cell.as_dict() for cell in found.results.matrix.cells],
        "seconds": found.seconds,
        "cpu_seconds": found.cpu_seconds,
    }
