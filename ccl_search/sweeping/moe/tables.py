"""The study's tables, ours beside the published figures, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ccl_search.sweeping.moe import quantities
from ccl_search.sweeping.moe.definitions import Study, published
from ccl_search.sweeping.moe.experiment import Experiment
from ccl_search.sweeping.moe.findings import Finding, figure, number, topology_order
from ccl_search.sweeping.moe.matrix import Matrix
from ccl_search.sweeping.moe.quantities import DBT, RING, Results

_GB = 1e9
_UNSURE = ("fails", "depends")


@dataclass(frozen=True)
class Table:
    """A title, heads (a leading `>` aligns right), rows of text, and a line that says how to read it."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def all_tables(found: Experiment) -> Iterator[Table]:
    """Every table, in the order of the page; those that compare models are left out where one is missing."""
    yield findings(found)
    if reasons(found).rows:
        yield reasons(found)
    yield from _measured(found)


def narrow_tables(found: Experiment) -> Iterator[Table]:
    """The same for a terminal: all that is known of a finding in one cell."""
    yield findings_told(found)
    yield from _measured(found)


def _measured(found: Experiment) -> Iterator[Table]:
    if found.variants:
        yield variants(found)
    yield figures(found)
    yield residency(found)
    if found.results.screen.of(algorithm="ring_ring").cells:
        yield screen(found.results)
    yield main_effects(found.results, found.study)
    yield topology_by_tp(found.results, found.study)
    yield collective_by_tp(found)
    yield congestion_by_topology(found.results, found.study)
    yield sensitivity(found.results)
    if len(found.results.models) == len(published_models()):
        yield ranks(found.results)


def published_models() -> list[str]:
    """Models that the published figures are about."""
    return list(dict.fromkeys(row[0] for row in published()["facts"] if row[0] not in ("all", "others")))


def findings(found: Experiment) -> Table:
    """Every finding with its verdict."""
    rows = [
        [
            each.verdict,
            each.text,
            each.place,
            "; ".join(_words(quantity) for quantity in each.quantities),
            each.theirs,
            each.ours,
            each.seen,
            _depends(each.here, each.against),
        ]
        for each in found.findings
    ]
    heads = ["verdict", "finding", "section", "figure", "published", "ours", "seen here", "depends on"]
    return Table("findings", heads, rows, _of_findings(found))


def findings_told(found: Experiment) -> Table:
    """Every finding with its verdict, and below it its figures, what shows it, what it depends on, and why."""
    rows = [[each.verdict, "\n".join(_told(each))] for each in found.findings]
    return Table("findings", ["verdict!", "finding"], rows, _of_findings(found))


def _told(each: Finding) -> Iterator[str]:
    yield f"{each.text} ({each.place})"
    if each.theirs or each.ours:
        words = "; ".join(_words(quantity) for quantity in each.quantities)
        yield f"{words}: published {each.theirs}; ours {each.ours or 'none'}"
    if each.seen:
        yield each.seen
    if each.against:
        yield _depends(each.here, each.against)
    if each.why and each.verdict in _UNSURE:
        yield f"why: {each.why}"


def _of_findings(found: Experiment) -> str:
    note = (
        "holds and fails stand in every variant of what the text leaves open; depends names the variants that turn it."
        if found.variants
        else "Under the definitions alone; --sensitivity runs the variants of what the text leaves open."
    )
    if len(found.results.models) < len(published_models()):
        note += " Of the models there are; what compares others is not checked."
    return note


def _words(quantity: str) -> str:
    words: str = published()["quantities"][quantity]
    return words


def _depends(here: bool | None, against: Sequence[str]) -> str:
    if not against:
        return ""
    return f"{'holds' if here else 'fails'} here, not with: {'; '.join(against)}"


def reasons(found: Experiment) -> Table:
    """Why findings fail or depend, as far as it is known."""
    rows = [[each.verdict, each.text, each.why] for each in found.findings if each.why and each.verdict in _UNSURE]
    return Table("why findings fail or depend", ["verdict", "finding", "why"], rows)


