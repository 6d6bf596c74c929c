"""Every recorded bad input, given to the backend whole: what it refuses, runs, mends, notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.astra.process import Limits
from backends.astra.programs import ANALYTICAL, NS3
from backends.astra.simulate import AstraResult, InputPaths, simulate_files
from runs.errors import BadInputError
from tests.backends.astra import cases
from tests.backends.astra.rows import Row, ns3_config, rows, standin

pytestmark = pytest.mark.shared
_LIMITS = Limits(wall_s=20.0, linger_s=0.2, grace_s=0.05)

RUNS: dict[str, str] = {
    "baseline ok": "",
    "npus_count smaller than ET files (2 vs 4)": "2 more traces",
    "system json: no scheduling-policy": "",
    "system json: scheduling-policy EXPLICIT": "",
    "system json: unknown key typo": "prefered-dataset-split is no key",
    "system json: no active-chunks": "",
    "pg_name set, good comm groups": "",
    "subgroup + direct 1-dim": "",
    "direct with 6 ranks (non power of 2)": "",
    "impl name oneRing": "",
    "impl name oneDirect": "",
    "impl name oneHalvingDoubling": "",
    "impl name direct2": "",
    "comm_size 0": "counts as 4",
    "comm_size 1 byte": "counts as 4",
    "comm_size 8 GiB": "",
    "AllGather comm_size 1 GiB per rank": "",
    "no is_cpu_op attr on collective": "",
    "comm_type BROADCAST": "broadcast",
    "comp node, roofline on": "",
    "mem load node with PER_NPU_MEMORY_EXPANSION": "statistics of ranks are missing",
    "mem load + comp with PER_NPU_MEMORY_EXPANSION": "statistics of ranks are missing",
    "cpu op + gpu comp": "statistics of ranks are missing",
    "two free collectives same rank (serialised?)": "",
    "injection-scale 10": "endpoint delay",
    "num-queues-per-dim 4": "halves the chunks",
    "rendezvous-protocol": "",
    "group ranks listed in another order on the file": "",
    "rank uses 2 groups for the same collective type, 1-dim network (double free)": "can crash at its end",
    "involved_dim bool_list longer than dims (1-dim)": "",
    "involved_dim [T,F] on 2-dim": "",
    "baseline": "",
    "flow.txt missing (as in the stock repo)": "",
    "logical dims 4 < ET files 8 (fine, uses ranks 0-3)": "last devices stay idle",
    "no switch: full mesh host-host links, ring": "",
    "no switch: full mesh host-host links, direct": "",
    "no switch: ring host-host, ring algorithm": "",
    "mixed NIC speeds 400/100": "",
    "two parallel links host-switch": "",
    "comm groups ok": "",
    "CC_MODE 99": "CC_MODE 99 is no congestion control",
    "CC_MODE 10 HPCC-PINT": "",
    "endpoint-delay 0": "",
}
"""Inputs that are run and accepted, with what the result must say. All others are refused before anything starts."""
ONE_DIMENSION = ("involved_dim [T,F] on 2-dim",)
"""Refused by the congestion-aware program, which knows one dimension."""


def _simulate(row: Row, inputs: Path, folder: Path) -> AstraResult:
    ns3 = row.backend == "ns3"
    case = (cases.NS3 if ns3 else cases.ANALYTICAL)[row.case]
    logical = inputs / (case.logical or f"ns3/logical_{case.ranks}.json") if ns3 else None
    paths = InputPaths(
        inputs / case.prefix, inputs / case.system, network=None if ns3 else inputs / case.network,
        physical=inputs / case.network if ns3 else None, logical=logical,
        comm_group=inputs / case.groups if case.groups else None,
        remote_memory=inputs / case.memory if case.memory else None,
        ns3_config=ns3_config(inputs, folder, case.edits) if ns3 else None, flags=case.flags,
    )  # fmt: skip
    program = standin(row, folder, NS3 if ns3 else ANALYTICAL)
    engine = None if ns3 else "aware" if row.backend == "congestion_aware" else "unaware"
    return simulate_files(paths, program, engine=engine, limits=_LIMITS, operations=False, keep=folder / "run")  # type: ignore[arg-type]


def _recorded() -> list[Row]:
    try:
        return [*rows("astra_bad_inputs.tsv"), *rows("ns3_bad_inputs.tsv")]
    except pytest.skip.Exception:
        return []


def _name(row: Row) -> str:
    return f"{row.backend}: {row.case}"


def _is_run(row: Row) -> bool:
    if row.backend == "congestion_aware" and row.case in ONE_DIMENSION:
        return False
    return row.case in RUNS and not (row.backend != "ns3" and row.case == "endpoint-delay 0")


@pytest.mark.parametrize("row", [row for row in _recorded() if _is_run(row)], ids=_name)
def test_what_has_a_result_is_run_and_says_what_is_odd(row: Row, inputs: Path, tmp_path: Path) -> None:
    found = _simulate(row, inputs, tmp_path)
    expected = rows("ns3_bad_inputs.tsv")[0].wall if row.case.startswith("flow.txt missing") else row.wall
    assert found.run.wall_ns == expected
    said = " | ".join(found.notes)
    assert RUNS[row.case] in said
    assert ("results are complete" in said) == (row.code != 0 and not row.case.startswith("flow.txt missing"))
    assert row.backend == "ns3" or "GiB/s" in said


@pytest.mark.parametrize("row", [r for r in _recorded() if not _is_run(r)], ids=_name)
def test_what_has_no_result_is_refused_before_anything_starts(row: Row, inputs: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as refusal:
        _simulate(row, inputs, tmp_path)
    assert not (tmp_path / "run").exists()
    assert "\n" not in refusal.value.message
    assert refusal.value.hint
