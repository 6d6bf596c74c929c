"""The study's collectives on its networks: bounds, what modes may change, and that equal questions are asked once."""

from __future__ import annotations

import csv
from typing import Any

import pytest

from backends.network import Collective, NetworkModel
from ccl_search.sweeping.moe import matrix, timing
from ccl_search.sweeping.moe.definitions import Setting, all_reduce, all_to_all, study
from tests.reference import shared_path

MODES = ("ib-none", "ib-hpcc", "roce-hpcc", "roce-dcqcn")
USUAL = Setting()
NAMES = {"Flash": "flash", "GLM": "glm", "KimiK3": "kimi-k3", "V4Pro": "v4-pro"}


def seconds(topology: int, mode: str, collective: Collective) -> float:
    return timing.answer(timing.question(topology, mode, collective, USUAL))


def times(topology: int, tp: int, algorithm: str = "ring_direct", setting: Setting = USUAL) -> list[float]:
    return [matrix.cell(topology, tp, 32 // tp, mode, "flash", algorithm, setting).time_s for mode in MODES]


@pytest.mark.parametrize("tp", [2, 4, 8, 16])
def test_no_all_reduce_beats_its_bandwidth(tp: int) -> None:
    step = all_reduce(study().model("flash"), tp, 32 // tp, "ring", USUAL)

    # a ring sends 2 (n-1)/n of the buffer over every link, 400 Gb/s at best
    assert seconds(1, "roce-none", step) > 2 * (tp - 1) / tp * step.nbytes / 50e9


def test_without_a_network_all_modes_are_equal() -> None:
    assert len(set(times(6, 2))) == 1
    assert len(set(times(6, 16, "dbt_direct"))) == 1


def test_local_groups_take_the_same_in_every_mode_and_others_do_not() -> None:
    cells = [matrix.cell(2, 2, 16, mode, "flash", "ring_direct") for mode in MODES]

    assert len({cell.tp_s for cell in cells}) == 1  # two GPUs of one server
    assert len({cell.ep_s for cell in cells}) > 1  # experts are spread over all servers


def test_faster_cables_are_never_slower_and_foreign_classes_change_nothing() -> None:
    usual = times(4, 4)
    assert all(new <= old for new, old in zip(times(4, 4, setting=Setting(gbps=(("upi", 2.0),))), usual, strict=True))
    assert times(1, 4, setting=Setting(gbps=(("upi", 0.5), ("mesh", 0.5)))) == times(1, 4)
    assert times(6, 8, setting=Setting(gbps=(("mesh", 0.5),)))[0] > times(6, 8)[0]


def test_gpu_speed_and_message_sizes_scale_their_part() -> None:
    usual = matrix.cell(1, 4, 8, "ib-none", "flash", "ring_direct")
    fast = matrix.cell(1, 4, 8, "ib-none", "flash", "ring_direct", Setting(gpu=2.0))
    small = matrix.cell(1, 4, 8, "ib-none", "flash", "ring_direct", Setting(all_to_all=0.5))

    assert fast.gpu_s == pytest.approx(usual.gpu_s / 2)
    assert (fast.tp_s, fast.ep_s) == (usual.tp_s, usual.ep_s)
    assert small.ep_s < usual.ep_s
    assert small.tp_s == usual.tp_s


def test_the_literatures_tree_is_faster_than_that_of_the_simulator() -> None:
    ring, theirs, tree = (times(1, 16, name)[0] for name in ("ring_direct", "dbt_direct", "tree_direct"))

    assert tree < theirs  # half the buffer on each of two trees against all of it on one
    assert theirs > ring


def test_what_is_asked_alike_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated: list[Any] = []
    real = NetworkModel._simulate

    def counting(self: NetworkModel, collective: Any) -> Any:
        simulated.append((id(self), collective))
        return real(self, collective)

    timing._network.cache_clear()
    monkeypatch.setattr(NetworkModel, "_simulate", counting)
    gpu = [Setting(gpu=factor) for factor in (1.0, 2.0)]
    foreign = [Setting(gbps=(("mesh", 0.5),)), Setting(network=(("ecn_min", 2e-6), ("ecn_max", 8e-6)))]
    larger = Setting(all_reduce=2.0)
    wanted = [
        place
        for place in matrix.places(study().only(["kimi-k3", "v4-pro"]), [*gpu, *foreign, larger])
        if (place.topology, place.tp) == (2, 2)
    ]

    found = matrix.run(wanted, 1)

    assert [len(some.cells) for some in found.values()] == [2 * 2 * 4] * 5
    # two models, each two all-reduces inside a server (once) and an all-to-all in each of four modes; other marks are
    # for DCQCN alone; two all-reduces of twice the size, and Kimi K3's are then those of V4 Pro, twice as wide
    assert len(simulated) == 2 * (2 + 4) + 2 * 1 + 2
    assert len(set(simulated)) == len(simulated)


def test_the_matrix_has_the_cells_that_are_computed_alone() -> None:
    wanted = [
        place for place in matrix.places(study(), [USUAL, Setting(gpu=2.0)]) if (place.topology, place.tp) == (2, 8)
    ]

    for setting, found in matrix.run(wanted, 2).items():
        assert len(found.cells) == 4 * 2 * 4
        for cell in found.of(model=("flash", "glm"), mode="ib-none").cells:
            assert cell == matrix.cell(2, 8, 4, "ib-none", cell.model, cell.algorithm, setting)


@pytest.mark.shared
def test_cells_are_near_the_reference_layers() -> None:
    with shared_path("data/astra/moe_study/ns3.csv").open(newline="") as file:
        rows = [
            row for row in csv.DictReader(file)
            if row["status"] == "ok" and row["variant"] == "ar2_a2aA" and row["tokens"] == "4096"
            and row["payload"] == "9000" and (row["dataset_splits"], row["active_chunks"]) == ("4", "1")
            and row["algorithm"] == "ring_direct" and not row["note"].strip() and row["cc"] == "none"
            and row["topo_file"] in ("topologies/T6_mesh256.txt", "topologies/T1_net1us_pcie400.txt")
        ]  # fmt: skip
    assert len(rows) >= 4
    for row in rows:
        model = study().model(NAMES[row["model"]])
        topology, tp, ep = int(row["topology"][1:]), int(row["tp"]), int(row["ep"])
        found = matrix.cell(topology, tp, ep, "roce-none", model.key, "ring_direct")
        assert found.time_s == pytest.approx(float(row["layer_ns"]) * 1e-9 * model.layers, rel=0.15), row


def test_all_to_all_of_a_ring_is_slower_than_a_direct_one() -> None:
    flash = study().model("flash")
    ring, direct = (seconds(1, "roce-hpcc", all_to_all(flash, 4, 8, name, USUAL)) for name in ("ring", "direct"))
    assert ring > 2 * direct
