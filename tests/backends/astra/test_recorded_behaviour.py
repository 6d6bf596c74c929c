"""Every recorded run with a bad input, replayed by the stand-in: the driver accepts exactly the runs with a result."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from backends.astra.driver import AstraRun, drive
from backends.astra.process import Limits
from backends.astra.programs import ANALYTICAL, NS3, Engine
from tests.backends.astra import cases
from tests.backends.astra.rows import Row, ns3_config, rows, run_files, standin

_LIMITS = Limits(wall_s=20.0, linger_s=0.2, grace_s=0.05)
_SHORT = replace(_LIMITS, wall_s=0.5)
pytestmark = pytest.mark.shared


def _replay(row: Row, inputs: Path, folder: Path) -> AstraRun:
    ns3 = row.backend == "ns3"
    case = (cases.NS3 if ns3 else cases.ANALYTICAL)[row.case]
    files = run_files(inputs, case, ns3_config(inputs, folder, case.edits) if ns3 else None)
    present = replace(
        files,
        system=_there(files.system, inputs / "bad/sys.json"),
        network=_there(files.network, inputs / "bad/net.yml"),
        physical=_there(files.physical, inputs / "ns3/8_nodes_1_switch_400Gbps_0.0005ms.txt") if ns3 else None,
        groups=_there(files.groups, inputs / "bad/cg2.json") if files.groups else None,
        memory=_there(files.memory, inputs / "bad/pernpu.json") if files.memory else None,
    )
    engine: Engine = "ns3" if ns3 else "aware" if row.backend == "congestion_aware" else "unaware"
    program = standin(row, folder, NS3 if ns3 else ANALYTICAL)
    return drive(present, program, engine, _SHORT if row.hangs else _LIMITS, keep=folder / "run")


def _there(path: Path | None, otherwise: Path) -> Path:
    """`path` if it exists: what is not there cannot be staged, and is a case of its own below."""
    return path if path is not None and path.is_file() else otherwise


def _expects_result(row: Row, ranks: int) -> bool:
    return row.finished == ranks and row.wall > 0


def _recorded() -> list[Row]:
    try:
        return [*rows("astra_bad_inputs.tsv"), *rows("ns3_bad_inputs.tsv")]
    except pytest.skip.Exception:
        return []


@pytest.mark.parametrize("row", _recorded(), ids=lambda row: f"{row.backend}: {row.case}")
def test_a_run_is_accepted_exactly_if_every_rank_reported_its_end(row: Row, inputs: Path, tmp_path: Path) -> None:
    ranks = (cases.NS3 if row.backend == "ns3" else cases.ANALYTICAL)[row.case].ranks
    found = _replay(row, inputs, tmp_path)
    if row.case.startswith("flow.txt missing"):  # the driver writes it: as if nothing had been wrong
        row = rows("ns3_bad_inputs.tsv")[0]
    assert found.verdict.accepted == _expects_result(row, ranks), found.verdict
    assert len(found.reports) == row.finished
    if found.verdict.accepted:
        assert found.wall_ns == row.wall
        crashed = row.code < 0 and not row.hangs
        assert any("ended with SIG" in note for note in found.verdict.notes) == crashed
    elif row.finished == ranks:
        assert "0 cycles" in found.verdict.reason
    else:
        assert f"{row.finished} of {ranks} ranks finished" in found.verdict.reason
        _names_the_cause(found, row)


def _names_the_cause(found: AstraRun, row: Row) -> None:
    reason = found.verdict.reason
    if row.hangs:
        assert "so it was ended" in reason
    elif row.code < 0:
        assert {-6: "SIGABRT", -8: "SIGFPE", -11: "SIGSEGV"}[row.code] in reason
    else:
        assert f"exit code {row.code}" in reason
    told = row.message.split("[critical] ")[-1] if "[critical]" in row.message else ""
    if told and "node id" not in told and "unreleased" not in told:
        assert told.split("before call ")[-1].strip() in reason
    if "node id" in told:
        assert f"{told.rsplit(' ', 1)[1]} on rank 0" in reason


@pytest.mark.parametrize("finished", [0, 2, 4])
def test_a_hang_is_ended_with_everything_it_started(finished: int, inputs: Path, tmp_path: Path) -> None:
    row = Row("hang", "congestion_aware", -9, finished, 10, "[2026-11-30 08:28:02.707] [system] [info] spinning")
    started = time.monotonic()
    files = run_files(inputs, cases.Case())
    found = drive(files, standin(row, tmp_path, ANALYTICAL), "aware", _SHORT, keep=tmp_path / "run")
    assert time.monotonic() - started < 5
    child = int((tmp_path / "run/child.pid").read_text(encoding="utf-8"))
    assert _is_gone(child)
    assert found.ended.ending == ("lingering" if finished == 4 else "time limit")
    assert found.verdict.accepted == (finished == 4)
    if finished == 4:
        assert "did not end by itself" in found.verdict.notes[0]


def _is_gone(pid: int) -> bool:
    """Whether a killed process goes within two seconds: the kernel takes its moment."""
    for _ in range(100):
        if not _runs(pid):
            return True
        time.sleep(0.02)
    return False


def _runs(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
        return state != "Z"
    return False


def test_nothing_of_a_run_stays_behind(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    row = Row("ok", "congestion_aware", 0, 4, 10, "")
    found = drive(run_files(inputs, cases.Case()), standin(row, tmp_path, ANALYTICAL), "aware", _LIMITS)
    assert found.verdict.accepted
    assert list((tmp_path / "scratch").iterdir()) == []
