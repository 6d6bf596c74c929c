"""`policies`: the bundled published ones, and how far a policy carries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json, print_table

if TYPE_CHECKING:
    from ccl_search.portability.cases import Home
    from ccl_search.portability.checking import Portability

app = typer.Typer(help="Policies: list the published ones, check how far one carries.", no_args_is_help=True)


@app.command("list")
def list_policies(as_json: JsonFlag = False) -> None:
    """The published searches that come with ccl-search; `replay NAME` and `verify` take them."""
    from policies.reading import bundled_names, bundled_path, read_published

    rows = []
    for name in bundled_names():
        published = read_published(bundled_path(name))
        manifest, best = published.manifest, published.best or {}
        rows.append(
            {
                "name": name,
                "path": str(bundled_path(name)),
                "workload": manifest["workload"].get("model_family"),
                "devices": f"{manifest['environment'].get('total_gpus')} x {manifest['environment'].get('gpu_model')}",
                "framework": manifest["framework"].get("name"),
                "objective": manifest["objective"].get("name"),
                "best_score": best.get("score"),
                "config": best.get("config"),
            }
        )
    if as_json:
        print_json(rows)
        return
    keys = ("name", "workload", "devices", "framework", "objective", "best_score")
    print_table("published policies", [f"{key}!" for key in keys], [[_cell(row[key]) for key in keys] for row in rows])


@app.command("lint")
def lint(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="FILE|RUN", help="A policy's file (.py), a run, or a published folder (the best policy of it)."
        ),
    ],
    workload: Annotated[
        str | None, typer.Option(help="Bundled workload to lint a file with.", show_default="wl4")
    ] = None,
    environment: Annotated[
        str | None, typer.Option(help="Environment that is perturbed.", show_default="perlmutter-a100-16")
    ] = None,
    framework: Annotated[str | None, typer.Option(help="Framework of the policy.", show_default="torchtitan")] = None,
    card: Annotated[Path | None, typer.Option(help="Workload card that says all three, for a file.")] = None,
    sample: Annotated[int, typer.Option(min=0, help="Cases in which the loss is predicted.")] = 4,
    sandbox: Annotated[
        str | None,
        typer.Option(help="Where the policy runs: monty or process.", show_default="the run's, else monty"),
    ] = None,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a policy over every bundled environment and perturbations of one: valid, infeasible, raising or constant?

    Perturbed are the size (half, double, 3, 5 and 7 nodes), the memory, and one unset fact at a time. In a sample of
    the cases the step time of its config is predicted by the dry run and compared with the best known there.

    For example
    `ccl-search policies lint latest --environment h100-16`
    """
    from ccl_search.portability.cases import cases
    from ccl_search.portability.checking import lint as check
    from policies.factory import create_runner

    source, made_at, used = _subject(subject, Named(card, workload, environment, framework), home)
    runner = create_runner(sandbox or used)  # type: ignore[arg-type]
    try:
        report = check(source, cases(made_at), runner, sample)
    finally:
        runner.close()
    if as_json:
        print_json(report.as_dict())
        return
    _show(report)


def _show(report: Portability) -> None:
    from ccl_search.portability.checking import summary

    rows = [
        [each.case, each.kind, each.outcome, _percent(each.loss), each.reason.partition("\n")[0][:160]]
        for each in report.results
    ]
    print_table("portability", ["case!", "kind!", "outcome!", ">loss!", "why"], rows)
    out = console()
    out.print(summary(report), soft_wrap=True, markup=False)
    if report.value is not None:
        out.print(
            f"portability {report.value:.3f} = {report.share:.3f} valid x {report.efficiency:.3f} of the best known "
            f"speed, in {len(report.losses)} of {len(report.sampled)} sampled cases",
            soft_wrap=True,
            markup=False,
        )


class Named(NamedTuple):
    """What the user named beside the subject."""

    card: Path | None
    workload: str | None
    environment: str | None
    framework: str | None


def _subject(subject: str, named: Named, home: str | None) -> tuple[str, Home, str]:
    """The policy's source, where it was made, and the sandbox it was made in."""
    from ccl_search import assembly
    from ccl_search.portability.cases import Home
    from ccl_search.problem import ProblemSource, resolve
    from policies.program import load_policy
    from policies.reading import locate
    from runs.errors import BadInputError

    if Path(subject).suffix == ".py":
        problem = resolve(ProblemSource(**named._asdict()))
        source = load_policy(Path(subject)).source
        return source, Home(problem.workload, problem.environment, problem.framework), "monty"
    if any(named):
        raise BadInputError(
            "a run or a published folder says its workload, environment and framework itself", "leave those options out"
        )
    from ccl_search.replaying.preparing import origin_of_published, origin_of_run
    from policies.reading import open_published

    place = locate(subject)
    if place is not None:
        with open_published(place) as published:
            origin = origin_of_published(None, published)
        return origin.policy_source, origin.home(), origin.sandbox
    with assembly.open_store(home, write=False) as store:
        origin = origin_of_run(store, subject)
    return origin.policy_source, origin.home(), origin.sandbox


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
