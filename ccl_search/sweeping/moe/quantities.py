"""The quantities in which the study reports its figures, computed from a matrix.

`full` is all cells of a model (192), `feedback` those whose network mode has rate feedback (144), as the text uses
them; a single figure of topology 1, 4 or 6 is taken with ring_direct, RoCE HPCC where the text names no mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean

from ccl_search.sweeping.moe.definitions import study
from ccl_search.sweeping.moe.matrix import Matrix
from runs.errors import BadInputError

PERCENT = 100.0
RING, DBT = "ring_direct", "dbt_direct"
_NETWORKED = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Results:
    """What there is to compare: the matrix of all models, the screen's cells, and weights a rank by model (GB)."""

    matrix: Matrix
    screen: Matrix
    weights: Mapping[str, float]

    def model(self, key: str) -> Matrix:
        """All cells of a model."""
        return self.matrix.of(model=key)

    def feedback(self, key: str) -> Matrix:
        """The cells of a model whose mode has rate feedback."""
        return self.model(key).of(mode=tuple(study().data["feedback_modes"]))

    @property
    def models(self) -> tuple[str, ...]:
        """Models there are cells of."""
        return self.matrix.models


def value(results: Results, model: str, quantity: str) -> float | tuple[float, float] | None:
    """A quantity of one model; of `all`, or the `others` (all but Kimi K3), the least and the greatest over models.

    None where the results lack a model it needs.

    Raises:
        BadInputError: there is no such quantity.
    """
    if quantity in _JOINT:
        needed, rule = _JOINT[quantity]
        return rule(results) if set(needed) <= set(results.models) else None
    if quantity not in _OF_A_MODEL:
        raise BadInputError(f"no quantity of the study is called {quantity!r}", f"known: {', '.join(_OF_A_MODEL)}")
    rule_of_one = _OF_A_MODEL[quantity]
    if model not in ("all", "others"):
        return rule_of_one(results, model) if model in results.models else None
    keys = [key for key in results.models if model == "all" or key != "kimi-k3"]
    found = [rule_of_one(results, key) for key in keys]
    return (min(found), max(found)) if found else None


def dbt_over_ring(cells: Matrix) -> float:
    """Mean time of dbt_direct over that of ring_direct."""
    return cells.of(algorithm=DBT).mean() / cells.of(algorithm=RING).mean()


def mode_ratio(cells: Matrix, mode: str, base: str) -> float:
    """Mean time in one network mode over that in another, without topology 6."""
    found = cells.of(topology=_NETWORKED)
    return found.of(mode=mode).mean() / found.of(mode=base).mean()


def topology_ratio(cells: Matrix, topology: int, base: int) -> float:
    """Mean time on one topology over that on another."""
    return cells.of(topology=topology).mean() / cells.of(topology=base).mean()


def one(cells: Matrix, topology: int, tp: int, mode: str = "roce-hpcc", algorithm: str = RING) -> float:
    """The time of one configuration."""
    return cells.of(topology=topology, tp=tp, mode=mode, algorithm=algorithm).cells[0].time_s


def _above(ratio: float) -> float:
    """By how many per cent a ratio is above one."""
    return PERCENT * (ratio - 1)


def _below(ratio: float) -> float:
    """By how many per cent a ratio is below one."""
    return PERCENT * (1 - ratio)


def _slowest_topology(cells: Matrix) -> float:
    return max(cells.of(topology=number).mean() for number in study().topologies)


def _comm_growth(cells: Matrix) -> float:
    return cells.of(tp=16).mean("comm_s") / cells.of(tp=2).mean("comm_s")


