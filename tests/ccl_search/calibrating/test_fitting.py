"""The fit and its cross-validation on a machine whose factors are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ccl_search.calibrating.calibrate import fitted
from ccl_search.calibrating.fitting import Anchors, fit
from ccl_search.calibrating.parameters import LINKS, PARAMETERS, SIZE, Point, calibration, link_costs
from ccl_search.calibrating.validation import errors, folds, held_out, predict, spearman
from tests.ccl_search.calibrating.machine import SyntheticMachine

TRUE = np.array([1.5, 0.8, 2.0, 3.0, 4.0, 1.2, 0.7, 2.5])
NAMES = [parameter.name for parameter in PARAMETERS]


def test_known_factors_are_recovered() -> None:
    machine = SyntheticMachine(60)
    found = fit(Anchors(machine), machine.measured(TRUE), range(60))
    assert dict(zip(NAMES, found.costs, strict=True)) == pytest.approx(dict(zip(NAMES, TRUE, strict=True)), rel=0.2)


def test_factors_that_nothing_shows_stay_at_one() -> None:
    machine = SyntheticMachine(40)
    machine.loads[:, :, 2] = 0
    found = fit(Anchors(machine), machine.measured(TRUE), range(40))
    assert found.costs[2] == pytest.approx(1.0, abs=1e-6)


def test_the_right_machine_needs_no_factors() -> None:
    machine = SyntheticMachine(20)
    found = fit(Anchors(machine), machine.measured(np.ones(SIZE)), range(20))
    assert found.costs == pytest.approx(np.ones(SIZE), rel=0.03)
    assert found.overhead_s < 0.02 * np.median(machine.measured(np.ones(SIZE)))


def test_an_overhead_of_every_step_is_found() -> None:
    machine = SyntheticMachine(60)
    machine.loads *= np.random.default_rng(3).uniform(0.02, 1.0, size=(1, 60, 1))
    overhead = 0.2 * float(np.median(machine.measured(np.ones(SIZE))))
    found = fit(Anchors(machine), machine.measured(np.ones(SIZE), overhead), range(60))
    assert found.overhead_s == pytest.approx(overhead, rel=0.25)


def test_one_wild_measurement_moves_little() -> None:
    machine = SyntheticMachine(60)
    wild = machine.measured(TRUE)
    wild[7] *= 20
    found = fit(Anchors(machine), wild, range(60))
    assert found.costs == pytest.approx(TRUE, rel=0.25)


def test_a_prediction_never_saw_its_measurement() -> None:
    machine = SyntheticMachine(20)
    plain = machine.measured(TRUE)
    changed = plain.copy()
    changed[4] *= 3
    first, second = held_out(Anchors(machine), plain, 2), held_out(Anchors(machine), changed, 2)
    for repeat in range(2):
        fold = next(fold for fold in folds(20, repeat) if 4 in fold)
        others = [index for index in range(20) if index not in fold]
        assert second[repeat, fold].tolist() == first[repeat, fold].tolist()  # held out together with it
        assert (second[repeat, others] != first[repeat, others]).all()  # they were predicted by fits that saw it


def test_a_prediction_does_not_hang_on_other_folds() -> None:
    machine = SyntheticMachine(15)
    measured = machine.measured(TRUE)
    fold = folds(15, 0)[-1]
    kept = [index for index in range(15) if index not in fold]
    alone = fit(Anchors(machine), measured, kept)
    expected = [machine.seconds(index, alone.costs) + alone.overhead_s for index in fold]
    assert held_out(Anchors(machine), measured, 1)[0, fold].tolist() == expected


def test_noise_shows_in_the_held_out_error_and_not_where_it_was_fitted() -> None:
    machine = SyntheticMachine(12)
    noise = np.exp(np.random.default_rng(5).normal(0, 0.3, 12))
    found = fitted(machine, machine.measured(np.ones(SIZE)) * noise, repeats=3)
    assert found.fitted.median_error.value < found.held_out.median_error.value
    assert found.held_out.median_error.low < found.held_out.median_error.value < found.held_out.median_error.high


def test_folds_deal_every_index_once() -> None:
    dealt = folds(13, 4)
    assert sorted(index for fold in dealt for index in fold) == list(range(13))
    assert {len(fold) for fold in dealt} == {2, 3}
    assert folds(13, 4) == dealt != folds(13, 5)


def test_rank_correlation_by_hand() -> None:
    # ranks 1 2 3 4 against 1 3 2 4: 1 - 6 * (1 + 1) / (4 * 15)
    assert spearman(np.array([1.0, 2, 3, 4]), np.array([10.0, 30, 20, 40])) == pytest.approx(0.8)
    # ties take mean ranks: 1.5 1.5 3 against 1 2 3
    assert spearman(np.array([5.0, 5, 9]), np.array([1.0, 2, 3])) == pytest.approx(math.sqrt(3) / 2)


def test_errors_by_hand() -> None:
    measured = np.array([1.0, 2.0, 4.0])
    found = errors(np.array([[1.1, 2.4, 4.0], [1.0, 2.0, 4.0]]), measured)
    assert found.median_error.value == pytest.approx((0.1 + 0.0) / 2)
    assert found.spearman.value == pytest.approx(1.0)


def test_costs_become_factors() -> None:
    found = calibration("x", Point(np.array([2.0, 1, 1, 4, 5, 3, 1, 1.5]), 0.25), "trials.csv")
    assert found.compute["gemm"] == found.compute["grouped_gemm"] == 0.5
    assert found.compute["attention"] == 1.0
    assert found.bandwidth == {"intra_node": 0.25, "inter_node": 0.2}
    assert found.latency == {"intra_node": 3.0, "inter_node": 1.0}
    assert (found.launch, found.step_overhead_s, found.source) == (1.5, 0.25, "trials.csv")


def test_nothing_is_faster_than_its_hardware() -> None:
    machine = SyntheticMachine(40)
    found = fit(Anchors(machine), machine.measured(np.full(SIZE, 0.4)), range(40))
    factors = calibration("x", found)
    assert max(factors.bandwidth.values()) <= 1.0  # the nominal bandwidth of a link
    assert factors.compute["gemm"] * 0.80 <= 1.0 + 1e-9  # the share of its peak that the model grants a product
    assert factors.compute["elementwise"] * 0.80 <= 1.0 + 1e-9  # and of the memory bandwidth


def test_costs_known_from_elsewhere_are_kept_and_the_others_still_found() -> None:
    machine = SyntheticMachine(60)
    kept = link_costs([calibration("links", Point(TRUE))])
    found = fit(Anchors(machine, kept=kept), machine.measured(TRUE), range(60))
    assert {place: found.costs[place] for place in LINKS} == pytest.approx({place: TRUE[place] for place in LINKS})
    others = [place for place in range(SIZE) if place not in LINKS]
    assert found.costs[others] == pytest.approx(TRUE[others], rel=0.2)


def test_kept_links_predict_what_no_other_measurement_shows() -> None:
    machine = SyntheticMachine(24)
    machine.loads[:, 2:, 4] = 0  # two configs alone use the links between nodes
    measured, truth = machine.measured(TRUE), {4: float(TRUE[4])}
    alone, known = (predict(Anchors(machine, kept=kept), measured, [0, 1]) for kept in ({}, truth))
    assert known == pytest.approx(measured[:2], rel=0.2)
    assert max(abs(np.log(known / measured[:2]))) < max(abs(np.log(alone / measured[:2])))


def test_links_of_several_calibrations_are_their_geometric_mean() -> None:
    ones = np.ones(SIZE)
    slow, slower = ones.copy(), ones.copy()
    slow[4], slower[4], slow[6], slower[6] = 2.0, 8.0, 1.0, 9.0
    found = link_costs([calibration("a", Point(slow)), calibration("b", Point(slower))])
    assert [found[place] for place in LINKS] == pytest.approx([1.0, 4.0, 1.0, 3.0])
