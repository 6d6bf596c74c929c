"""Rank groups: the stated order of ranks, disjoint and complete groups, expert groups where the plan puts them."""

from __future__ import annotations

import pytest

from backends.layout import Layout, ShardDegrees
from runs.errors import BadInputError
from runs.plan import ParallelPlan


def layout(**fields: object) -> Layout:
    return Layout(ParallelPlan("test", **fields))  # type: ignore[arg-type]


def test_tensor_ranks_are_neighbours_and_stages_far_apart() -> None:
    grid = layout(tp=4, pp=2, dp_replicate=2)
    assert grid.groups("tp", 0) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert grid.groups("replicate", 1) == ((8, 12), (9, 13), (10, 14), (11, 15))
    assert grid.stage_ranks(1) == tuple(range(8, 16))


def test_shards_are_nearer_than_replicas() -> None:
    grid = layout(tp=2, dp_shard=2, dp_replicate=2)
    assert grid.groups("dp", 0) == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert grid.groups("replicate", 0) == ((0, 4), (1, 5), (2, 6), (3, 7))


@pytest.mark.parametrize("axis", ["tp", "cp", "ep", "dp", "replicate", "edp"])
def test_groups_share_a_stage_out_without_overlap(axis: str) -> None:
    grid = layout(tp=2, cp=2, pp=2, dp_shard=2, dp_replicate=2, ep=4)
    members = [rank for group in grid.groups(axis, 1) for rank in group]  # type: ignore[arg-type]
    assert sorted(members) == list(range(16, 32))


def test_expert_groups_inside_data_parallel_ranks() -> None:
    grid = layout(tp=2, dp_replicate=4, ep=2)
    assert grid.groups("ep", 0) == ((0, 2), (4, 6), (1, 3), (5, 7))
    assert set(grid.groups("edp", 0)) == {(0, 4), (2, 6), (1, 5), (3, 7)}


def test_expert_groups_that_take_tensor_ranks() -> None:
    grid = layout(tp=2, dp_replicate=2, ep=4, expert_placement="inside_dp_tp")
    assert grid.groups("ep", 0) == ((0, 1, 2, 3),)
    assert grid.groups("edp", 0) == ()


def test_expert_axis_of_its_own() -> None:
    grid = layout(tp=2, ep=4, expert_placement="own_axis")
    assert grid.groups("ep", 0) == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert grid.world == (tuple(range(8)),)


def test_rank_mapping_turns_the_axes() -> None:
    grid = layout(tp=2, ep=4, expert_placement="own_axis", rank_mapping="ep-tp")
    assert grid.groups("ep", 0) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert grid.groups("tp", 0) == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_unknown_mapping_is_refused() -> None:
    with pytest.raises(BadInputError, match="no order of axes"):
        layout(tp=2, rank_mapping="rows-first").groups("tp", 0)


def test_expert_degree_that_fits_nowhere_is_refused() -> None:
    with pytest.raises(BadInputError, match="does not divide"):
        layout(tp=2, dp_replicate=4, ep=3).groups("ep", 0)
    with pytest.raises(BadInputError, match="finds no ranks"):
        layout(tp=2, ep=2).groups("ep", 0)


def test_messages_join_the_same_place_of_two_stages() -> None:
    assert layout(tp=2, pp=2).pipeline_pairs(0, 1) == ((0, 2), (1, 3))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"dp_replicate": 4}, ShardDegrees(0, 1, 4)),
        ({"dp_replicate": 4, "zero_stage": 1}, ShardDegrees(1, 4, 1)),
        ({"dp_shard": 4, "dp_replicate": 2}, ShardDegrees(3, 4, 2)),
        ({"dp_shard": 4, "cp": 2, "zero_stage": 2}, ShardDegrees(2, 8, 1)),
    ],
)
def test_shard_degrees(fields: dict[str, int], expected: ShardDegrees) -> None:
    assert ShardDegrees.of(ParallelPlan("test", **fields)) == expected  # type: ignore[arg-type]
