"""How far the flow model is from the real NS-3 and from ASTRA-sim's analytical backend, row by row.

    python -m benchmarks.network_accuracy --data FOLDER [--table FILE] [--worst N] [--only PART]

FOLDER holds the reference results (`ns3_reference.csv`, …, `moe_study/ns3.csv`, `astra_reference.csv`) and their
inputs (`inputs.tar.gz`, `moe_study/inputs.tar.gz`). Rows that failed, are marked invalid or have no window are not
scored; the rest are, all of them.
"""

from __future__ import annotations

import csv
import tarfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from backends.network import Collective, CongestionControl, NetworkModel, NetworkParameters, Topology
from backends.network.formats import read_astra_network, read_ns3_topology
from benchmarks import comparing

CONTROLS = {"none(0)": "none", "none": "none", "DCQCN": "dcqcn", "HPCC": "hpcc", "TIMELY": "timely", "DCTCP": "dctcp"}
KINDS = {
    "AllReduce": "all_reduce",
    "AllToAll": "all_to_all",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
}
ALGORITHMS = {"doubleBinaryTree": "double_binary_tree_astra", "halvingDoubling": "halving_doubling"}
MODELS = {"Flash": (4096, 6), "GLM": (6144, 8), "KimiK3": (3584, 16), "V4Pro": (7168, 6)}
PEAK = 900e12
"""FLOP/s of a GPU of the study's rows."""
LAYER = 2_600_000
"""Packets times hops of a layer that is simulated in one piece; longer ones are the sum of their collectives."""
LARGE = 0.05
ROUNDING = 0.02
SMALL = 512
"""Bytes of packets that cross a hop in no time, as a message does not."""
CROSSING = "3.5 (store and forward: messages cross the other hops while others are sent, here afterwards)"
OVERLAP = "3.5 (store and forward, one message after another on a link: the crossing, and even shares of links)"
REDUCING = "3.3 (a reduction for each message: those of a further chunk wait for the rank to begin it)"
NS3_FILES = ("ns3_reference", "ns3_topology_reference", "ns3_window_reference", "ns3_congestion_reference")


@dataclass(frozen=True)
class Comparison:
    """One reference row: what it is, the reference and our answer in nanoseconds.

    `cause` is the known difference (an entry of section 3 of the reference's notes) that accounts for an error above
    LARGE, empty where there is none.
    """

    file: str
    kind: str
    label: str
    reference: float
    ours: float
    cause: str = ""

    @property
    def error(self) -> float:
        return abs(self.ours / self.reference - 1)

    def __str__(self) -> str:
        return f"{self.file}: {self.label}: {self.reference:.0f} ns, ours {self.ours:.0f} ns, {self.error:.1%}"


