"""`command`: the user's own program, told everything by its argument template and by variables `CCL_SEARCH_*`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from string import Formatter
from typing import Any

from launchers.frameworks.commands.request import PROFILED_STEPS, WARMUP_STEPS, Request, finish, known_collectives
from launchers.shell.command import Command, Slot
from runs.errors import BadInputError

CONFIG_FILE = "ccl-command.json"
PREFIX, KNOB_PREFIX = "CCL_SEARCH_", "CCL_SEARCH_KNOB_"
_PLAIN = re.compile(r"[^\x00-\x1f\x7f@]*\Z")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")


def build(made: Request) -> Command:
    """The command of a config of the user's own program.

    Raises:
        BadInputError: the target gives no template, the template names something unknown, or a value is no plain text.
    """
    if not made.settings.command:
        raise BadInputError(
            "the framework `command` needs a program", "set `command: [program, argument, ...]` in the target file"
        )
    values = {**facts(made), **{key: plain(key, value) for key, value in made.config.items()}}
    argv = [filled(word, values) for word in made.settings.command]
    files = {CONFIG_FILE: _document(made)}
    settings, collective = made.settings, known_collectives(made)
    command = finish(made, argv, variables(made), settings.trace_count, files, settings.per_node, collective, {})
    return replace(command, trace_globs=settings.traces) if settings.traces and made.profiled else command


def facts(made: Request) -> dict[str, str]:
    """What a template may name beside the knobs: facts of the workload and the plan, and places known in the job."""
    workload, plan = made.workload, made.plan
    known: dict[str, Any] = {
        "model": made.settings.model,
        "model_family": workload.model.model_family,
        "phase": workload.phase,
        "precision": workload.precision,
        "global_batch": workload.batch_size,
        "seq_len": workload.seq_len,
        "input_len": workload.input_len,
        "output_len": workload.output_len,
        "num_microbatches": plan.num_microbatches,
        "world_size": plan.world_size,
        "warmup_steps": WARMUP_STEPS,
        "profiled_steps": PROFILED_STEPS,
        "profile": str(made.profiled).lower(),
    }
    places = {slot.name.lower(): str(slot) for slot in Slot if slot is not Slot.WORLD_SIZE}
    return {key: str(value) for key, value in known.items() if value is not None} | places


def variables(made: Request) -> dict[str, str]:
    """The environment contract: every fact as `CCL_SEARCH_NAME`, every knob as `CCL_SEARCH_KNOB_NAME`.

    Raises:
        BadInputError: a knob's name cannot be part of a variable, two make the same one, or a value is no plain text.
    """
    found = {PREFIX + key.upper(): value for key, value in facts(made).items()}
    found[f"{PREFIX}CONFIG_FILE"] = f"{Slot.JOB_DIR}/{CONFIG_FILE}"
    for key, value in made.config.items():
        name = KNOB_PREFIX + key.upper()
        if not _KEY.match(key) or name in found:
            raise BadInputError(f"the knob {key!r} cannot become a variable", "name knobs with letters, digits and _")
        found[name] = plain(key, value)
    return found


def plain(key: str, value: Any) -> str:
    """A knob's value as text: `true` and `false`, numbers, and texts without control characters and `@`.

    Raises:
        BadInputError: it is something else.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float) or (isinstance(value, str) and _PLAIN.match(value)):
        return str(value)
    raise BadInputError(f"{key}={value!r} cannot be handed to a program", "use numbers and plain texts as choices")


def filled(word: str, values: Mapping[str, str]) -> str:
    """`word` with every `{name}` replaced; `{{` and `}}` are braces.

    Raises:
        BadInputError: a name is unknown, or the braces do not match.
    """
    try:
        parts = list(Formatter().parse(word))
    except ValueError as error:
        raise BadInputError(f"command: {word!r}: {error}", "write {{ and }} for braces") from error
    text = ""
    for literal, name, form, conversion in parts:
        text += literal
        if name is None:
            continue
        if name not in values or form or conversion:
            raise BadInputError(
                f"command: {word!r} names {name!r}, which there is not", f"known: {', '.join(sorted(values))}"
            )
        text += values[name]
    return text


def _document(made: Request) -> str:
    document = {"config": dict(made.config), "plan": made.plan.as_dict(), "workload": made.workload.policy_input()}
    return json.dumps(document | {"environment": made.environment.policy_input()}, indent=1, sort_keys=True) + "\n"
