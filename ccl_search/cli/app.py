"""`ccl-search`: the command line's root. Commands live beside it; each imports what it needs when it runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ccl_search.cli import (
    catalogue,
    compare,
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
app.command("run")(run.run)
app.command("resume")(run.resume)
app.command("list")(record.list_runs)
app.command("show")(record.show)
app.command("best")(record.best)
app.command("pareto")(pareto.pareto)
app.command("compare")(compare.compare)
app.command("rescore")(rescore.rescore)
app.command("export")(export.export)
app.command("publish")(publish.publish)
app.command("script")(script.script)
app.command("simulate")(simulate.simulate)
app.command("verify")(verify.verify)
app.command("import")(importing.import_)
app.command("replay")(replay.replay)
app.command("workloads")(catalogue.workloads)
app.command("environments")(catalogue.environments)
app.command("targets")(catalogue.targets)
app.add_typer(validate.app, name="validate")
app.add_typer(metrics.app, name="metrics")
app.add_typer(policies.app, name="policies")


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
        sys.exit(130)
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
