"""The study's findings, each checked on a matrix and on its variants: it holds, it fails, or it depends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from ccl_search.sweeping.moe import quantities
from ccl_search.sweeping.moe.definitions import published, study
from ccl_search.sweeping.moe.quantities import DBT, RING, Results, one

Verdict = Literal["holds", "fails", "depends", "not checked"]
_CLOSE_PERCENT = 3.0
_MAPPING_SHOWS = 0.05
_ALL_MODELS = {"flash", "kimi-k3", "glm", "v4-pro"}

Rule = Callable[[Results], bool | None]
MAPPING = "mapping_matters"
"""The finding that needs two matrices."""


@dataclass(frozen=True)
class Finding:
    """A finding of the study and what became of it here.

    `here`: whether it holds under the definitions; `against`: variants in which that is the other way round;
    `variants`: how many it was asked of. `quantities` name the figures the study gives for it, `theirs` and `ours` are
    these figures, `seen` is what else shows it here; each empty where there is none. `why` says what is known about a
    finding that fails or depends.
    """

    key: str
    text: str
    place: str
    quantities: tuple[str, ...]
    here: bool | None
    against: tuple[str, ...]
    variants: int
    theirs: str = ""
    ours: str = ""
    seen: str = ""
    why: str = ""

    @property
    def verdict(self) -> Verdict:
        """`holds` and `fails` stand in every variant that was run; `depends` does not."""
        if self.here is None:
            return "not checked"
        if self.against:
            return "depends"
        return "holds" if self.here else "fails"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**fields, "quantities": list(self.quantities), "against": list(self.against), "verdict": self.verdict}


def check(base: Results, variants: Mapping[str, Results], mapped: Results | None = None) -> list[Finding]:
    """Every finding on `base` and on each named variant; `mapped` is the matrix under the other rank mapping."""
    return [_check(entry, base, variants, mapped) for entry in published()["findings"]]


def _check(entry: Mapping[str, Any], base: Results, variants: Mapping[str, Results], mapped: Results | None) -> Finding:
    key = entry["key"]
    if key == MAPPING:
        here = _mapping_matters(base, mapped) if mapped is not None else None
        seen = _mapping_figures(base, mapped) if mapped is not None else ""
        others: dict[str, bool | None] = {}
    else:
        here = _asked(key, base)
        seen = SEEN[key](base) if key in SEEN else ""
        others = {name: _asked(key, found) for name, found in variants.items()}
    against = tuple(name for name, outcome in others.items() if outcome is not None and outcome is not here)
    theirs, ours = _figures(entry, base)
    return Finding(
        key=key,
        text=entry["text"],
        place=entry["place"],
        quantities=tuple(entry["quantities"]),
        here=here,
        against=against if here is not None else (),
        variants=sum(outcome is not None for outcome in others.values()),
        theirs=theirs,
        ours=ours,
        seen=seen,
        why=entry.get("why", ""),
    )


def _asked(key: str, results: Results) -> bool | None:
    """The answer of a rule for the models there are; None where one is missing that it speaks of."""
    if key == "tree_grows_with_tp":
        return CHECKS[key](results) if set(results.models) - {"kimi-k3"} else None
    return CHECKS[key](results) if NEEDED.get(key, set()) <= set(results.models) else None


def _figures(entry: Mapping[str, Any], base: Results) -> tuple[str, str]:
    """The study's figures and ours, as text."""
    pairs = [_pair(quantity, entry.get("about"), base) for quantity in entry["quantities"]]
    return "; ".join(theirs for theirs, _ in pairs if theirs), "; ".join(ours for _, ours in pairs if ours)


def _pair(quantity: str, about: str | None, base: Results) -> tuple[str, str]:
    """One figure: over all models (or all but one) where the study gives it so, else of each model it gives it of."""
    rows = [row for row in published()["facts"] if row[1] == quantity and about in (None, row[0])]
    joint = next((row for row in rows if row[0] in ("all", "others")), None)
    if joint is not None:
        return figure(joint[2], joint[3]), figure(quantities.value(base, joint[0], quantity), joint[3])
    known = {row[0]: row for row in rows if row[0] in base.models}
    theirs = ", ".join(f"{key} {figure(row[2], row[3])}" for key, row in known.items())
    ours = ", ".join(f"{key} {figure(quantities.value(base, key, quantity), row[3])}" for key, row in known.items())
    return theirs, ours


def figure(value: Any, unit: str) -> str:
    """A figure with its unit, a range as `least to greatest`; empty where there is none."""
    if value is None:
        return ""
    if isinstance(value, (tuple, list)):
        least, greatest = (number(each) for each in value)
        return (
            f"{least} {unit}".replace(" x", "x")
            if least == greatest
            else f"{least} to {greatest} {unit}".replace(" x", "x")
        )
    return f"{number(value)} {unit}".replace(" x", "x")


