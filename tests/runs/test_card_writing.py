"""Cards written: round trips, cards of bundled workloads, cards of trials."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from runs import catalogue
from runs.card import card_from, load_card, parse_card, to_yaml, with_plan
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from tests.runs.test_card import CARD

ENVIRONMENTS = ("perlmutter-a100-16", "tpu-v6e-8", "h100-32")
KEYS = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=("Cs", "Cc")), min_size=1, max_size=12
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | KEYS
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(KEYS, VALUES, max_size=3),
    st.dictionaries(KEYS, VALUES, max_size=3),
    st.dictionaries(st.sampled_from(["seq_len", "batch_size", "dataset", "input_len"]), VALUES),
)
def test_unknown_fields_and_strange_values_are_written_back(top: dict, inner: dict, data: dict) -> None:  # type: ignore[type-arg]
    document: dict[str, Any] = {
        **{key: value for key, value in top.items() if key not in ("workload", "Model-executor", "metric_source")},
        "workload": {"data": {**inner, **data}, "model": None},
    }
    card = parse_card(yaml.safe_dump(document)).card
    written = yaml.safe_load(to_yaml(card))
    assert written == document
    assert parse_card(to_yaml(card)).card == card


@pytest.mark.parametrize(
    "key", ["copy", "model_dump", "executor", "model_extra", "model_fields_set", "__dict__", "json", "1", "yes"]
)
def test_keys_that_are_names_of_methods_are_only_fields(key: str) -> None:
    document = {"workload": {"model": {key: 1}}, key: {"a": [1]}}
    card = parse_card(yaml.safe_dump(document)).card
    assert yaml.safe_load(to_yaml(card)) == document


def test_the_order_of_the_template_comes_first() -> None:
    lines = CARD.splitlines(keepends=True)
    turned = "zebra: 1\n" + "".join(lines[lines.index("workload:\n") :]) + "".join(lines[: lines.index("workload:\n")])
    text = to_yaml(parse_card(turned).card)
    assert list(yaml.safe_load(text)) == [
        "version", "description", "hf_url", "trace_url", "contributor", "contact", "workload", "Model-executor",
        "metric_source", "zebra",
    ]  # fmt: skip
    assert to_yaml(parse_card(text).card) == text


def test_the_file_never_changes(tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    path.write_text(CARD.replace("two nodes", "nodes: two"))
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    loaded = load_card(path)
    to_yaml(with_plan(loaded.card, ParallelPlan("torchtitan"), 5))
    loaded.card.workload()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


@pytest.mark.parametrize("workload_name", catalogue.workload_names())
@pytest.mark.parametrize("environment_name", ENVIRONMENTS)
def test_bundled_facts_survive_a_card(workload_name: str, environment_name: str) -> None:
    workload = catalogue.workload(workload_name)
    environment = catalogue.with_framework(catalogue.environment(environment_name), "torchtitan", "0.2.0")
    loaded = parse_card(to_yaml(card_from(workload, environment)))
    again, there = loaded.card.workload(), loaded.card.environment()
    assert replace(again, model=replace(again.model, source="")) == replace(
        workload, model=replace(workload.model, source="")
    )
    assert replace(there, source="") == replace(environment, source="")
    assert again.policy_input() == workload.policy_input()
    assert there.policy_input() == environment.policy_input()


@pytest.mark.parametrize("workload_name", ["wl1", "wl4", "wl6"])
def test_our_own_cards_raise_no_warning(workload_name: str) -> None:
    environment = catalogue.with_framework(catalogue.environment("perlmutter-a100-16"), "torchtitan", "0.2.0")
    card = card_from(catalogue.workload(workload_name), environment)
    plan = ParallelPlan("torchtitan", tp=2, dp_shard=8, ep=4)
    findings = parse_card(to_yaml(with_plan(card, plan, 5))).findings
    assert [str(each) for each in findings if each.severity != "info"] == []
    assert {each.code for each in findings} == {"contributor_missing", "trace_url_missing"}


def test_a_shape_of_its_own_survives_although_the_family_is_bundled() -> None:
    workload = catalogue.workload("wl1")
    odd = replace(workload, model=replace(workload.model, tied_embeddings=False, num_layers=3, num_params=None))
    card = card_from(odd, catalogue.environment("perlmutter-a100-16"))
    model = card.workload().model
    assert (model.tied_embeddings, model.num_layers, model.num_params) == (False, 3, None)


def test_a_plan_fills_the_card() -> None:
    plan = ParallelPlan(
        "torchtitan", tp=2, pp=2, dp_shard=2, cp=1, micro_batch_size=2, num_microbatches=2, recompute="selective",
        communication_library="MSCCL++", rank_mapping="dp-first",
    )  # fmt: skip
    card = with_plan(parse_card(CARD).card, plan, 7)
    facts = card.normalised()
    assert {key: facts[key] for key in ("tp", "pp", "dp", "cp", "ep", "total_count")} == {
        "tp": 2, "pp": 2, "dp": 2, "cp": 1, "ep": 1, "total_count": 8,
    }  # fmt: skip
    assert (card.model.iteration, card.plan.pp_mb, card.plan.activation_checkpointing) == (7, 2, "selective")
    assert (card.library.name, card.library.version, card.plan.rank_mapping) == ("MSCCL++", "2.27.3", "dp-first")
    assert parse_card(to_yaml(card)).findings == ()


@pytest.mark.parametrize(("tp", "dp", "total", "per_node"), [(4, 1, 4, 4), (2, 1, 2, 2), (2, 4, 8, 4)])
def test_devices_are_those_the_trial_used(tp: int, dp: int, total: int, per_node: int) -> None:
    card = with_plan(parse_card(CARD).card, ParallelPlan("torchtitan", tp=tp, dp_shard=dp), 5)
    assert (card.xpu.total_count, card.xpu.count_per_node) == (total, per_node)


def test_a_smaller_slice_of_a_bundled_environment_is_named_so() -> None:
    card = card_from(catalogue.workload("wl4"), catalogue.environment("perlmutter-a100-16"))
    smaller = with_plan(card, ParallelPlan("torchtitan", tp=2, dp_shard=4), 5)
    assert smaller.environment() == replace(catalogue.environment("perlmutter-a100-8"), source="")


def test_a_plan_for_more_devices_is_refused() -> None:
    with pytest.raises(BadInputError, match="needs 16 devices, the card has total_count 8"):
        with_plan(parse_card(CARD).card, ParallelPlan("torchtitan", tp=16), 5)


def test_filling_leaves_the_card_itself_alone() -> None:
    card = parse_card(CARD).card
    with_plan(card, ParallelPlan("torchtitan"), 9)
    assert card == parse_card(CARD).card