_OneModel = Callable[[Results, str], float]
_OF_A_MODEL: dict[str, _OneModel] = {
    "time_t6_tp2": lambda r, m: one(r.model(m), 6, 2),
    "time_t6_tp16": lambda r, m: one(r.model(m), 6, 16),
    "time_t1_tp16": lambda r, m: one(r.model(m), 1, 16),
    "t6_over_t1_tp16": lambda r, m: one(r.model(m), 6, 16) / one(r.model(m), 1, 16),
    "t6_tp16_over_tp2": lambda r, m: one(r.model(m), 6, 16, "ib-none") / one(r.model(m), 6, 2, "ib-none"),
    "tp16_over_tp2_all": lambda r, m: r.model(m).of(tp=16).mean() / r.model(m).of(tp=2).mean(),
    "tp16_over_tp2": lambda r, m: r.feedback(m).of(tp=16).mean() / r.feedback(m).of(tp=2).mean(),
    "comm_tp16_over_tp2": lambda r, m: _comm_growth(r.model(m)),
    "comm_share_tp2": lambda r, m: PERCENT * r.model(m).of(tp=2).share,
    "comm_share_tp16": lambda r, m: PERCENT * r.model(m).of(tp=16).share,
    "comm_share_fastest": lambda r, m: PERCENT * r.model(m).fastest.share,
    "comm_share_slowest": lambda r, m: PERCENT * r.model(m).slowest.share,
    "comm_share_all": lambda r, m: PERCENT * r.model(m).share,
    "comm_share": lambda r, m: PERCENT * r.feedback(m).share,
    "gpu_mean": lambda r, m: r.model(m).mean("gpu_s"),
    "gpu_drop_tp2_tp8": lambda r, m: r.model(m).of(tp=2).mean("gpu_s") - r.model(m).of(tp=8).mean("gpu_s"),
    "dcqcn_over_hpcc": lambda r, m: _above(mode_ratio(r.model(m), "roce-dcqcn", "roce-hpcc")),
    "ib_over_roce_hpcc": lambda r, m: _above(mode_ratio(r.model(m), "ib-hpcc", "roce-hpcc")),
    "dcqcn_over_hpcc_t3": lambda r, m: mode_ratio(r.model(m).of(topology=3), "roce-dcqcn", "roce-hpcc"),
    "t3_dcqcn_over_none_tp16": lambda r, m: _above(
        mode_ratio(r.model(m).of(topology=3, tp=16), "roce-dcqcn", "ib-none")
    ),
    "dbt_over_ring_all": lambda r, m: _above(dbt_over_ring(r.model(m))),
    "dbt_over_ring": lambda r, m: _above(dbt_over_ring(r.feedback(m))),
    "dbt_over_ring_tp2": lambda r, m: dbt_over_ring(r.feedback(m).of(tp=2)),
    "dbt_over_ring_tp4": lambda r, m: dbt_over_ring(r.feedback(m).of(tp=4)),
    "dbt_over_ring_tp8": lambda r, m: dbt_over_ring(r.feedback(m).of(tp=8)),
    "dbt_over_ring_tp16": lambda r, m: dbt_over_ring(r.feedback(m).of(tp=16)),
    "t6_below_slowest": lambda r, m: _below(r.model(m).of(topology=6).mean() / _slowest_topology(r.model(m))),
    "t6_below_t1": lambda r, m: _below(topology_ratio(r.model(m), 6, 1)),
    "t6_below_t4": lambda r, m: _below(topology_ratio(r.model(m), 6, 4)),
    "t2_below_t3": lambda r, m: _below(topology_ratio(r.model(m), 2, 3)),
    "t4_over_t2": lambda r, m: _above(topology_ratio(r.model(m), 4, 2)),
    "t1_over_t6": lambda r, m: _above(topology_ratio(r.model(m), 1, 6)),
    "t2_over_t6": lambda r, m: _above(topology_ratio(r.model(m), 2, 6)),
    "t3_over_t6": lambda r, m: _above(topology_ratio(r.model(m), 3, 6)),
    "t4_over_t6": lambda r, m: _above(topology_ratio(r.model(m), 4, 6)),
    "t5_over_t6": lambda r, m: _above(topology_ratio(r.model(m), 5, 6)),
    "t6_tp16_growth": lambda r, m: one(r.model(m), 6, 16) / one(r.model(m), 6, 2),
    "t4_tp16_growth": lambda r, m: one(r.model(m), 4, 16) / one(r.model(m), 6, 2),
    "slowest": lambda r, m: r.model(m).slowest.time_s,
    "max_over_min": lambda r, m: r.model(m).slowest.time_s / r.model(m).fastest.time_s,
    "weights_per_rank": lambda r, m: r.weights[m],
}
"""How each quantity of one model is computed."""


