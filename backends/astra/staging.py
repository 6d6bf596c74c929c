"""A run folder with everything a program reads, under names that mislead nobody, and the flags that point there.

All paths in it are relative, so that a container sees them too; no path holds the word "empty", which the programs
take for "there are no groups"; ns-3's flow and trace files, without which it gives up, are always written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends.astra.ns3_files import FCT_FILE, PFC_FILE, QLEN_FILE
from backends.astra.programs import Engine
from runs.errors import BadInputError

_PREFIX, _SYSTEM, _MEMORY, _GROUPS, _LOGICAL = "workload", "system.json", "memory.json", "groups.json", "logical.json"
_YML, _CONFIG, _PHYSICAL = "network.yml", "network.txt", "physical.txt"
_LOGGING = "logging.toml"
_NOTHING = "0\n"
OPERATIONS_FILE = "operations.log"
"""Where the program writes the results of ranks at once and, if asked, the time of every node.

Its own log keeps the last 110 MiB only, and a crash at its end can keep the last results from it.
"""
_LOGGING_TEXT = """[[sink]]
name = "operations"
type = "basic_file_sink_mt"
filename = "{file}"
level = "{level}"
truncate = true

[[logger]]
name = "workload"
sinks = ["operations"]
level = "{level}"
flush_level = "info"

[[logger]]
name = "statistics"
sinks = ["operations"]
level = "info"
flush_level = "info"
"""
_NO_MEMORY = {"memory-type": "NO_MEMORY_EXPANSION"}
_OUTPUTS = {
    "TOPOLOGY_FILE": _PHYSICAL, "FLOW_FILE": "flow.txt", "TRACE_FILE": "trace.txt", "TRACE_OUTPUT_FILE": "mix.tr",
    "FCT_OUTPUT_FILE": FCT_FILE, "PFC_OUTPUT_FILE": PFC_FILE, "QLEN_MON_FILE": QLEN_FILE,
}  # fmt: skip


@dataclass(frozen=True)
class RunFiles:
    """What one run reads. `prefix` names the traces `PREFIX.<rank>.et` of `ranks` ranks.

    Analytical: `network` is the network.yml. ns-3: it is the configuration (lines `KEY value`), `physical` the
    topology text, `logical` the sizes of the logical dimensions. `groups` and `memory` may be left out. `flags` are
    further command-line flags, as they are given.
    """

    prefix: Path
    ranks: int
    system: Path
    network: Path
    physical: Path | None = None
    logical: tuple[int, ...] = ()
    groups: Path | None = None
    memory: Path | None = None
    flags: tuple[str, ...] = ()
    replaced: Mapping[int, Path] = field(default_factory=dict)
    """Traces to take in place of those of the prefix, by rank."""

    def trace(self, rank: int) -> Path:
        """The trace of a rank."""
        if rank in self.replaced:
            return self.replaced[rank]
        return self.prefix.parent / f"{self.prefix.name}.{rank}.et"


def stage(files: RunFiles, engine: Engine, folder: Path, operations: bool) -> list[str]:
    """Copy the inputs into `folder` and return the flags. `operations` has the program log the time of each node.

    Raises:
        BadInputError: a file cannot be read.
        OSError: the folder cannot be written.
    """
    for rank in range(files.ranks):
        if files.trace(rank).is_file():  # a program that misses one says so itself
            shutil.copyfile(files.trace(rank), folder / f"{_PREFIX}.{rank}.et")  # it is opened for appending
    (folder / _SYSTEM).write_text(_system(files.system, operations), encoding="utf-8")
    _copy_or_write(files.memory, folder / _MEMORY, json.dumps(_NO_MEMORY))
    level = "debug" if operations else "info"
    (folder / _LOGGING).write_text(_LOGGING_TEXT.format(file=OPERATIONS_FILE, level=level), encoding="utf-8")
    flags = [
        f"--workload-configuration={_PREFIX}",
        f"--system-configuration={_SYSTEM}",
        f"--remote-memory-configuration={_MEMORY}",
        f"--logging-configuration={_LOGGING}",
    ]
    if files.groups is not None:
        _copy_or_write(files.groups, folder / _GROUPS, "")
        flags.append(f"--comm-group-configuration={_GROUPS}")
    flags += _stage_ns3(files, folder) if engine == "ns3" else _stage_analytical(files, folder)
    return [*flags, *files.flags]


def _stage_analytical(files: RunFiles, folder: Path) -> list[str]:
    _copy_or_write(files.network, folder / _YML, "")
    return [f"--network-configuration={_YML}"]


def _stage_ns3(files: RunFiles, folder: Path) -> list[str]:
    (folder / _CONFIG).write_text(ns3_configuration(_text(files.network)), encoding="utf-8")
    for name in ("flow.txt", "trace.txt"):
        (folder / name).write_text(_NOTHING, encoding="utf-8")
    if files.physical is not None:
        _copy_or_write(files.physical, folder / _PHYSICAL, "")
    logical = {"logical-dims": [str(size) for size in files.logical or (files.ranks,)]}
    (folder / _LOGICAL).write_text(json.dumps(logical), encoding="utf-8")
    return [f"--network-configuration={_CONFIG}", f"--logical-topology-configuration={_LOGICAL}"]


def ns3_configuration(text: str) -> str:
    """An ns-3 configuration with the files of the run folder in place of those it names; other lines stay."""
    kept = [line for line in text.splitlines() if line.split() and line.split()[0] not in _OUTPUTS]
    return "\n".join([*kept, *(f"{key} {name}" for key, name in _OUTPUTS.items())]) + "\n"


def _system(path: Path, operations: bool) -> str:
    """The text of a system file, with `trace-enabled` set; unchanged where it is no JSON object."""
    text = _text(path)
    try:
        content: Any = json.loads(text)
    except ValueError:
        return text
    if not operations or not isinstance(content, dict):
        return text
    return json.dumps({**content, "trace-enabled": 1}, indent=1)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} cannot be read: {error}", "name the file that ASTRA-sim would read") from error


def _copy_or_write(source: Path | None, target: Path, text: str) -> None:
    target.write_text(text if source is None else _text(source), encoding="utf-8")
