"""`ccl-search`: the command line's root. Commands live beside it; each imports what it needs when it runs."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from ccl_search.cli.lazy import Verb, root_of
from runs.errors import CclSearchError

_SEARCH, _READ, _REUSE, _INPUT, _SITE = "Search", "Read the record", "Reuse and share", "What goes in", "Machines"
_VERBS = (
    Verb(_SEARCH, "run", "run:run", "Search for the best config of a workload on an environment."),
    Verb(_SEARCH, "resume", "run:resume", "Go on with an interrupted run, or with a finished one under other budgets."),
    Verb(_SEARCH, "simulate", "simulate:app", "Simulate one step of one config: time, memory, busiest links."),
    Verb(
        _SEARCH, "sweep", "sweep:sweep", "Simulate every config of a space, or a sample, and show what each knob does."
    ),
    Verb(_READ, "list", "record:list_runs", "List the runs of the store, newest first."),
    Verb(_READ, "show", "record:show", "Show a run: every trial, its score, and why it failed; or all of one trial."),
    Verb(_READ, "best", "record:best", "Show the best trial of a run: config, score, metrics, policy."),
    Verb(_READ, "pareto", "pareto:pareto", "Show the Pareto front of a run, its hypervolume and its knee."),
    Verb(
        _READ, "compare", "compare:compare", "Compare runs: step time, tokens/s, cost, trials to the best, and knobs."
    ),
    Verb(_READ, "rescore", "rescore:rescore", "Score a run again under another objective, without running anything."),
    Verb(_READ, "export", "export:export", "Export a run as csv, parquet, json, benchmark entries or an Optuna study."),
    Verb(_READ, "store", "store:app", "What the store keeps on the disk."),
    Verb(_REUSE, "publish", "publish:publish", "Write a run to a folder that stands on its own."),
    Verb(_REUSE, "verify", "verify:verify", "Check what a published folder claims against its evidence."),
    Verb(_REUSE, "import", "importing:import_", "Bring a published search, or CCL-Bench entries, into the store."),
    Verb(
        _REUSE, "replay", "replay:replay", "Run a published policy on another cluster, and judge whether it transfers."
    ),
    Verb(_REUSE, "policies", "policies:app", "List published policies, and check how far one carries."),
    Verb(_INPUT, "workloads", "catalogue:workloads", "List the bundled workloads."),
    Verb(_INPUT, "environments", "catalogue:environments", "List the bundled environments."),
    Verb(_INPUT, "validate", "validate:app", "Check cards, spaces and entries."),
    Verb(_INPUT, "metrics", "metrics:app", "List the metric tools, and measure traces."),
    Verb(_SITE, "targets", "catalogue:targets", "List the places where configs can run."),
    Verb(_SITE, "script", "script:script", "Print the exact script of one config; nothing is started or written."),
    Verb(_SITE, "doctor", "doctor:doctor", "Check what works on this machine and on a target."),
    Verb(_SITE, "calibrate", "calibrate:calibrate", "Fit the simulator's factors to measured trials."),
    Verb(_SITE, "cleanup", "cleanup:cleanup", "Find what a search has left on a target, and delete it."),
)
app = typer.Typer(
    name="ccl-search",
    cls=root_of(_VERBS),
    help="Search how an LLM workload is best deployed on a cluster, and keep the evidence of every trial.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Options that stand before the command."""
    del debug  # main() looks for it, so that it also works where parsing itself fails
    if version:
        from ccl_search.version import version as installed

        typer.echo(installed())
        raise typer.Exit


def main() -> None:
    """Run the command line; errors meant for users become two lines and an exit code (`--debug`: the traceback)."""
    debug = "--debug" in sys.argv
    try:
        app()
    except CclSearchError as error:
        if debug:
            raise
        _say(error.message, error.hint)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)  # a thread that hangs in a launcher must not keep the user here
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        if debug:
            raise
        _say(f"cannot use {error.filename or 'a file'}: {error.strerror or error}", _DISK_HINT)
        sys.exit(1)


_DISK_HINT = "check the path, its rights and the free space; --home chooses another folder"


def _say(message: str, hint: str) -> None:
    """Plain lines: rich would wrap what users grep."""
    sys.stderr.write(f"error: {message}\n")
    if hint:
        sys.stderr.write(f"hint:  {hint}\n")
