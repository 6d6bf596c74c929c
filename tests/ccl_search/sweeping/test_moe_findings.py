"""Verdicts on made-up matrices in which a finding was made to hold or to fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ccl_search.sweeping.moe import findings, quantities
from ccl_search.sweeping.moe.findings import CHECKS, Finding
from ccl_search.sweeping.moe.quantities import Results
from tests.ccl_search.sweeping.small import MODELS, SCALE, results, usual

Rule = Callable[[str, int, int, str, str], float | None]


def verdict(found: list[Finding], key: str) -> Finding:
    return next(each for each in found if each.key == key)


def only(condition: Callable[[str, int, int, str, str], bool], factor: float) -> Rule:
    return lambda *where: usual(*where) * factor if condition(*where) else None


BREAKERS: dict[str, Rule] = {
    "low_tp_wins": only(lambda m, t, tp, mode, a: tp == 4 and m == "glm", 0.3),
    "tree_loses": only(lambda m, t, tp, mode, a: a == "dbt_direct" and m == "kimi-k3", 0.2),
    "ib_like_roce": only(lambda m, t, tp, mode, a: mode == "ib-hpcc", 1.01),
    "hpcc_beats_dcqcn": only(lambda m, t, tp, mode, a: mode == "roce-dcqcn", 0.5),
    "single_server_flips": only(lambda m, t, tp, mode, a: t == 1 and tp == 16, 5.0),
    "distributed_nics": only(lambda m, t, tp, mode, a: t == 4, 0.5),
    "common_minimum": only(lambda m, t, tp, mode, a: t == 1 and tp == 2 and m == "flash", 0.1),
    "more_is_not_faster": only(lambda m, t, tp, mode, a: t == 3, 0.4),
    "dcqcn_worst_on_t3": only(lambda m, t, tp, mode, a: t == 5 and mode == "roce-dcqcn", 3.0),
    "tree_grows_with_tp": only(lambda m, t, tp, mode, a: tp == 16 and a == "dbt_direct", 0.5),
    "model_order": only(lambda m, t, tp, mode, a: m == "v4-pro", 2.0),
    "flash_always_first": only(lambda m, t, tp, mode, a: m == "glm" and (t, tp) == (1, 2), 0.1),
}
HOLDING = {
    "communication_dominates", "low_tp_wins", "tree_loses", "ib_like_roce", "hpcc_beats_dcqcn", "single_server_flips",
    "distributed_nics", "common_minimum", "more_is_not_faster", "dcqcn_worst_on_t3", "tree_grows_with_tp",
    "model_order", "flash_always_first", "weights_fit", "ring_exchange_loses",
}  # fmt: skip


def test_findings_hold_where_the_matrix_was_made_so() -> None:
    base = results()

    assert {key for key in HOLDING if not CHECKS[key](base)} == set()


@pytest.mark.parametrize("key", sorted(BREAKERS))
def test_a_finding_fails_where_the_matrix_breaks_it(key: str) -> None:
    assert CHECKS[key](results(time=BREAKERS[key])) is False


def test_a_finding_depends_on_the_variants_that_turn_it() -> None:
    slow = results(time=BREAKERS["tree_loses"])
    found = findings.check(results(), {"another tree": slow, "nothing": results()}, None)

    tree = verdict(found, "tree_loses")
    assert (tree.verdict, tree.here, tree.against, tree.variants) == ("depends", True, ("another tree",), 2)
    assert verdict(found, "low_tp_wins").verdict == "holds"
    back = verdict(findings.check(slow, {"the usual one": results()}, None), "tree_loses")
    assert (back.verdict, back.here, back.against) == ("depends", False, ("the usual one",))
    assert verdict(findings.check(slow, {"no change": slow}, None), "tree_loses").verdict == "fails"


def test_the_mapping_is_a_finding_of_two_matrices() -> None:
    faster = results(time=lambda *where: 0.9 * usual(*where))

    assert verdict(findings.check(results(), {}, faster), "mapping_matters").verdict == "holds"
    assert verdict(findings.check(results(), {}, results()), "mapping_matters").verdict == "fails"
    assert verdict(findings.check(results(), {}, None), "mapping_matters").verdict == "not checked"


def test_a_finding_shows_what_it_rests_on() -> None:
    found = findings.check(results(), {}, results(time=lambda *where: 1.1 * usual(*where)))

    # the made-up matrix orders topologies as small.PLACE does, and DCQCN costs 1.3 x 1.2 on topology 3
    order = "mean time of topologies: 6 < 1 < 2 < 4 < 5 < 3 for every model"
    assert verdict(found, "distributed_nics").seen == order
    assert verdict(found, "common_minimum").seen == "fastest: topology 6 TP2EP16 ring_direct for every model"
    assert verdict(found, "dcqcn_worst_on_t3").seen == "highest on: topology 3 (1.56x) for every model"
    other = findings.check(results(time=BREAKERS["common_minimum"]), {})
    assert "flash topology 1 TP2EP16 ring_direct, kimi-k3 topology 6" in verdict(other, "common_minimum").seen
    assert verdict(found, "mapping_matters").seen.endswith("v4-pro +10.0 %")
    peak = verdict(found, "kimi_tree_peaks")
    assert (peak.theirs, peak.ours) == ("kimi-k3 1.32x; kimi-k3 1.29x", "kimi-k3 1.6x; kimi-k3 2x")
    assert all(each.seen or each.ours for each in found)


def test_weights_are_held_against_the_limit() -> None:
    assert CHECKS["weights_fit"](results(weights={**dict.fromkeys(MODELS, 10.0), "glm": 64.1})) is False


@pytest.mark.parametrize(
    ("models", "unchecked"),
    [
        (("flash", "glm"), {"kimi_tree_peaks", "kimi_pro_reversal", "ring_exchange_loses"}),
        (("kimi-k3",), {"tree_grows_with_tp", "kimi_pro_reversal"}),
        (("kimi-k3", "v4-pro"), set()),
    ],
)
def test_findings_are_checked_for_the_models_there_are(models: tuple[str, ...], unchecked: set[str]) -> None:
    base = results(time=only(lambda m, t, tp, mode, a: m == "v4-pro" and t == 4, 0.5))
    few = Results(base.matrix.of(model=models), base.screen.of(model=models), base.weights)

    found = findings.check(few, {}, None)

    comparing = {"model_order", "sensitivity_order", "flash_always_first", "mapping_matters"}
    assert {each.key for each in found if each.verdict == "not checked"} == unchecked | comparing
    assert verdict(found, "distributed_nics").verdict == ("fails" if "v4-pro" in models else "holds")


def test_quantities_by_hand() -> None:
    base = results()

    assert quantities.value(base, "glm", "t1_over_t6") == pytest.approx(
        100 * (base.model("glm").of(topology=1).mean() / base.model("glm").of(topology=6).mean() - 1)
    )
    assert quantities.value(base, "all", "glm_over_kimi") == pytest.approx(100 * (SCALE["glm"] / SCALE["kimi-k3"] - 1))
    # communication is nine tenths of every made-up cell
    assert quantities.value(base, "all", "comm_share") == pytest.approx((90.0, 90.0))
    assert quantities.value(base, "all", "matched_flash_first") == 192
    assert quantities.value(base, "kimi-k3", "screen_ring_ring") == 2.5
    assert quantities.value(base, "flash", "dcqcn_over_hpcc_t3") == pytest.approx(1.3 * 1.2)
    with pytest.raises(Exception, match="no quantity"):
        quantities.value(base, "flash", "beauty")


def test_wins_and_ranks_count_matched_configurations() -> None:
    base = results(time=lambda m, t, tp, mode, a: 0.1 if m == "v4-pro" and a == "ring_direct" else None)

    assert quantities.wins(base, "v4-pro", "kimi-k3", algorithm="ring_direct") == 96
    assert quantities.wins(base, "kimi-k3", "v4-pro", algorithm="dbt_direct") == 96
    assert quantities.ranked(base, "v4-pro", 1) == 96
    assert CHECKS["kimi_pro_reversal"](base) is True
