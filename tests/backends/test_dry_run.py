"""Which network a dry run uses: the environment's, scaled by a calibration, or one that the plan names."""

from __future__ import annotations

import pytest

from backends.calibration import Calibration
from backends.dry_run import dry_run, execution_graph, network_for
from runs import catalogue
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from tests.backends.doubles import SERVING_STATE, perlmutter

PREFILL = catalogue.workload("moe-prefill-v4-flash")


def study(tp: int, topology: int, mode: str = "roce-none") -> float:
    plan = ParallelPlan(
        "command", tp=tp, ep=32 // tp, expert_placement="own_axis", topology=topology, network_mode=mode,
        tp_algorithm="ring", ep_algorithm="direct", state_bytes=SERVING_STATE,
    )  # fmt: skip
    return dry_run(PREFILL, catalogue.environment("h100-32"), plan).comm_s


def test_equal_questions_share_one_network() -> None:
    assert network_for(perlmutter()) is network_for(perlmutter())
    assert network_for(perlmutter()) is not network_for(perlmutter(32))
    assert network_for(perlmutter()) is not network_for(perlmutter(), Calibration("x", bandwidth={"inter_node": 0.5}))


def test_training_and_serving_have_their_graphs() -> None:
    assert execution_graph(catalogue.workload("wl4"), ParallelPlan("test", num_microbatches=4)).steps == 1
    assert execution_graph(catalogue.workload("wl1"), ParallelPlan("vllm")).steps > 128


def test_wide_tensor_parallelism_loses_on_every_server_of_the_study() -> None:
    # the study's finding: TP2 < TP16 in communication time on each of its six topologies
    for topology in range(1, 7):
        assert study(2, topology) < study(16, topology)


def test_one_big_server_wins_narrow_and_loses_wide() -> None:
    assert study(2, 6) < study(2, 1)
    assert study(16, 6) > study(16, 1)


def test_infiniband_hops_are_shorter() -> None:
    assert study(16, 1, "ib-none") < study(16, 1, "roce-none")
    assert study(16, 6, "ib-none") == study(16, 6, "roce-none")  # no hop leaves the server


@pytest.mark.parametrize(("mode", "topology"), [("ethernet-none", 1), ("ib-magic", 1), ("roce-none", 7)])
def test_unknown_networks_are_refused(mode: str, topology: int) -> None:
    with pytest.raises(BadInputError, match="is called"):
        study(2, topology, mode)
