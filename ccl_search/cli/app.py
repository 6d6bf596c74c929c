"""`ccl-search`: the command line's root. Commands live beside it; each imports what it needs when it runs."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from ccl_search.cli import (
    calibrate,
    catalogue,
    cleanup,
    compare,
    doctor,
    export,
    importing,
    metrics,
    pareto,
    policies,
    publish,
    record,
    replay,
    rescore,
    run,
    script,
    simulate,
    store,
    sweep,
    validate,
    verify,
)
from runs.errors import CclSearchError

app = typer.Typer(
    name="ccl-search",
    help="Search how an LLM workload is best deployed on a cluster, and keep the evidence of every trial.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_SEARCH, _READ, _REUSE, _INPUT, _SITE = "Search", "Read the record", "Reuse and share", "What goes in", "Machines"

app.command("run", rich_help_panel=_SEARCH)(run.run)
app.command("resume", rich_help_panel=_SEARCH)(run.resume)
app.add_typer(simulate.app, name="simulate", rich_help_panel=_SEARCH)
app.command("sweep", rich_help_panel=_SEARCH)(sweep.sweep)
app.command("list", rich_help_panel=_READ)(record.list_runs)
app.command("show", rich_help_panel=_READ)(record.show)
app.command("best", rich_help_panel=_READ)(record.best)
app.command("pareto", rich_help_panel=_READ)(pareto.pareto)
app.command("compare", rich_help_panel=_READ)(compare.compare)
app.command("rescore", rich_help_panel=_READ)(rescore.rescore)
app.command("export", rich_help_panel=_READ)(export.export)
app.command("publish", rich_help_panel=_REUSE)(publish.publish)
app.command("verify", rich_help_panel=_REUSE)(verify.verify)
app.command("import", rich_help_panel=_REUSE)(importing.import_)
app.command("replay", rich_help_panel=_REUSE)(replay.replay)
app.add_typer(policies.app, name="policies", rich_help_panel=_REUSE)
app.command("workloads", rich_help_panel=_INPUT)(catalogue.workloads)
app.command("environments", rich_help_panel=_INPUT)(catalogue.environments)
app.add_typer(validate.app, name="validate", rich_help_panel=_INPUT)
app.add_typer(metrics.app, name="metrics", rich_help_panel=_INPUT)
app.command("targets", rich_help_panel=_SITE)(catalogue.targets)
app.command("script", rich_help_panel=_SITE)(script.script)
app.command("doctor", rich_help_panel=_SITE)(doctor.doctor)
app.command("calibrate", rich_help_panel=_SITE)(calibrate.calibrate)
app.add_typer(store.app, name="store", rich_help_panel=_READ)
app.command("cleanup", rich_help_panel=_SITE)(cleanup.cleanup)


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