def number(value: float) -> str:
    """Four significant digits, whole numbers whole."""
    if isinstance(value, int) or (float(value).is_integer() and abs(value) >= 10):
        return f"{value:.0f}"
    return f"{value:.4g}"


# --- the rules --------------------------------------------------------------------------------------------------------


def _every(results: Results, rule: Callable[[str], bool]) -> bool:
    return all(rule(key) for key in results.models)


def _rising(values: Sequence[float]) -> bool:
    return all(a < b for a, b in pairwise(values))


def _low_tp_wins(r: Results) -> bool:
    degrees = [tp for tp, _ in study().partitions]
    return _every(r, lambda key: _rising([r.feedback(key).of(tp=tp).mean() for tp in degrees]))


def _hpcc_close(r: Results) -> bool:
    change = quantities.value(r, "all", "ib_over_roce_hpcc_mean")
    assert isinstance(change, float)
    return -_CLOSE_PERCENT <= change < 0


def _best_at_tp2(r: Results, key: str) -> int:
    return min(study().topologies, key=lambda number: one(r.model(key), number, 2))


def _flips(r: Results, key: str) -> bool:
    cells = r.model(key)
    return _best_at_tp2(r, key) == 6 and one(cells, 6, 16) > one(cells, 1, 16)


def _best_topologies(r: Results, key: str) -> list[int]:
    """Topologies by mean time of the 144 cells with feedback, the fastest first."""
    cells = r.feedback(key)
    return sorted(study().topologies, key=lambda number: cells.of(topology=number).mean())


def _common_minimum(r: Results, key: str) -> bool:
    best = r.model(key).fastest
    return (best.topology, best.tp, best.algorithm) == (6, 2, RING)


def _more_is_not_faster(r: Results) -> bool:
    ratio = quantities.topology_ratio
    return _every(r, lambda key: ratio(r.model(key), 4, 2) > 1 and ratio(r.model(key), 3, 2) > 1)


def _dcqcn_penalties(r: Results, key: str) -> dict[int, float]:
    """RoCE DCQCN over RoCE HPCC on each topology that has a network."""
    networked = [number for number in study().topologies if number != study().data["single_server"]]
    cells = r.model(key)
    return {number: quantities.mode_ratio(cells.of(topology=number), "roce-dcqcn", "roce-hpcc") for number in networked}


def _highest(values: Mapping[Any, float]) -> Any:
    return max(values, key=values.__getitem__)


def _dcqcn_worst_on_t3(r: Results) -> bool:
    return _every(r, lambda key: _highest(_dcqcn_penalties(r, key)) == 3)


def _penalties(r: Results, key: str) -> list[float]:
    """Tree over ring at each tensor-parallel degree, from the lowest."""
    return [quantities.dbt_over_ring(r.feedback(key).of(tp=tp)) for tp, _ in study().partitions]


def _kimi_tree_peaks(r: Results) -> bool:
    penalties = _penalties(r, "kimi-k3")
    return max(penalties) == penalties[2]


def _t6_best_mean(r: Results) -> bool:
    return _every(r, lambda key: _best_topologies(r, key).index(6) == (1 if key == "kimi-k3" else 0))


def _sensitivity_order(r: Results) -> bool:
    ratios = {key: r.model(key).slowest.time_s / r.model(key).fastest.time_s for key in r.models}
    return max(ratios, key=ratios.__getitem__) == "flash" and min(ratios, key=ratios.__getitem__) == "v4-pro"


def _reversal(r: Results) -> bool:
    half = len(quantities.places(r, algorithm=RING)) / 2
    ring = quantities.wins(r, "v4-pro", "kimi-k3", algorithm=RING)
    return ring > half and quantities.wins(r, "kimi-k3", "v4-pro", algorithm=DBT) > half


def _ring_exchange_loses(r: Results) -> bool | None:
    """None for a variant, where the screen is not run again."""
    rings = r.screen.of(algorithm="ring_ring")
    return rings.mean() > 2 * r.screen.of(algorithm=RING).mean() if rings.cells else None