def places(results: Results, **only: object) -> dict[tuple[int, int, str, str], dict[str, float]]:
    """Time of every model in each matched configuration, of the cells with these fields."""
    found: dict[tuple[int, int, str, str], dict[str, float]] = {}
    for cell in results.matrix.of(**only).cells:
        found.setdefault(cell.place, {})[cell.model] = cell.time_s
    return found


def wins(results: Results, first: str, second: str, **only: object) -> int:
    """In how many matched configurations `first` takes less time than `second`."""
    return sum(times[first] < times[second] for times in places(results, **only).values())


def ranked(results: Results, model: str, rank: int) -> int:
    """In how many matched configurations `model` has this rank, 1 being the fastest."""
    return sum(sorted(times, key=lambda key: times[key])[rank - 1] == model for times in places(results).values())


def _mean_ratio(results: Results, first: str, second: str, field: str = "time_s") -> float:
    return results.feedback(first).mean(field) / results.feedback(second).mean(field)


def _ring_ratio(results: Results, first: str, second: str) -> float:
    return results.feedback(first).of(algorithm=RING).mean() / results.feedback(second).of(algorithm=RING).mean()


def _mean_ib_change(results: Results) -> float:
    """Equal weight for every model: its conditional means are averaged first."""
    means = [
        fmean(results.model(key).of(topology=_NETWORKED, mode=mode).mean() for key in results.models)
        for mode in ("ib-hpcc", "roce-hpcc")
    ]
    return _above(means[0] / means[1])


_FOUR = ("flash", "kimi-k3", "glm", "v4-pro")
_JOINT: dict[str, tuple[tuple[str, ...], Callable[[Results], float]]] = {
    "ib_over_roce_hpcc_mean": ((), _mean_ib_change),
    "glm_over_kimi": (("glm", "kimi-k3"), lambda r: _above(_mean_ratio(r, "glm", "kimi-k3"))),
    "glm_over_kimi_comm": (("glm", "kimi-k3"), lambda r: _above(_mean_ratio(r, "glm", "kimi-k3", "comm_s"))),
    "pro_below_kimi_ring": (("v4-pro", "kimi-k3"), lambda r: _below(_ring_ratio(r, "v4-pro", "kimi-k3"))),
    "flash_below_glm_ring": (("flash", "glm"), lambda r: _below(_ring_ratio(r, "flash", "glm"))),
    "matched_flash_first": (_FOUR, lambda r: ranked(r, "flash", 1)),
    "matched_glm_fourth": (_FOUR, lambda r: ranked(r, "glm", 4)),
    "matched_kimi_before_pro_tp16": (("kimi-k3", "v4-pro"), lambda r: wins(r, "kimi-k3", "v4-pro", tp=16)),
    "matched_pro_before_kimi_ring": (("kimi-k3", "v4-pro"), lambda r: wins(r, "v4-pro", "kimi-k3", algorithm=RING)),
    "matched_kimi_before_pro_dbt": (("kimi-k3", "v4-pro"), lambda r: wins(r, "kimi-k3", "v4-pro", algorithm=DBT)),
    "screen_ring_ring": (("kimi-k3",), lambda r: r.screen.of(algorithm="ring_ring").mean()),
    "screen_ring_direct": (("kimi-k3",), lambda r: r.screen.of(algorithm=RING).mean()),
}
"""Quantities that compare models, with the models they need."""
