"""`publish`: a run as a self-contained folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json
from ccl_search.cli.record import RunArgument

if TYPE_CHECKING:
    from ccl_search.publishing.writing import Publication

_PRIVACY = "Anonymising"

Destination = Annotated[Path, typer.Argument(metavar="DEST", help="The folder to write; a new one.")]
Anonymise = Annotated[
    bool, typer.Option("--anonymise", help="Redact host, user and path names everywhere.", rich_help_panel=_PRIVACY)
]
RedactOperators = Annotated[
    bool,
    typer.Option(
        "--redact-operators", help="Redact operators' names in traces too (with --anonymise).", rich_help_panel=_PRIVACY
    ),
]
Perturb = Annotated[
    bool,
    typer.Option(
        "--perturb", help="Warp the time axis of every trace by a seed (with --anonymise).", rich_help_panel=_PRIVACY
    ),
]
PerturbSeed = Annotated[
    int | None, typer.Option(help="That seed.", show_default="from the run's id", rich_help_panel=_PRIVACY)
]
Name = Annotated[
    list[str] | None,
    typer.Option(
        "--name", help="A further name to redact (with --anonymise); repeat for several.", rich_help_panel=_PRIVACY
    ),
]
MetricsOnly = Annotated[bool, typer.Option("--metrics-only", help="Publish hashes of the traces, not the traces.")]
NoTranscript = Annotated[bool, typer.Option("--no-transcript", help="Leave out the LLM exchange.")]
PlainTraces = Annotated[
    bool, typer.Option("--plain-traces", help="Only gzip traces, so that any profiler viewer opens them.")
]


def publish(
    run: RunArgument,
    destination: Destination,
    anonymise: Anonymise = False,
    redact_operators: RedactOperators = False,
    perturb: Perturb = False,
    perturb_seed: PerturbSeed = None,
    name: Name = None,
    metrics_only: MetricsOnly = False,
    no_transcript: NoTranscript = False,
    plain_traces: PlainTraces = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a run to a folder that stands on its own: policy, manifest, every trial as a benchmark entry, transcript.

    The same run gives the same bytes. `ccl-search verify DEST` checks the folder.

    For example
    `ccl-search publish latest my-search --anonymise --name my-cluster`
    """
    from ccl_search import assembly
    from ccl_search.publishing.anonymising import PublishOptions
    from ccl_search.publishing.writing import publish as write

    options = PublishOptions(
        anonymise=anonymise,
        redact_operators=redact_operators,
        perturb=perturb,
        perturb_seed=perturb_seed,
        names=tuple(name or ()),
        metrics_only=metrics_only,
        transcript=not no_transcript,
        plain_traces=plain_traces,
    )
    with assembly.open_store(home, write=False) as store:
        made = write(store, run, destination, options)
    if as_json:
        print_json(made.as_dict())
    else:
        _show(made)


def _show(made: Publication) -> None:
    out = console()
    out.print(
        f"{made.path}: {made.trials} trials in {made.files} files, {made.bytes / 1e6:.2f} MB "
        f"(traces as recorded: {made.trace_bytes / 1e6:.1f} MB)",
        soft_wrap=True,
        markup=False,
    )
    for line in made.statement["done"] if made.statement else ():
        out.print(f"anonymised: {line}", soft_wrap=True, markup=False)
    out.print(f"check it with `ccl-search verify {made.path}`", soft_wrap=True, markup=False)
