"""ASTRA-sim's own programs, where the machine has them: recorded runs are repeated to the last cycle.

ASTRA_SIM_ANALYTICAL=… ASTRA_SIM_NS3=… pytest -m astra_sim tests/backends/astra -n 0
"""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.astra.driver import drive
from backends.astra.process import Limits
from backends.astra.programs import ANALYTICAL, NS3
from backends.astra.simulate import InputPaths, simulate_files
from tests.backends.astra import cases
from tests.backends.astra import traces as make
from tests.backends.astra.conftest import real_program
from tests.backends.astra.rows import ns3_config, rows, run_files

pytestmark = [pytest.mark.astra_sim, pytest.mark.shared]
_NS3_QUICK = (
    "baseline", "no switch: full mesh host-host links, ring", "mixed NIC speeds 400/100", "comm groups ok",
    "send to self",
    "recv without send", "collective over missing group", "endpoint-delay 0",
)  # fmt: skip


def test_recorded_bad_inputs_do_what_was_recorded(inputs: Path, tmp_path: Path) -> None:
    program = real_program(ANALYTICAL)
    wrong = []
    for number, row in enumerate(rows("astra_bad_inputs.tsv")):
        case = cases.ANALYTICAL[row.case]
        files = run_files(inputs, case)
        named = (files.system, files.network, files.groups, files.memory)
        if any(path is not None and not path.is_file() for path in named) or "empty" in row.case:
            continue  # a missing file cannot be staged; the word is not in staged paths
        engine = program.engine("aware" if row.backend == "congestion_aware" else "unaware")
        found = drive(files, program, engine, Limits(wall_s=30), keep=tmp_path / str(number))
        if (len(found.reports), found.wall_ns) != (row.finished, row.wall):
            wrong.append((row.case, row.backend, len(found.reports), found.wall_ns))
    assert wrong == []


def test_recorded_bad_inputs_of_ns3_do_what_was_recorded(inputs: Path, tmp_path: Path) -> None:
    program = real_program(NS3)
    for row in rows("ns3_bad_inputs.tsv"):
        if row.case in _NS3_QUICK:
            folder = tmp_path / row.case.replace("/", "-")
            folder.mkdir()
            case = cases.NS3[row.case]
            files = run_files(inputs, case, ns3_config(inputs, folder, case.edits))
            found = drive(files, program, "ns3", Limits(wall_s=5.0 if row.hangs else 60.0), keep=folder / "run")
            assert (len(found.reports), found.wall_ns) == (row.finished, row.wall), row.case


def test_the_timeline_agrees_with_what_the_program_reports(inputs: Path) -> None:
    paths = InputPaths(
        inputs / "hand/ddp8/ddp8",
        inputs / "system/train_ring_1d_a2adirect.json",
        network=inputs / "network/Switch8_300.yml",
    )
    found = simulate_files(paths, real_program(ANALYTICAL))
    raw = found.raw()
    for rank, report in found.run.reports.items():
        own = raw.figures[rank]
        assert (own.wall, own.compute, own.operations) == (report.wall_ns, report.compute_ns, report.comm_ns)


def test_a_lone_group_is_taken_out_and_the_rest_runs(tmp_path: Path) -> None:
    ranks = [[make.work(1, 7), make.collective(2, 4096, (1,), str(1 + rank)), make.collective(3, 4096, (2,))]
             for rank in range(4)]  # fmt: skip
    paths = make.write(tmp_path, ranks, groups={str(1 + rank): [rank] for rank in range(4)})
    found = simulate_files(paths, real_program(ANALYTICAL))
    assert "4 collectives of a single rank" in " ".join(found.notes)
    assert {span.node.id for span in found.spans[0]} == {1, 3}