class Reference:
    """The reference folder: its tables, and its topologies read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._topologies: dict[tuple[str, str], Topology] = {}

    def rows(self, table: str) -> list[dict[str, str]]:
        with (self.folder / table).open(newline="", encoding="utf-8") as file:
            return [row for row in csv.DictReader(file) if row["status"] == "ok"]

    def text(self, archive: str, member: str) -> str:
        with tarfile.open(self.folder / archive) as tar:
            name = next(name for name in tar.getnames() if name.endswith(member))
            file = tar.extractfile(name)
            assert file is not None
            return file.read().decode()

    def topology(self, archive: str, member: str) -> Topology:
        if (archive, member) not in self._topologies:
            text = self.text(archive, member)
            is_yaml = member.endswith(".yml")
            found = read_astra_network(text, member).topology() if is_yaml else read_ns3_topology(text, member)
            self._topologies[archive, member] = found
        return self._topologies[archive, member]


def collectives(data: Reference, table: str) -> Iterator[Comparison]:
    """Single collectives on NS-3, as fluids."""
    for row in data.rows(f"{table}.csv"):
        if not row.get("variant", "stock").startswith("stock"):
            continue
        ranks = int(row["npus"])
        place = row.get("physical_topology") or f"{ranks}_nodes_1_switch_400Gbps_0.0005ms.txt"
        parameters = NetworkParameters.ns3(CongestionControl(CONTROLS[row["cc_name"]]))
        model = NetworkModel(data.topology("inputs.tar.gz", f"ns3/{place}"), parameters)
        algorithm = ALGORITHMS.get(row["algorithm"], row["algorithm"])
        group = (tuple(range(ranks)),)
        ours = model.time(Collective(KINDS[row["collective"]], int(row["size_bytes"]), group, algorithm)).seconds
        label = f"{row['collective']} {row['algorithm']} {row['size_bytes']} B {row['cc_name']} {place}"
        kind = f"{row['collective']} {row['algorithm']} {row['cc_name']}"
        yield Comparison(table, kind, label, float(row["wall_ns_max"]), ours * 1e9)


def serial_layers(data: Reference) -> Iterator[Comparison]:
    """The hand-written MoE layers on one switch: GPU time and the four collectives of a 512-token layer, one by one."""
    for row in data.rows("ns3_workload_reference.csv"):
        if not row["workload"].startswith("moe_"):
            continue
        tensor, expert = (int(part) for part in row["workload"].split("_")[1][2:].split("ep"))
        parameters = replace(
            NetworkParameters.ns3(CongestionControl(CONTROLS[row["cc_name"]])), reduce_bandwidth=3.35e12
        )
        ranks = tensor * expert
        place = f"ns3/{ranks}_nodes_1_switch_400Gbps_0.0005ms.txt"
        model = NetworkModel(data.topology("inputs.tar.gz", place), parameters)
        algorithm = ALGORITHMS.get(row["algorithm"], row["algorithm"])
        traffic = _layer(512, 2048, 4, tensor, expert, algorithm, divisor=tensor)
        ours = float(row["gpu_time_rank0"]) + sum(model.time(step).seconds * 1e9 for step in traffic)
        label = f"{row['workload']} {row['algorithm']} {row['cc_name']}"
        yield Comparison("ns3_workload_reference (MoE)", f"layer {row['algorithm']}", label, _wall(row), ours)


def _wall(row: dict[str, str]) -> float:
    return float(row["wall_ns_max"])


def _layer(
    tokens: int, hidden: int, top: int, tensor: int, expert: int, algorithm: str, reduces: int = 2, divisor: int = 0
) -> list[Collective]:
    tensor_groups = tuple(tuple(e * tensor + t for t in range(tensor)) for e in range(expert))
    expert_groups = tuple(tuple(e * tensor + t for e in range(expert)) for t in range(tensor))
    reduce = Collective("all_reduce", tokens * hidden * 2, tensor_groups, algorithm)
    exchange = Collective("all_to_all", tokens * top * hidden * 2 / (divisor or expert), expert_groups, "direct")
    return [*[reduce] * (reduces - 1), exchange, exchange, reduce]


def _with_work(traffic: list[Collective], row: dict[str, str], hidden: int) -> list[Collective | float]:
    """The attention's time before a layer's collectives, the rest of the row's GPU time between its two exchanges."""
    tokens = int(row["tokens"])
    attention = (16 * tokens * hidden**2 + 4 * tokens**2 * hidden) / int(row["tp"]) / PEAK
    middle = [step.kind for step in traffic].index("all_to_all") + 1
    return [attention, *traffic[:middle], float(row["gpu_ns"]) * 1e-9 - attention, *traffic[middle:]]


def study_layers(data: Reference) -> Iterator[Comparison]:
    """Whole layers of the MoE topology study, stock window, valid rows, in sequence; by packets where affordable."""
    models: dict[tuple[str, NetworkParameters], NetworkModel] = {}
    for row in data.rows("moe_study/ns3.csv"):
        if any(word in row["note"] for word in ("INVALID", "HAS_WIN 0", "KMIN", "leak")):
            continue
        parameters = replace(
            NetworkParameters.ns3(CongestionControl(CONTROLS[row["cc"]]), int(row["payload"]), LAYER),
            chunks=int(row["dataset_splits"]),
            active_chunks=int(row["active_chunks"]),
            reduce_bandwidth=3.35e12,
        )
        topology = data.topology("moe_study/inputs.tar.gz", row["topo_file"])
        model = models.setdefault((row["topo_file"], parameters), NetworkModel(topology, parameters))
        hidden, top = MODELS[row["model"]]
        tensor, expert = int(row["tp"]), int(row["ep"])
        algorithm = "ring" if row["algorithm"].startswith("ring") else "double_binary_tree_astra"
        divisor = expert**2 if row["variant"].endswith("F") else expert
        steps = _layer(int(row["tokens"]), hidden, top, tensor, expert, algorithm, int(row["variant"][2]), divisor)
        ours = model.sequence(_with_work(steps, row, hidden)).seconds * 1e9
        label = f"{row['model']} {Path(row['topo_file']).stem} TP{tensor}EP{expert} {row['algorithm']} {row['cc']}"
        yield Comparison("moe_study", f"{row['topology']} {row['cc']}", label, float(row["layer_ns"]), ours)


