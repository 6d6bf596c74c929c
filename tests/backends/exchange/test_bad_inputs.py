"""Every malformed input that was tried on the real binaries is refused in one line, or accepted for a stated reason."""

from __future__ import annotations

import csv
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

from backends.exchange.validate import check, load_inputs, require
from runs.errors import BadInputError
from tests.reference import shared_path

pytestmark = pytest.mark.shared


class Case(NamedTuple):
    """Files of one row in `bad/`; `says` are words of the refusal, empty where the run is accepted."""

    says: str = ""
    et: str = "ok"
    system: str = "sys.json"
    net: str = "net.yml"
    groups: str | None = None
    memory: str | None = None


# Words of the refusal come from the row: the file, the node or the rank at fault.
CASES = {
    "baseline ok": Case(),
    "missing --workload-configuration prefix (no such ET)": Case("nope.0.et is missing", "nope"),
    "one rank ET missing (rank 3)": Case("miss.3.et is missing", "miss"),
    "npus_count larger than ET files (8 vs 4)": Case("ok.4.et is missing", net="net8.yml"),
    "npus_count smaller than ET files (2 vs 4)": Case(net="net2.yml"),
    "npus_count 1": Case("npus_count of dimension 0 is 1", net="net1.yml"),
    "malformed yml": Case("bad.yml is no YAML", net="bad.yml"),
    "yml missing key latency": Case("latency", net="bad2.yml"),
    "yml scalar instead of list": Case("lists", net="bad3.yml"),
    "yml unknown topology Torus2D": Case("Torus2D", net="bad4.yml"),
    "network file missing": Case("none.yml", net="none.yml"),
    "network yml is empty": Case("empty.yml", net="empty.yml"),
    "system json malformed": Case("badsys.json is no JSON", system="badsys.json"),
    "system json missing file": Case("none.json", system="none.json"),
    "system json: no all-reduce-implementation": Case("all-reduce-implementation is missing", system="s1.json"),
    "system json: 2 impls for 1-dim network": Case("2 entries, the network has 1", system="s2.json"),
    "system json: 1 impl for 2-dim network": Case("1 entries, the network has 2", net="n2d.yml"),
    "2-dim network on congestion_aware": Case(system="sys2d.json", net="n2d.yml"),
    'system json: unknown impl "tree"': Case("'tree'", system="s3.json"),
    "system json: impl is a string not list": Case("not a list", system="s4.json"),
    "system json: no preferred-dataset-splits": Case("preferred-dataset-splits", system="s5.json"),
    "system json: no scheduling-policy": Case(system="s6.json"),
    "system json: scheduling-policy EXPLICIT": Case(system="s7.json"),
    "system json: unknown key typo": Case(system="s8.json"),
    "system json: active-chunks 0": Case("active-chunks-per-dimension is 0", system="s9.json"),
    "system json: no active-chunks": Case(system="s10.json"),
    "system json: endpoint-delay 0": Case("endpoint-delay is 0", system="s11.json"),
    "remote memory json missing": Case("none.json", memory="none.json"),
    "remote memory json malformed": Case("badmem.json is no JSON", memory="badmem.json"),
    "pg_name set but no comm-group file": Case("node 1 (AllReduce_1048576): group 1 is not there", "grp"),
    "pg_name set, comm-group file lacks group 2": Case("grp.2.et: node 1", "grp", groups="cg1.json"),
    "pg_name set, good comm groups": Case(et="grp", groups="cg2.json"),
    "comm group ids strings inside": Case("no list of ranks", "grp", groups="cg3.json"),
    "comm group name non numeric": Case("'tp0'", "grp", groups="cg4.json"),
    "comm group id 0 in file": Case("'0'", "grp", groups="cg5.json"),
    "rank not member of the group it uses": Case("rank 3 is no member of group 2", "grp", groups="cg6.json"),
    "group rank outside npus": Case("group 2 has rank 9, the network has 4", "grp", groups="cg7.json"),
    "comm-group file missing path": Case("none.json", "grp", groups="none.json"),
    "comm-group file malformed": Case("cg8.json is no JSON", "grp", groups="cg8.json"),
    "comm-group file path contains the word empty": Case("`empty`", "grp", groups="cg_nonempty.json"),
    "subgroup + doubleBinaryTree 1-dim": Case("doubleBinaryTree within group", "grp", "s12.json", groups="cg2.json"),
    "subgroup + direct 1-dim": Case(et="grp", system="s13.json", groups="cg2.json"),
    "halvingDoubling with 6 ranks (non power of 2)": Case("power of two", "ok6", "s_halvingDoubling.json", "n6.yml"),
    "doubleBinaryTree with 6 ranks (non power of 2)": Case("power of two", "ok6", "s_doubleBinaryTree.json", "n6.yml"),
    "direct with 6 ranks (non power of 2)": Case("", "ok6", "s_direct.json", "n6.yml"),
    "impl name oneRing": Case(system="s_oneRing.json"),
    "impl name oneDirect": Case(system="s_oneDirect.json"),
    "impl name oneHalvingDoubling": Case(system="s_oneHalvingDoubling.json"),
    "impl name direct2": Case(system="s_direct2.json"),
    "impl name directx": Case("'directx'", system="s_directx.json"),
    "mismatch: only ranks 0-2 call the AllReduce": Case("rank 3 runs 1 fewer", "mm"),
    "mismatched sizes across ranks": Case("fewer than others", "ms"),
    "mismatched order of 2 collectives": Case("as collective 1 of group world", "mo"),
    "send without recv": Case("sent but never received", "snr"),
    "recv without send": Case("received but never sent", "rns"),
    "send/recv different tag": Case("never", "srt"),
    "send/recv different size": Case("bytes here", "srs"),
    "send to self": Case("sends to itself", "sself"),
    "send to rank out of range": Case("comm_dst is", "soor"),
    "cyclic dependency": Case("in a cycle", "cyc"),
    "partial cycle (one free node)": Case("in a cycle", "cyc2"),
    "dependency on a missing node id": Case("depends on node 77", "dmn"),
    "all nodes depend on missing id": Case("depends on node 77", "dmn2"),
    "duplicate node ids": Case("2 nodes have the id 1", "dup"),
    "no nodes in ET (metadata only)": Case("no nodes", "nono"),
    "empty (0 byte) ET": Case("zero.0.et is empty", "zero"),
    "truncated ET rank 2": Case("trunc.2.et: byte 80", "trunc"),
    "JSON text instead of protobuf": Case("json.0.et: byte 0", "json"),
    "comm_size 0": Case(et="z"),
    "comm_size 1 byte": Case(et="z1"),
    "AllGather comm_size 0": Case("all-gather of 0 bytes", "zag"),
    "comm_size 8 GiB": Case(et="z8"),
    "AllGather comm_size 1 GiB per rank": Case(et="zag8"),
    "no comm_size attr": Case("comm_size is missing", "nocs"),
    "no is_cpu_op attr on collective": Case(et="nocpu"),
    "comm_type REDUCE": Case("comm_type 1", "ctREDUCE"),
    "comm_type BROADCAST": Case(et="ctBROADCAST"),
    "comm_type GATHER": Case("comm_type 3", "ctGATHER"),
    "comm_type BARRIER": Case("comm_type 9", "ctBARRIER"),
    "comp node, roofline off, duration 0 (silent ~0 time)": Case("would take no time", "c0"),
    "comp node, roofline on": Case(et="c0", system="sr.json"),
    "comp node, roofline on, peak-perf missing": Case("needs peak-perf", "c0", "sr2.json"),
    "comp node, roofline on but keys order irrelevant, tensor_size 0": Case("would take no time", "ct0", "sr3.json"),
    "mem load node with NO_MEMORY_EXPANSION": Case("no remote memory", "ml"),
    "mem load node with PER_NPU_MEMORY_EXPANSION": Case(et="ml", memory="pernpu.json"),
    "mem load + comp with PER_NPU_MEMORY_EXPANSION": Case(et="mlc", memory="pernpu.json"),
    "metadata node": Case("METADATA cannot run", "md"),
    "cpu op + gpu comp": Case(et="cpu"),
    "two free collectives same rank (serialised?)": Case(et="two"),
    "unsupported collective (BARRIER) as 2nd node": Case("node 2", "bar2"),
    "comp without num_ops as 2nd node, roofline on": Case("node 2 (comp): attribute num_ops", "nonum", "sr3.json"),
    "missing comm group on 2nd node": Case("node 2 (AllReduce_1048576): group 7", "miss2", groups="cg2.json"),
    "group of one rank": Case(et="g1", groups="cgs.json"),
    "group ranks listed in another order on the file": Case(et="grp9", groups="cgo.json"),
    "pg_name as int32 not string": Case("pg_name is the int32", "pgint", groups="cg2.json"),
    "comm_size as double": Case("comm_size is a double", "fl"),
    "rank uses 2 groups for the same collective type, 1-dim network (double free)": Case(et="two2", groups="cg22.json"),
    "involved_dim bool_list longer than dims (1-dim)": Case(et="invd"),
    "involved_dim [T,F] on 2-dim": Case(et="invd", system="sys2d.json", net="n2d.yml"),
}
FLAGS = {"unknown CLI flag", "logging-folder missing parent", "comm-scale 2 (ignored?)", "injection-scale 10"}
FLAGS |= {"num-queues-per-dim 4", "rendezvous-protocol"}
"""Rows about flags of the binaries; no file is at fault."""
ACCEPTED = {
    "npus_count smaller than ET files (2 vs 4)": "more traces",
    "2-dim network on congestion_aware": "congestion-aware binary",
    "system json: unknown key typo": "prefered-dataset-split is no key",
    "comm_size 0": "comm_size 0 counts as 4",
    "comm_size 1 byte": "comm_size 1 counts as 4",
    "comm_type BROADCAST": "no time for a broadcast",
    "cpu op + gpu comp": "host operations",
    "group of one rank": "has one rank",
}
"""Accepted although a binary refuses it or quietly does something else: the finding that says so."""


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("astra")
    with tarfile.open(shared_path("data/astra/inputs.tar.gz")) as tar:
        members = [member for member in tar.getmembers() if member.name.removeprefix("./").startswith("bad/")]
        tar.extractall(folder, members, filter="data")
    return folder / "bad"