CHECKS: dict[str, Rule] = {
    "communication_dominates": lambda r: _every(r, lambda key: r.feedback(key).share > 0.5),
    "low_tp_wins": _low_tp_wins,
    "tree_loses": lambda r: _every(r, lambda key: quantities.dbt_over_ring(r.feedback(key)) > 1),
    "ib_like_roce": _hpcc_close,
    "hpcc_beats_dcqcn": lambda r: _every(
        r, lambda key: quantities.mode_ratio(r.model(key), "roce-dcqcn", "roce-hpcc") > 1
    ),
    "single_server_flips": lambda r: _every(r, lambda key: _flips(r, key)),
    "distributed_nics": lambda r: _every(r, lambda key: set(_best_topologies(r, key)[:3]) == {1, 2, 6}),
    "common_minimum": lambda r: _every(r, lambda key: _common_minimum(r, key)),
    "weights_fit": lambda r: _every(r, lambda key: r.weights[key] < study().data["residency_gb"]),
    "more_is_not_faster": _more_is_not_faster,
    "dcqcn_worst_on_t3": _dcqcn_worst_on_t3,
    "tree_grows_with_tp": lambda r: all(_rising(_penalties(r, key)) for key in r.models if key != "kimi-k3"),
    "kimi_tree_peaks": _kimi_tree_peaks,
    "t6_best_mean": _t6_best_mean,
    "model_order": lambda r: _rising([r.feedback(key).mean() for key in ("flash", "kimi-k3", "v4-pro", "glm")]),
    "sensitivity_order": _sensitivity_order,
    "flash_always_first": lambda r: quantities.ranked(r, "flash", 1) == len(quantities.places(r)),
    "kimi_pro_reversal": _reversal,
    "ring_exchange_loses": _ring_exchange_loses,
}
"""The rule behind each finding, for the models there are; `mapping_matters` needs two matrices and has its own."""

NEEDED: dict[str, set[str]] = {
    "kimi_tree_peaks": {"kimi-k3"},
    "model_order": _ALL_MODELS,
    "sensitivity_order": _ALL_MODELS,
    "flash_always_first": _ALL_MODELS,
    "kimi_pro_reversal": {"kimi-k3", "v4-pro"},
    "ring_exchange_loses": {"kimi-k3"},
}
"""Findings that speak of certain models, or compare models."""


# --- what shows a finding ---------------------------------------------------------------------------------------------


def _of_each(results: Results, tell: Callable[[str], str]) -> str:
    told = {key: tell(key) for key in results.models}
    if len(told) > 1 and len(set(told.values())) == 1:
        return f"{next(iter(told.values()))} for every model"
    return ", ".join(f"{key} {words}" for key, words in told.items())


def _topology_order(r: Results) -> str:
    return f"mean time of topologies: {_of_each(r, lambda key: topology_order(r, key))}"


def topology_order(r: Results, key: str) -> str:
    """Topologies by the mean time of a model in modes with feedback, the fastest first."""
    return " < ".join(map(str, _best_topologies(r, key)))


def _fastest(r: Results) -> str:
    def tell(key: str) -> str:
        best = r.model(key).fastest
        return f"topology {best.topology} TP{best.tp}EP{best.ep} {best.algorithm}"

    return f"fastest: {_of_each(r, tell)}"


def _worst_of_dcqcn(r: Results) -> str:
    def tell(key: str) -> str:
        penalties = _dcqcn_penalties(r, key)
        worst = _highest(penalties)
        return f"topology {worst} ({penalties[worst]:.2f}x)"

    return f"highest on: {_of_each(r, tell)}"


def _slower_than_t2(r: Results) -> str:
    ratios = [[quantities.topology_ratio(r.model(key), number, 2) for key in r.models] for number in (3, 4)]
    return ", ".join(f"topology {number} takes {_span(some)} of 2" for number, some in zip((3, 4), ratios, strict=True))


def _span(ratios: Sequence[float]) -> str:
    return f"{min(ratios):.2f} to {max(ratios):.2f}x" if len(ratios) > 1 else f"{ratios[0]:.2f}x"


def _models_by_time(r: Results) -> str:
    means = {key: r.feedback(key).mean() for key in r.models}
    return " < ".join(f"{key} {number(means[key])} s" for key in sorted(means, key=means.__getitem__))


SEEN: dict[str, Callable[[Results], str]] = {
    "single_server_flips": lambda r: (
        "fastest at TP2EP16: " + _of_each(r, lambda key: f"topology {_best_at_tp2(r, key)}")
    ),
    "distributed_nics": _topology_order,
    "common_minimum": _fastest,
    "more_is_not_faster": _slower_than_t2,
    "dcqcn_worst_on_t3": _worst_of_dcqcn,
    "t6_best_mean": _topology_order,
    "model_order": _models_by_time,
}
"""What shows some findings that have no figure, or more than it."""


def _mapping_changes(base: Results, mapped: Results) -> dict[str, float]:
    return {key: mapped.model(key).mean() / base.model(key).mean() - 1 for key in base.models}


def _mapping_matters(base: Results, mapped: Results) -> bool:
    return all(abs(change) > _MAPPING_SHOWS for change in _mapping_changes(base, mapped).values())


def _mapping_figures(base: Results, mapped: Results) -> str:
    changes = ", ".join(f"{key} {100 * change:+.1f} %" for key, change in _mapping_changes(base, mapped).items())
    return f"mean time under the other mapping: {changes}"
