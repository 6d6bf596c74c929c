"""The study's definitions: sizes, GPU times and groups against hand calculation and the reference runs."""

from __future__ import annotations

import csv

import pytest

from ccl_search.sweeping.moe.definitions import (
    Setting,
    all_reduce,
    all_to_all,
    gpu_seconds,
    groups,
    published,
    study,
)
from ccl_search.sweeping.moe.experiment import parameters, weights
from ccl_search.sweeping.moe.findings import CHECKS
from ccl_search.sweeping.moe.matrix import places
from runs.errors import BadInputError
from tests.reference import shared_path

USUAL = Setting()
NAMES = {"Flash": "flash", "GLM": "glm", "KimiK3": "kimi-k3", "V4Pro": "v4-pro"}


def test_the_matrix_has_192_configurations_a_model() -> None:
    what = study()

    count = len(what.topologies) * len(what.partitions) * len(what.modes) * len(what.algorithms)
    assert (len(what.models), count) == (4, 192)
    assert len(set(places(what, [USUAL]))) == 768
    assert {tp * ep for tp, ep in what.partitions} == {what.data["ranks"]}


def test_the_models_are_those_of_the_catalogue() -> None:
    found = {m.key: (m.layers, m.width, m.experts_per_token, m.expert_width) for m in study().models}

    # config.json of each model; Kimi K3's experts see a latent of 3584
    assert found == {
        "flash": (43, 4096, 6, 2048), "kimi-k3": (93, 3584, 16, 3072),
        "glm": (78, 6144, 8, 2048), "v4-pro": (61, 7168, 6, 3072),
    }  # fmt: skip


def test_message_sizes_by_hand() -> None:
    flash = study().model("flash")

    assert all_reduce(flash, 4, 8, "ring", USUAL).nbytes == 4096 * 4096 * 2
    assert all_to_all(flash, 4, 8, "direct", USUAL).nbytes == 512 * 6 * 4096 * 2
    assert all_to_all(flash, 4, 8, "direct", Setting(all_to_all=0.5)).nbytes == 256 * 6 * 4096 * 2


@pytest.mark.parametrize("mapping", ["tp-ep", "ep-tp"])
@pytest.mark.parametrize(("tp", "ep"), [(2, 16), (4, 8), (8, 4), (16, 2)])
def test_every_rank_is_in_one_group_of_each_kind(tp: int, ep: int, mapping: str) -> None:
    tensor, expert = groups(tp, ep, mapping)

    assert sorted(rank for group in tensor for rank in group) == list(range(32))
    assert sorted(rank for group in expert for rank in group) == list(range(32))
    assert {len(group) for group in tensor} == {tp}
    assert {len(group) for group in expert} == {ep}
    assert all(len(set(one) & set(other)) == 1 for one in tensor for other in expert)
    contiguous = tensor if mapping == "tp-ep" else expert
    assert all(group == tuple(range(group[0], group[0] + len(group))) for group in contiguous)


def test_unknown_models_and_mappings_are_refused() -> None:
    with pytest.raises(BadInputError, match="no model 'gpt'"):
        study().only(["gpt"])
    with pytest.raises(BadInputError, match="mapping"):
        groups(2, 16, "pp-tp")
    assert [m.key for m in study().only(["moe-prefill-glm-5", "flash"]).models] == ["flash", "glm"]


@pytest.mark.shared
def test_gpu_times_are_those_of_the_reference_runs() -> None:
    with shared_path("data/astra/moe_study/ns3.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] == "ok" and row["tokens"] == "4096"]

    assert len(rows) > 50
    for row in rows:
        model, tp, ep = study().model(NAMES[row["model"]]), int(row["tp"]), int(row["ep"])
        assert gpu_seconds(model, tp, ep, USUAL) * 1e9 == pytest.approx(float(row["gpu_ns"]), rel=1e-3)


def test_weights_of_a_rank() -> None:
    found = weights(study())

    assert found["kimi-k3"] == pytest.approx(48.75)  # the file the study states, 1560 GB over 32 ranks
    flash = study().model("flash")
    # experts alone: 43 layers of 257 (one shared) times three matrices of 4096 x 2048
    assert parameters(flash) == pytest.approx(43 * 257 * 3 * 4096 * 2048, rel=0.05)
    assert found["flash"] == pytest.approx(parameters(flash) / 32e9)
    assert weights(study(), 2.0)["flash"] == pytest.approx(2 * found["flash"])


def test_every_finding_has_a_rule_and_every_figure_a_place() -> None:
    data = published()

    assert {entry["key"] for entry in data["findings"]} == set(CHECKS) | {"mapping_matters"}
    assert all(place and unit for _, _, _, unit, place in data["facts"])
    named = {quantity for _, quantity, *_ in data["facts"]} | {
        q for each in data["findings"] for q in each["quantities"]
    }
    assert named <= set(data["quantities"])
    keys = [(model, quantity) for model, quantity, *_ in data["facts"]]
    assert len(set(keys)) == len(keys)