def analytical(data: Reference) -> Iterator[Comparison]:
    """One-dimensional rows of the congestion-aware analytical backend, but not those that run another algorithm."""
    for row in data.rows("astra_reference.csv"):
        named = row["algorithm"] == "doubleBinaryTree" and row["collective"] != "AllReduce"
        if row["backend"] != "congestion_aware" or "/" in row["bandwidth_GBps"] or named:
            continue
        ranks, size = int(row["npus"]), int(row["size_bytes"])
        if size <= ranks:
            continue
        output = size * ranks if row["collective"] == "AllGather" else size
        parameters = replace(NetworkParameters.analytical(), chunks=int(row["dataset_splits"]))
        model = NetworkModel(data.topology("inputs.tar.gz", row["network"]), parameters)
        algorithm = ALGORITHMS.get(row["algorithm"], row["algorithm"])
        group = (tuple(range(ranks)),)
        kind_of = KINDS[row["collective"]]
        ours = model.time(Collective(kind_of, output, group, algorithm)).seconds
        kind = f"{row['topology'].rstrip('0123456789_')} {row['algorithm']}"
        label = f"{row['topology']} {row['collective']} {row['algorithm']} {size} B splits {row['dataset_splits']}"
        found = Comparison("astra_reference (aware)", kind, label, float(row["wall_cycles_max"]), ours * 1e9)
        yield replace(found, cause=cause_of(found, Collective(kind_of, output, group, algorithm), model))


def cause_of(row: Comparison, collective: Collective, model: NetworkModel) -> str:
    """The stated difference that accounts for a large error, from what the row is; empty where none does.

    Forwarding: where ranks are several hops apart the backend sends whole messages hop by hop, one after another on a
    link, and overlaps those on different hops; here messages share the links and then cross the other hops. Its answer
    must lie between the time of the fullest link and ours, and the crossing, which small packets do without, must be a
    third of the gap at least; where it is all of it, that is said.
    Reducing: a rank reduces what it has received of a chunk once it has begun the chunk itself, here on arrival. Every
    further chunk of a tree then costs one reduction more: exactly so much must be missing.
    """
    group, topology, settings = collective.groups[0], model.topology, model.parameters
    if row.error <= LARGE:
        return ""
    if any(len(topology.route(group[0], other)) > 1 for other in group[1:]):
        return _forwarding(row, collective, model)
    if collective.algorithm == "double_binary_tree_astra":
        one = 3e9 * collective.nbytes / settings.chunks / settings.reduce_bandwidth
        missing = (settings.chunks - 1) * one
        return REDUCING if abs(row.reference - row.ours - missing) <= ROUNDING * missing else ""
    return ""


def _forwarding(row: Comparison, collective: Collective, model: NetworkModel) -> str:
    topology = model.topology
    carried = model.time(collective).link_bytes
    bound = max(amount / topology.links[link].bandwidth for link, amount in carried.items()) * 1e9
    if not bound * (1 - ROUNDING) <= row.reference < row.ours:
        return ""
    packets = replace(model.parameters, payload_bytes=SMALL, tick=0.0)
    through = NetworkModel(topology, packets).time(collective).seconds * 1e9
    if abs(through - row.reference) <= ROUNDING * row.reference:
        return CROSSING
    return OVERLAP if row.ours - through >= (row.ours - row.reference) / 3 else ""


def causes(rows: list[Comparison]) -> str:
    """Markdown: how many rows of each kind differ by more than LARGE, by cause."""
    lines = ["| rows of the analytical backend | more than 5 % apart | because of entry |", "|---|---|---|"]
    large = [row for row in rows if row.file.startswith("astra_reference") and row.error > LARGE]
    for kind, cause in sorted({(row.kind, row.cause) for row in large}):
        count = sum((row.kind, row.cause) == (kind, cause) for row in large)
        lines.append(f"| {kind} | {count} | {cause or '**unexplained**'} |")
    return "\n".join(lines) + "\n"


PARTS = {
    **{name: (lambda data, name=name: collectives(data, name)) for name in NS3_FILES},
    "ns3_workload_reference": serial_layers,
    "moe_study": study_layers,
    "astra_reference": analytical,
}


def table(rows: list[Comparison]) -> str:
    """Markdown: a line a file, then a line a kind."""
    lines = ["| rows of | kind | rows | median error | 95 % of rows within | worst |", "|---|---|---|---|---|---|"]
    files = list(dict.fromkeys(row.file for row in rows))
    for file in files:
        mine = [row for row in rows if row.file == file]
        groups = {"all": mine} | {kind: [r for r in mine if r.kind == kind] for kind in sorted({r.kind for r in mine})}
        for kind, group in groups.items():
            lines.append(f"| {file} | {kind} | {len(group)} | {comparing.cells([row.error for row in group])} |")
    text = "\n".join(lines) + "\n"
    return f"{text}\n{causes(rows)}" if any(file.startswith("astra_reference") for file in files) else text


if __name__ == "__main__":
    comparing.main(__doc__, PARTS, lambda folder: nullcontext(Reference(folder)), table)
