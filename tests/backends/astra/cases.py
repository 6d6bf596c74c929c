"""The inputs behind each row of the tables of bad inputs, as paths inside the archive of inputs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """Relative to the archive: traces, system, network (analytical yml, or ns-3 topology), groups, memory."""

    prefix: str = "bad/ok/ok"
    ranks: int = 4
    system: str = "bad/sys.json"
    network: str = "bad/net.yml"
    groups: str | None = None
    memory: str | None = None
    logical: str | None = None
    flags: tuple[str, ...] = ()
    edits: tuple[tuple[str, str], ...] = ()
    """ns-3: configuration keys and values that differ from the template."""


def _et(name: str, **rest: object) -> Case:
    return Case(prefix=f"bad/{name}/{name}", **rest)  # type: ignore[arg-type]


def _system(name: str, **rest: object) -> Case:
    return Case(system=f"bad/{name}.json", **rest)  # type: ignore[arg-type]


_GROUPS, _SIX, _TWO_DIMS = "bad/cg2.json", "bad/n6.yml", "bad/n2d.yml"

ANALYTICAL: dict[str, Case] = {
    "baseline ok": Case(),
    "missing --workload-configuration prefix (no such ET)": Case(prefix="bad/nope"),
    "one rank ET missing (rank 3)": _et("miss"),
    "npus_count larger than ET files (8 vs 4)": Case(network="bad/net8.yml", ranks=8),
    "npus_count smaller than ET files (2 vs 4)": Case(network="bad/net2.yml", ranks=2),
    "npus_count 1": Case(network="bad/net1.yml", ranks=1),
    "malformed yml": Case(network="bad/bad.yml"),
    "yml missing key latency": Case(network="bad/bad2.yml"),
    "yml scalar instead of list": Case(network="bad/bad3.yml"),
    "yml unknown topology Torus2D": Case(network="bad/bad4.yml"),
    "network file missing": Case(network="bad/none.yml"),
    "network yml is empty": Case(network="bad/empty.yml"),
    "system json malformed": _system("badsys"),
    "system json missing file": _system("none"),
    "system json: no all-reduce-implementation": _system("s1"),
    "system json: 2 impls for 1-dim network": _system("s2"),
    "system json: 1 impl for 2-dim network": Case(network=_TWO_DIMS),
    'system json: unknown impl "tree"': _system("s3"),
    "system json: impl is a string not list": _system("s4"),
    "system json: no preferred-dataset-splits": _system("s5"),
    "system json: no scheduling-policy": _system("s6"),
    "system json: scheduling-policy EXPLICIT": _system("s7"),
    "system json: unknown key typo": _system("s8"),
    "system json: active-chunks 0": _system("s9"),
    "system json: no active-chunks": _system("s10"),
    "system json: endpoint-delay 0": _system("s11"),
    "remote memory json missing": Case(memory="bad/none.json"),
    "remote memory json malformed": Case(memory="bad/badmem.json"),
    "pg_name set but no comm-group file": _et("grp"),
    "pg_name set, comm-group file lacks group 2": _et("grp", groups="bad/cg1.json"),
    "pg_name set, good comm groups": _et("grp", groups=_GROUPS),
    "comm group ids strings inside": _et("grp", groups="bad/cg3.json"),
    "comm group name non numeric": _et("grp", groups="bad/cg4.json"),
    "comm group id 0 in file": _et("grp", groups="bad/cg5.json"),
    "rank not member of the group it uses": _et("grp", groups="bad/cg6.json"),
    "group rank outside npus": _et("grp", groups="bad/cg7.json"),
    "comm-group file missing path": _et("grp", groups="bad/none.json"),
    "comm-group file malformed": _et("grp", groups="bad/cg8.json"),
    "comm-group file path contains the word empty": _et("grp", groups="bad/cg_nonempty.json"),
    "subgroup + doubleBinaryTree 1-dim": _et("dbt", groups=_GROUPS, system="bad/s12.json"),
    "subgroup + direct 1-dim": _et("dbt", groups=_GROUPS, system="bad/s13.json"),
    "halvingDoubling with 6 ranks (non power of 2)": _et(
        "ok6", ranks=6, network=_SIX, system="bad/s_halvingDoubling.json"
    ),
    "doubleBinaryTree with 6 ranks (non power of 2)": _et(
        "ok6", ranks=6, network=_SIX, system="bad/s_doubleBinaryTree.json"
    ),
    "direct with 6 ranks (non power of 2)": _et("ok6", ranks=6, network=_SIX, system="bad/s_direct.json"),
    "impl name oneRing": _system("s_oneRing"),
    "impl name oneDirect": _system("s_oneDirect"),
    "impl name oneHalvingDoubling": _system("s_oneHalvingDoubling"),
    "impl name direct2": _system("s_direct2"),
    "impl name directx": _system("s_directx"),
    "mismatch: only ranks 0-2 call the AllReduce": _et("mm"),
    "mismatched sizes across ranks": _et("ms"),
    "mismatched order of 2 collectives": _et("mo"),
    "send without recv": _et("snr"),
    "recv without send": _et("rns"),
    "send/recv different tag": _et("srt"),
    "send/recv different size": _et("srs"),
    "send to self": _et("sself"),
    "send to rank out of range": _et("soor"),
    "cyclic dependency": _et("cyc"),
    "partial cycle (one free node)": _et("cyc2"),
    "dependency on a missing node id": _et("dmn"),
    "all nodes depend on missing id": _et("dmn2"),
    "duplicate node ids": _et("dup"),
    "no nodes in ET (metadata only)": _et("nono"),
    "empty (0 byte) ET": _et("zero"),
    "truncated ET rank 2": _et("trunc"),
    "JSON text instead of protobuf": _et("json"),
    "comm_size 0": _et("z"),
    "comm_size 1 byte": _et("z1"),
    "AllGather comm_size 0": _et("zag"),
    "comm_size 8 GiB": _et("z8"),
    "AllGather comm_size 1 GiB per rank": _et("zag8"),
    "no comm_size attr": _et("nocs"),
    "no is_cpu_op attr on collective": _et("nocpu"),
    "comm_type REDUCE": _et("ctREDUCE"),
    "comm_type BROADCAST": _et("ctBROADCAST"),
    "comm_type GATHER": _et("ctGATHER"),
    "comm_type BARRIER": _et("ctBARRIER"),
    "comp node, roofline off, duration 0 (silent ~0 time)": _et("c0"),
    "comp node, roofline on": _et("c0", system="bad/sr.json"),
    "comp node, roofline on, peak-perf missing": _et("c0", system="bad/sr2.json"),
    "comp node, roofline on but keys order irrelevant, tensor_size 0": _et("ct0", system="bad/sr3.json"),
    "mem load node with NO_MEMORY_EXPANSION": _et("ml"),
    "mem load node with PER_NPU_MEMORY_EXPANSION": _et("ml", memory="bad/pernpu.json"),
    "mem load + comp with PER_NPU_MEMORY_EXPANSION": _et("mlc", memory="bad/pernpu.json"),
    "metadata node": _et("md"),
    "cpu op + gpu comp": _et("cpu"),
    "two free collectives same rank (serialised?)": _et("two"),
    "unknown CLI flag": Case(flags=("--nope=1",)),
    "logging-folder missing parent": Case(flags=("--logging-folder=/nonexistent/a/b",)),
    "comm-scale 2 (ignored?)": Case(flags=("--comm-scale=2",)),
    "injection-scale 10": Case(flags=("--injection-scale=10",)),
    "num-queues-per-dim 4": Case(flags=("--num-queues-per-dim=4",)),
    "rendezvous-protocol": Case(flags=("--rendezvous-protocol=true",)),
    "unsupported collective (BARRIER) as 2nd node": _et("bar2"),
    "comp without num_ops as 2nd node, roofline on": _et("nonum", system="bad/sr.json"),
    "missing comm group on 2nd node": _et("miss2", groups="bad/cg2.json"),
    "group of one rank": _et("g1", groups="bad/cgs.json"),
    "group ranks listed in another order on the file": _et("grp9", groups="bad/cgo.json"),
    "pg_name as int32 not string": _et("pgint", groups=_GROUPS),
    "comm_size as double": _et("fl"),
    "rank uses 2 groups for the same collective type, 1-dim network (double free)": _et("two2", groups="bad/cg22.json"),
    "involved_dim bool_list longer than dims (1-dim)": _et("invd"),
    "2-dim network on congestion_aware": Case(network=_TWO_DIMS, system="bad/sys2d.json"),
    "involved_dim [T,F] on 2-dim": _et("invd", network=_TWO_DIMS, system="bad/sys2d.json"),
}

_EIGHT, _FOUR = "ns3/8_nodes_1_switch_400Gbps_0.0005ms.txt", "ns3/4_nodes_1_switch_400Gbps_0.0005ms.txt"
_RING = "system/ring_1d_s1_a1_localBWAware_LIFO_ed10.json"
_DIRECT = "system/direct_1d_s1_a1_localBWAware_LIFO_ed10.json"


def _ns3(network: str = _EIGHT, **rest: object) -> Case:
    given = {"prefix": "et/AllReduce_1048576B_8npus/AllReduce", "ranks": 8, "system": _RING, **rest}
    return Case(network=network, **given)  # type: ignore[arg-type]


def _ns3_et(name: str, **rest: object) -> Case:
    return Case(prefix=f"bad/{name}/{name}", network=_FOUR, **{"system": _RING, **rest})  # type: ignore[arg-type]


NS3: dict[str, Case] = {
    "baseline": _ns3(),
    "flow.txt missing (as in the stock repo)": _ns3(),
    "network config file missing": _ns3(network="ns3/none.txt"),
    "logical dims 16 > ET files 8": _ns3(network="ns3/16_nodes_1_switch_400Gbps_0.0005ms.txt", ranks=16),
    "logical dims 16, physical topology has 8 hosts": _ns3(prefix="et/AllReduce_1048576B_16npus/AllReduce", ranks=16),
    "logical dims 4 < ET files 8 (fine, uses ranks 0-3)": _ns3(ranks=4),
    "logical-dims as ints not strings": _ns3(logical="ns3/logical_int.json"),
    "logical json without logical-dims": _ns3(logical="ns3/logical_missing_key.json"),
    "link speed without KMIN/KMAX/PMAX entry (300Gbps)": _ns3("ns3/8_nodes_1_switch_300Gbps_0.0005ms.txt"),
    "switch is node 0, hosts 1..8": _ns3("ns3/hosts_after_switch.txt"),
    "no switch: full mesh host-host links, ring": _ns3("ns3/no_switch_fc8.txt"),
    "no switch: full mesh host-host links, direct": _ns3("ns3/no_switch_fc8.txt", system=_DIRECT),
    "no switch: ring host-host, direct algorithm (needs forwarding)": _ns3("ns3/ring8_nosw.txt", system=_DIRECT),
    "no switch: ring host-host, ring algorithm": _ns3("ns3/ring8_nosw.txt"),
    "mixed NIC speeds 400/100": _ns3("ns3/hetero.txt"),
    "error rate 1e-4 on links": _ns3("lossy.txt"),
    "two parallel links host-switch": _ns3("ns3/two_links.txt"),
    "mismatch: only ranks 0-2 call AllReduce": _ns3_et("mm"),
    "recv without send": _ns3_et("rns"),
    "recv without send + SIMULATOR_STOP_TIME 0.001": _ns3_et("rns", edits=(("SIMULATOR_STOP_TIME", "0.001"),)),
    "send/recv different size": _ns3_et("srs"),
    "send without recv": _ns3_et("snr"),
    "send to self": _ns3_et("sself"),
    "collective over missing group": _ns3_et("grp"),
    "comm groups ok": _ns3_et("grp", groups=_GROUPS),
    "comm_size 1 byte": _ns3_et("z1"),
    "comm_size 8 GiB (int32 overflow of msg)": _ns3_et("z8"),
    "CC_MODE 99": _ns3(edits=(("CC_MODE", "99"),)),
    "CC_MODE 10 HPCC-PINT": _ns3(edits=(("CC_MODE", "10"),)),
    "unknown CLI flag": _ns3_et("ok", flags=("--nope=1",)),
    "6 ranks halvingDoubling": _ns3(
        "ns3/6_nodes_1_switch_400Gbps_0.0005ms.txt", prefix="bad/ok6/ok6", ranks=6, system="bad/s_halvingDoubling.json"
    ),
    "6 ranks doubleBinaryTree": _ns3(
        "ns3/6_nodes_1_switch_400Gbps_0.0005ms.txt", prefix="bad/ok6/ok6", ranks=6, system="bad/s_doubleBinaryTree.json"
    ),
    "endpoint-delay 0": _ns3_et("ok", system="bad/s11.json"),
    "comp only ET": _ns3_et("c0"),
}