def findings(bad: Path, case: Case) -> list[str]:
    inputs = load_inputs(
        bad / case.et / case.et,
        bad / case.system,
        network=bad / case.net,
        comm_group=bad / case.groups if case.groups else None,
        remote_memory=bad / case.memory if case.memory else None,
    )
    found = check(inputs)
    require(found)
    return [str(one) for one in found]


def test_every_row_is_here() -> None:
    with shared_path("data/astra/astra_bad_inputs.tsv").open(newline="", encoding="utf-8") as file:
        rows = {row["case"] for row in csv.DictReader(file, delimiter="\t")}
    assert rows == CASES.keys() | FLAGS


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.says])
def test_refused_with_file_and_reason(name: str, bad: Path) -> None:
    with pytest.raises(BadInputError) as error:
        findings(bad, CASES[name])
    assert CASES[name].says in error.value.message
    assert "\n" not in error.value.message
    assert error.value.hint


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.says])
def test_accepted(name: str, bad: Path) -> None:
    found = findings(bad, CASES[name])
    if name in ACCEPTED:
        assert any(ACCEPTED[name] in one for one in found)


def test_what_the_binary_runs_is_accepted_and_the_rest_refused(bad: Path) -> None:
    """Where our verdict differs from both analytical binaries, it is listed above with its reason."""
    with shared_path("data/astra/astra_bad_inputs.tsv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    runs = {row["case"] for row in rows if row["verdict"] == "ok"} - FLAGS
    stricter = {name for name in runs if CASES[name].says}
    assert stricter == {
        "system json: 1 impl for 2-dim network",  # runs in one dimension only: too fast
        "send without recv",
        "send to self",
        "partial cycle (one free node)",  # nodes in the cycle never run
        "duplicate node ids",  # one of the two never runs
        "comp node, roofline off, duration 0 (silent ~0 time)",
        "comp node, roofline on but keys order irrelevant, tensor_size 0",
    }
    milder = {name for name, case in CASES.items() if not case.says} - runs
    assert milder <= ACCEPTED.keys()
