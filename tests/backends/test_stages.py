"""Layer splits and pipeline schedules."""

from __future__ import annotations

import itertools

import pytest

from backends.stages import Action, in_flight, schedule, split_layers
from runs.errors import BadInputError

CASES = [("1f1b", 1), ("gpipe", 1), ("interleaved", 2), ("interleaved", 3)]


@pytest.mark.parametrize(("layers", "stages"), [(60, 8), (27, 4), (32, 3), (5, 5), (7, 1)])
def test_splits_cover_all_layers_within_one_of_each_other(layers: int, stages: int) -> None:
    bounds = split_layers(layers, stages)
    sizes = [end - first for first, end in bounds]
    assert bounds[0][0] == 0
    assert all(a[1] == b[0] for a, b in itertools.pairwise(bounds))
    assert bounds[-1][1] == layers
    assert max(sizes) - min(sizes) <= 1


def test_the_stages_with_embedding_and_head_get_no_extra_layer() -> None:
    sizes = [end - first for first, end in split_layers(60, 8)]
    assert sizes == [7, 8, 8, 8, 8, 7, 7, 7]


def test_more_stages_than_layers_is_refused() -> None:
    with pytest.raises(BadInputError, match="cannot fill"):
        split_layers(4, 5)


@pytest.mark.parametrize(("kind", "chunks"), CASES)
@pytest.mark.parametrize("stage", range(4))
def test_every_pass_runs_once_and_forward_before_backward(kind: str, chunks: int, stage: int) -> None:
    order = schedule(kind, stage, 4, 8, chunks)
    assert len(order) == len(set(order)) == 2 * 8 * chunks
    for microbatch in range(8):
        for chunk in range(chunks):
            forward, backward = Action("forward", microbatch, chunk), Action("backward", microbatch, chunk)
            assert order.index(forward) < order.index(backward)


def test_one_f_one_b_on_the_second_of_three_stages() -> None:
    text = [f"{a.phase[0]}{a.microbatch}" for a in schedule("1f1b", 1, 3, 4)]
    assert text == ["f0", "f1", "b0", "f2", "b1", "f3", "b2", "b3"]


@pytest.mark.parametrize("stage", range(4))
def test_passes_in_flight(stage: int) -> None:
    # Narayanan et al. 2021: 1F1B keeps at most pp - stage micro-batches, GPipe all of them
    assert in_flight("1f1b", stage, 4, 8) == 4 - stage
    assert in_flight("gpipe", stage, 4, 8) == 8
    assert in_flight("1f1b", stage, 4, 2) == min(4 - stage, 2)


def test_interleaving_keeps_more_passes_of_smaller_chunks() -> None:
    assert in_flight("interleaved", 0, 4, 8, 2) == (4 - 1) * 2 + (2 - 1) * 4 + 1


def test_interleaving_needs_whole_rounds() -> None:
    with pytest.raises(BadInputError, match="multiples"):
        schedule("interleaved", 0, 4, 6, 2)


def test_unknown_schedule_is_refused() -> None:
    with pytest.raises(BadInputError, match="unknown pipeline schedule"):
        schedule("zigzag", 0, 4, 8)


@pytest.mark.parametrize("kind", ["1f1b", "gpipe", "interleaved"])
def test_one_stage_alone_accumulates_gradients_and_holds_one_pass(kind: str) -> None:
    assert in_flight(kind, 0, 1, 64) == 1
