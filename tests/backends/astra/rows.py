"""The recorded rows of bad inputs, the archive of inputs behind them, and run files made from both."""

from __future__ import annotations

import csv
import sys
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from backends.astra.programs import Program
from backends.astra.staging import RunFiles
from tests.backends.astra.cases import Case
from tests.reference import shared_path

_WANTED = ("bad/", "ns3/", "system/", "network/", "hand/ddp8", "hand/gpipe", "et/AllReduce_1048576B")
STANDIN = Path(__file__).parent / "standin.py"


@dataclass(frozen=True)
class Row:
    """One recorded run. `code` is negative for a signal; -9 means that it never ended and was killed."""

    case: str
    backend: str
    code: int
    finished: int
    wall: int
    message: str

    @property
    def hangs(self) -> bool:
        return self.code == -9


@cache
def rows(table: str) -> tuple[Row, ...]:
    """The rows of `astra_bad_inputs.tsv` or `ns3_bad_inputs.tsv`."""
    with shared_path(f"data/astra/{table}").open(encoding="utf-8", newline="") as stream:
        return tuple(_row(row) for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def _row(row: dict[str, str]) -> Row:
    wall = row.get("wall_cycles") or row.get("wall_ns") or "0"
    message = row.get("last_stderr_or_stdout") or row.get("message") or ""
    return Row(row["case"], row.get("backend", "ns3"), int(row["exit"]), int(row["finished_ranks"]), int(wall), message)


def unpack_inputs(folder: Path) -> Path:
    """The part of the archive of inputs that the tests use, unpacked into `folder`."""
    with tarfile.open(shared_path("data/astra/inputs.tar.gz")) as archive:
        wanted = [one for one in archive if one.name.removeprefix("./").startswith(_WANTED)]
        archive.extractall(folder, wanted, filter="data")
    lossy = (folder / "ns3/8_nodes_1_switch_400Gbps_0.0005ms.txt").read_text(encoding="utf-8").splitlines()
    cables = [" ".join([*line.split()[:4], "0.0001"]) for line in lossy[2:] if line.strip()]
    (folder / "lossy.txt").write_text("\n".join([*lossy[:2], *cables]) + "\n", encoding="utf-8")
    return folder


def ns3_config(inputs: Path, folder: Path, edits: tuple[tuple[str, str], ...] = (), cc: str = "0") -> Path:
    """The recorded ns-3 configuration, its places filled in, `edits` in place of its values."""
    text = (inputs / "ns3/config_template.txt").read_text(encoding="utf-8")
    values = {"qcn": "1", "mtu": "1000", "stop": "40000000000000.00", "cc": cc, "gt": "0", "trace": "0", "d": "."}
    for name, value in {**values, "topo": "physical.txt"}.items():
        text = text.replace("{" + name + "}", value)
    rows = dict(line.split(maxsplit=1) for line in text.splitlines() if line.strip()) | dict(edits)
    path = folder / "config.txt"
    path.write_text("".join(f"{key} {value}\n" for key, value in rows.items()), encoding="utf-8")
    return path


def run_files(inputs: Path, case: Case, config: Path | None = None) -> RunFiles:
    """The files of a case; `config` makes it one of ns-3, whose network is then the physical topology."""
    return RunFiles(
        prefix=inputs / case.prefix, ranks=case.ranks, system=inputs / case.system,
        network=config or inputs / case.network, physical=inputs / case.network if config else None,
        logical=(case.ranks,) if config else (), groups=inputs / case.groups if case.groups else None,
        memory=inputs / case.memory if case.memory else None, flags=case.flags,
    )  # fmt: skip


def standin(row: Row, folder: Path, backend: str) -> Program:
    """A program that does what was recorded of `row`."""
    lines = _behaviour(row)
    if row.case.startswith("flow.txt missing"):
        lines += _behaviour(rows("ns3_bad_inputs.tsv")[0])
    path = folder / "row.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return Program(backend, (sys.executable, "-I", "-S", str(STANDIN), str(path)), source="the test")


def _behaviour(row: Row) -> list[str]:
    return [str(row.code), str(row.finished), str(row.wall), row.message]