def figures(found: Experiment) -> Table:
    """Every published figure with ours."""
    rows = []
    for model, quantity, theirs, unit, place in published()["facts"]:
        ours = quantities.value(found.results, model, quantity)
        if ours is not None:
            difference = _difference(theirs, ours, unit)
            rows.append([model, _words(quantity), figure(theirs, unit), figure(ours, unit), difference, place])
    heads = ["model", "quantity", ">published", ">ours", ">difference", "section"]
    note = (
        "Means are over all 192 configurations of a model where nothing else is said (144 have a mode with feedback), "
        "single times with ring_direct and RoCE HPCC. Differences of percentages are in points, of counts in counts, "
        "of all else relative."
    )
    return Table("published figures", heads, rows, note)


def _difference(theirs: Any, ours: Any, unit: str) -> str:
    if isinstance(theirs, (list, tuple)) or isinstance(ours, (list, tuple)):
        return ""
    if unit == "%":
        return f"{ours - theirs:+.1f} points"
    return f"{ours - theirs:+.0f}" if unit.startswith("of ") else f"{100 * (ours / theirs - 1):+.0f} %"


def variants(found: Experiment) -> Table:
    """What each variant of what the text leaves open does to the mean times, of the first model in more detail."""
    first = found.results.models[0]
    rows = [_variant(name, results, found) for name, results in {"as defined": found.results, **found.variants}.items()]
    heads = ["variant", *(f">{key}" for key in found.results.models), f"topologies, {first}"]
    heads += [f">TP{tp}EP{ep}, {first}" for tp, ep in found.study.partitions] + [">findings turned"]
    note = "Configurations in modes with feedback; topologies by their mean time, the fastest first."
    return Table("variants, mean seconds", heads, rows, note)


def _variant(name: str, results: Results, found: Experiment) -> list[str]:
    means = [number(results.feedback(key).mean()) for key in results.models]
    first = results.feedback(results.models[0])
    splits = [number(first.of(tp=tp).mean()) for tp, _ in found.study.partitions]
    turned = sum(name in each.against for each in found.findings)
    return [name, *means, topology_order(results, results.models[0]), *splits, str(turned)]


def residency(found: Experiment) -> Table:
    """Weights a rank, by the stated file or by parameters."""
    limit, ranks = found.study.data["residency_gb"], found.study.data["ranks"]
    rows = []
    for model in found.study.models:
        count = found.parameters[model.key]
        sizes = [count * size / ranks / _GB for size in (1.0, 2.0)]
        stated = "" if model.checkpoint_gb is None else number(model.checkpoint_gb / ranks)
        taken = found.results.weights[model.key]
        verdict = "fits" if taken < limit else "does not fit"
        rows.append([model.key, f"{count / _GB:.0f} G", stated, *map(number, sizes), f"{number(taken)}: {verdict}"])
    heads = ["model", ">parameters", ">stated file", ">at 1 byte", ">at 2 bytes", f"taken, against {limit} GB"]
    return Table("weights of one of 32 ranks, GB", heads, rows, "Weights only: no cache, activations or buffers.")


def screen(results: Results) -> Table:
    """The exploratory screen: a ring all-to-all beside a direct one."""
    rows = [
        [
            name,
            str(len(results.screen.of(algorithm=name).cells)),
            number(results.screen.of(algorithm=name).mean()),
            number(_published("kimi-k3", f"screen_{name}")),
        ]
        for name in ("ring_ring", RING)
    ]
    note = "Which 20 runs the text means is not stated; here topologies 1 to 5, four splits, RoCE HPCC."
    return Table("screen of 20 runs, Kimi K3, mean seconds", ["algorithms", ">runs", ">ours", ">published"], rows, note)


def _published(model: str, quantity: str) -> float:
    return float(next(row[2] for row in published()["facts"] if row[0] == model and row[1] == quantity))


def main_effects(results: Results, study: Study) -> Table:
    """Mean seconds of every level of every dimension, all cells of a model."""
    levels: list[tuple[str, dict[str, Any]]] = [
        ("all", {}),
        *((f"topology {number}", {"topology": number}) for number in study.topologies),
        *((f"TP{tp}EP{ep}", {"tp": tp}) for tp, ep in study.partitions),
        *((mode, {"mode": mode, "topology": study.topologies[:-1]}) for mode in study.modes),
        *((name, {"algorithm": name}) for name in study.algorithms),
    ]
    rows = [[name, *(number(results.model(key).of(**only).mean()) for key in results.models)] for name, only in levels]
    heads = ["level", *(f">{key}" for key in results.models)]
    return Table("main effects, mean seconds", heads, rows, "Network modes without topology 6, which has no network.")


