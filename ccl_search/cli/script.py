"""`script`: print the exact script that a config would run, and start nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccl_search.cli import options
from ccl_search.cli.groups import Subject, grouped
from ccl_search.cli.output import HomeOption, JsonFlag, console, counted, print_json

if TYPE_CHECKING:
    from ccl_search.scripting import Script

TargetFile = Annotated[
    Path | None, typer.Option("--target", help="Target file; without one the script is for this machine.")
]
VersionText = Annotated[
    str | None, typer.Option("--framework-version", help="Release or day that the arguments are for, as 0.2.2.")
]
TimeLimit = Annotated[float, typer.Option("--time-limit", min=1, help="Longest run, in seconds.")]


@grouped
def script(
    *,
    config: options.Config,
    subject: Subject,
    target: TargetFile = None,
    framework_version: VersionText = None,
    time_limit: TimeLimit = 3600.0,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the exact script of one config, for a target or for this machine; nothing is started or written.

    A config that breaks a rule of the space is refused with the rule: exit code 2. What the script needs beside it,
    and what it expects in the trace folder, goes to stderr, or into the document of `--json`.
    """
    from ccl_search import scripting
    from ccl_search.problem import resolve
    from launchers.target_file import load_target

    place = load_target(target) if target is not None else None
    where = subject.environment or (place.environment if place is not None and subject.card is None else None)
    source = subject.source(environment=where)
    facts = scripting.JobFacts(Path(home or "ccl-runs") / "script" / "trial-0", time_limit)
    found = scripting.script(resolve(source), scripting.parse_config(config), place, framework_version, facts)
    if as_json:
        print_json(_document(found))
    else:
        _say(found)
        sys.stdout.write(found.text)


def _document(found: Script) -> dict[str, Any]:
    command = found.command
    return {
        "target": found.target,
        "framework": command.framework_version,
        "config": found.config,
        "script": found.text,
        "argv": list(command.argv),
        "env": dict(command.env),
        "files": dict(command.files),
        "nodes": command.nodes,
        "xpus_per_node": command.xpus_per_node,
        "per_node": command.per_node,
        "traces": list(command.trace_globs),
        "trace_count": command.trace_count,
        "notes": list(found.notes),
    }


def _say(found: Script) -> None:
    from rich.text import Text

    command = found.command
    count = "at least one" if command.trace_count is None else str(command.trace_count)
    size = f"{counted(command.nodes, 'node')} of {counted(command.xpus_per_node, 'device')}"
    lines = [
        f"{command.framework_version} on {found.target}: {size}",
        f"expects trace files: {count} of {', '.join(command.trace_globs)}",
        *(f"beside the script: {name} (see --json)" for name in command.files),
        *(f"note: {note}" for note in found.notes),
    ]
    for line in lines:
        console().print(Text(line), soft_wrap=True)
