"""`replay`: a published policy on another cluster, or a published search again, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json, print_table
from runs.errors import BadInputError

if TYPE_CHECKING:
    from ccl_search.loop.search import Search
    from ccl_search.replaying.preparing import Origin
    from launchers.base import Launcher
    from runs.store import Store


Subject = Annotated[
    str,
    typer.Argument(
        metavar="PUBLISHED", help="A published folder or archive, a bundled one (see `policies list`), or a run."
    ),
]
Environment = Annotated[
    str | None,
    typer.Option(help="Bundled environment to replay on.", show_default="the target's, else the published one"),
]
Card = Annotated[
    Path | None,
    typer.Option(help="Workload card of the cluster to replay on: its machines; the workload stays the published one."),
]
Target = Annotated[str, typer.Option(help="Where configs run, see `targets`.")]
FrameworkName = Annotated[
    str | None, typer.Option(help="Another framework; knobs are translated.", show_default="the published one")
]
Refine = Annotated[int, typer.Option(min=0, help="Trials of a search that starts from the replayed policy.")]
Proposer = Annotated[str | None, typer.Option(help="Proposer of that search, as for `run`.")]
Seed = Annotated[int | None, typer.Option(help="Seed of that search.", show_default="the published one")]
Tolerance = Annotated[
    float, typer.Option(min=0, help="How far from the best found still counts as transferred (0.05: 5 %).")
]
Repeats = Annotated[int, typer.Option(min=1, help="Measure every config this many times.")]
Constraint = Annotated[
    list[str] | None,
    typer.Option(
        help="Bound on a metric or a knob, as for `run`; repeat for several.",
        show_default="those of the published search",
    ),
]
Exact = Annotated[bool, typer.Option("--exact", help="Instead: the whole search again, offline, config by config.")]


def replay(
    published: Subject,
    environment: Environment = None,
    card: Card = None,
    target: Target = "dry-run",
    framework: FrameworkName = None,
    refine: Refine = 0,
    proposer: Proposer = None,
    seed: Seed = None,
    tolerance: Tolerance = 0.05,
    repeats: Repeats = 1,
    constraint: Constraint = None,
    exact: Exact = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a published policy, unchanged, on another cluster, and judge whether the published optimum transfers there.

    It is compared with the published config taken verbatim, with the seed policy, and with a search of --refine trials.
    With --exact the published search itself is repeated from its record: stored LLM answers, no network, no launch.

    For example
    `ccl-search replay wl4 --environment h100-16 --refine 10`
    `ccl-search replay --exact my-search`
    """
    if exact:
        if environment or card or framework or refine or constraint or repeats > 1:
            raise BadInputError(
                "--exact repeats the search as it was",
                "leave out --environment, --card, --framework, --refine, --repeats, --constraint",
            )
        _exact(published, as_json)
        return
    from ccl_search import assembly, targets
    from ccl_search.cli.progress import live_table
    from ccl_search.replaying.preparing import ReplayOptions, prepare

    bounds = None if constraint is None else tuple(constraint)
    options = ReplayOptions(environment, framework, target, refine, proposer, seed, repeats, bounds, card, tolerance)
    with assembly.open_store(home, write=True) as store, _origin(store, published) as origin:
        search = prepare(store, origin, options, live_table(store)).search
        launcher = targets.launcher(search.target, bool(search.settings.extras.get("within_allocation")))
        conclude(search, store, launcher, as_json)


def conclude(search: Search, store: Store, launcher: Launcher, as_json: bool) -> None:
    """Run a replay, or what is left of one, to its end, and print and keep its verdict."""
    from ccl_search.cli.driving import drive
    from ccl_search.replaying import verdict
    from ccl_search.replaying.preparing import VERDICT, of_replay
    from policies.factory import create_runner

    drive(search, store, launcher)
    origin, tolerance = of_replay(store.run(search.run_id))
    runner = create_runner("monty" if origin.sandbox == "monty" else "process", seed=origin.seed)
    try:
        document = verdict.judge(store, search.run_id, origin, search.problem.environment, runner, tolerance)
    finally:
        runner.close()
    store.set_option(search.run_id, VERDICT, document)
    if as_json:
        print_json(document)
    else:
        show(document)


@contextmanager
def _origin(store: Store, text: str) -> Iterator[Origin]:
    from ccl_search.replaying.preparing import origin_of_published, origin_of_run
    from policies.reading import locate, open_published

    path = locate(text)
    if path is None:
        if "/" in text or Path(text).suffix:
            raise BadInputError(f"there is nothing at {text}", "give a published folder, an archive of one, or a run")
        yield origin_of_run(store, text)
        return
    with open_published(path) as published:
        yield origin_of_published(store, published)


def show(document: dict[str, Any]) -> None:
    """The verdict of a replay for people."""
    rows = [
        [
            arm["label"] + (f" (= {arm['same_as']})" if arm["same_as"] else ""),
            _cell(arm["trial"]),
            _cell(arm["score"]) + (f" (spread {arm['spread']:.3g})" if arm["spread"] is not None else ""),
            _cell(arm["ratio"]),
            " ".join(f"{key}={value}" for key, value in (arm["config"] or {}).items()),
            arm["infeasible"] or "",
        ]
        for arm in document["arms"]
    ]
    print_table(
        f"replay {document['run_id']}: {document['objective']}",
        ["what!", ">trial!", ">score!", ">x best!", "config", "why not"],
        rows,
    )
    out = console()
    for knob in document["knobs"]:
        why = f" because of {', '.join(knob['because_of'])}" if knob["because_of"] else ""
        out.print(f"{knob['knob']}: {knob['published']} -> {knob['replayed']}{why}", soft_wrap=True, markup=False)
    for name, found in document["translations"].items():
        changed = [note for note in found["knobs"] if note["how"] != "kept"]
        words = ", ".join(f"{n['knob']} {n['before']} -> {n['after']} ({n['how']})" for n in changed)
        out.print(f"translated ({name}): {words or 'every knob kept'}", soft_wrap=True, markup=False)
    for note in document["notes"]:
        out.print(f"note: {note}", soft_wrap=True, markup=False)
    out.print(document["verdict"], soft_wrap=True, markup=False, style="bold")


def _exact(text: str, as_json: bool) -> None:
    from ccl_search.replaying.exact import replay_exactly
    from policies.reading import locate, open_published

    path = locate(text)
    if path is None:
        raise BadInputError(f"there is no published folder {text}", "--exact needs a published folder or an archive")
    with open_published(path) as published:
        found = replay_exactly(published)
    if as_json:
        print_json(found.as_dict())
    else:
        for line in found.lines():
            console().print(line, soft_wrap=True, markup=False)
    found.require()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
