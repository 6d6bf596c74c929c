"""What a target file says about a framework: where it is, which model files, and words of the user's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from runs.errors import BadInputError

FRAMEWORKS = ("torchtitan", "megatron-lm", "maxtext", "vllm", "sglang", "command")
STEP_UNITS = frozenset({"seconds", "ms", "tps"})
"""Groups of `step_log`, one of which it has: seconds, milliseconds, or tokens a second and device."""
Text = Annotated[str, StringConstraints(min_length=1)]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HUGGING_FACE = re.compile(r"https://huggingface\.co/([\w.-]+/[\w.-]+)/?\Z")


class FrameworkSettings(BaseModel):
    """One framework on one target. Everything is the user's own word: it is quoted, and never comes from a policy."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Text | None = Field(None, description="installed release, or day of the checkout (2026-05-01)")
    path: Text | None = Field(None, description="checkout that the program is started in")
    python: Text = Field("python3", description="interpreter of single processes")
    torchrun: tuple[Text, ...] = Field(("torchrun",), description="what starts one process a device")
    model: Text | None = Field(None, description="model as the framework names it: path, hub name, preset or module")
    flavor: Text | None = Field(None, description="TorchTitan: size of the model, or its config function")
    tokenizer: Text | None = Field(None, description="path of the tokenizer's files")
    dataset: Text | None = Field(None, description="name of the data set")
    dataset_path: Text | None = Field(None, description="path of the data set")
    weights: Text | None = Field(None, description="how serving engines load weights; `dummy` unless set")
    config_file: Text | None = Field(None, description="file that the framework reads its other settings from")
    libraries: dict[Text, Text] = Field(
        default_factory=dict, description="paths of collective libraries that stand in for NCCL (name: path)"
    )
    env: dict[Text, str] = Field(default_factory=dict, description="variables of the framework's processes")
    extra: tuple[str, ...] = Field((), description="arguments added at the end")
    command: tuple[str, ...] = Field((), description="`command` only: the program and its arguments, a template")
    per_node: bool = Field(True, description="`command` only: one process a node, else one a device")
    traces: tuple[Text, ...] = Field((), description="`command` only: patterns of trace files in the trace folder")
    trace_count: int | None = Field(None, ge=1, description="`command` only: how many trace files there must be")
    trace_ranks: int | None = Field(
        None, ge=1, description="Megatron-LM: how many ranks are profiled, evenly spread (`run --trace-ranks` sets it)"
    )
    step_log: Text | None = Field(None, description="pattern of the log line that tells how long a step took")

    def model_post_init(self, context: Any, /) -> None:
        """Refuse variables that no shell could export."""
        del context
        if self.step_log is not None:
            check_step_log(self.step_log)
        for name in self.env:
            if not _VARIABLE.match(name):
                raise ValueError(f"env: {name!r} cannot be an environment variable")


def check_step_log(pattern: str) -> None:
    """Check the pattern of a step's log line.

    Raises:
        ValueError: it is no regular expression, or has none of the groups `seconds`, `ms` and `tps`.
    """
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise ValueError(f"step_log is no regular expression: {error}") from error
    if not groups.keys() & STEP_UNITS:
        raise ValueError("step_log has no group (?P<seconds>...), (?P<ms>...) or (?P<tps>...)")


def read_settings(framework: str, data: Mapping[str, Any]) -> FrameworkSettings:
    """The settings of `framework` from the section `framework` of a target file.

    The section holds settings, or one mapping of settings for each framework, or both: then those named for the
    framework stand over the common ones. A `~` at the start of `path` is this machine's home.

    Raises:
        BadInputError: a key is unknown or a value is of the wrong kind; the message names the key.
    """
    given = dict(data)
    sections = {name: given.pop(name) for name in list(given) if name in FRAMEWORKS and isinstance(given[name], dict)}
    chosen = {**given, **sections.get(framework, {})}
    if isinstance(chosen.get("path"), str):
        chosen["path"] = str(Path(chosen["path"]).expanduser())
    try:
        return FrameworkSettings.model_validate(chosen)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        known = ", ".join(FrameworkSettings.model_fields)
        message = f"{framework}: {where}: {first['msg']}" if where else f"{framework}: {first['msg']}"
        raise BadInputError(message, f"keys: {known}") from error


def hub_name(source: str) -> str | None:
    """The name of a model on the Hugging Face hub, from the address of its page; None for anything else."""
    found = _HUGGING_FACE.match(source)
    return found.group(1) if found else None