def topology_by_tp(results: Results, study: Study) -> Table:
    """Seconds with ring_direct and RoCE HPCC."""
    rows = []
    for key in results.models:
        for place in study.topologies:
            times = [quantities.one(results.model(key), place, tp) for tp, _ in study.partitions]
            rows.append([key, str(place), *map(number, times), f"{times[-1] / times[0]:.2f}x"])
    heads = ["model", ">topology", *(f">TP{tp}EP{ep}" for tp, ep in study.partitions), ">last / first"]
    return Table("topology x partition, seconds (ring_direct, RoCE HPCC)", heads, rows)


def collective_by_tp(found: Experiment) -> Table:
    """Tree over ring, ASTRA-sim's tree and the one of literature."""
    rows = []
    for key in found.results.models:
        cells = found.results.feedback(key)
        tree = Matrix(cell for cell in found.tree.of(model=key).cells if cell.mode in _modes(cells))
        for name, others in ((DBT, cells.of(algorithm=DBT)), ("tree of literature", tree)):
            if others.cells:
                rows.append([key, name, *_over_ring(others, cells.of(algorithm=RING), found.study)])
    heads = ["model", "tree", *(f">TP{tp}EP{ep}" for tp, ep in found.study.partitions), ">all"]
    note = "dbt_direct sends the whole buffer over every edge of one tree, as ASTRA-sim does; literature's halves it."
    return Table("tree / ring, mean of the modes with feedback", heads, rows, note)


def _modes(cells: Matrix) -> set[str]:
    return {cell.mode for cell in cells.cells}


def _over_ring(tree: Matrix, ring: Matrix, study: Study) -> list[str]:
    ratios = [tree.of(tp=tp).mean() / ring.of(tp=tp).mean() for tp, _ in study.partitions]
    return [f"{ratio:.2f}x" for ratio in (*ratios, tree.mean() / ring.mean())]


def congestion_by_topology(results: Results, study: Study) -> Table:
    """Each mode over RoCE HPCC, mean of partitions and algorithms."""
    rows = []
    for key in results.models:
        for mode in study.modes:
            if mode != "roce-hpcc":
                ratios = [
                    quantities.mode_ratio(results.model(key).of(topology=place), mode, "roce-hpcc")
                    for place in study.topologies[:-1]
                ]
                rows.append([key, mode, *(f"{ratio:.3f}" for ratio in ratios)])
    heads = ["model", "mode", *(f">topology {place}" for place in study.topologies[:-1])]
    return Table("network mode / RoCE HPCC", heads, rows)


def sensitivity(results: Results) -> Table:
    """Fastest and slowest configuration of every model."""
    rows = []
    for key in results.models:
        low, high = results.model(key).fastest, results.model(key).slowest
        ratio = f"{high.time_s / low.time_s:.1f}x"
        theirs = f"{_published(key, 'max_over_min'):g}x" if key in published_models() else ""
        rows.append([key, _cell(low), number(low.time_s), _cell(high), number(high.time_s), ratio, theirs])
    heads = ["model", "fastest", ">s", "slowest", ">s", ">ratio", ">published"]
    return Table("slowest / fastest configuration", heads, rows)


def _cell(cell: Any) -> str:
    return f"topology {cell.topology}, TP{cell.tp}EP{cell.ep}, {cell.algorithm}, {cell.mode}"


def ranks(results: Results) -> Table:
    """How often each model has each rank among matched configurations."""
    counts = [[quantities.ranked(results, key, rank) for rank in range(1, 5)] for key in results.models]
    rows = [[key, *map(str, row)] for key, row in zip(results.models, counts, strict=True)]
    note = "Published: Flash first in 192, GLM fourth in 157, second or third in 35."
    return Table("rank of a model among 192 matched configurations", ["model", ">1", ">2", ">3", ">4"], rows, note)
