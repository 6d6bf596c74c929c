"""From logged times to what ranks did: waiting is kept apart from communication."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.astra.cautions import cautions, check_flags
from backends.astra.mending import without_lone_collectives
from backends.astra.output import Operation
from backends.astra.spans import spans_of
from backends.exchange.raw import figures_of
from runs.errors import BadInputError
from tests.backends.astra import traces as make


def _op(rank: int, node: int, start: int, end: int) -> Operation:
    return Operation(rank, node, f"n{node}", 4, start, end)


def test_a_collective_is_under_way_once_its_last_member_asks(tmp_path: Path) -> None:
    fast = [make.work(1, 1), make.collective(2, 1 << 20, (1,))]
    slow = [make.work(1, 5), make.collective(2, 1 << 20, (1,))]
    inputs = make.load(tmp_path, [fast, slow])
    logged = [_op(0, 1, 0, 1000), _op(1, 1, 0, 5000), _op(0, 2, 1000, 9000), _op(1, 2, 5000, 9000)]
    spans, missing = spans_of(inputs, logged)
    assert missing == 0
    assert [(one.start, one.moving, one.end) for one in spans[0]] == [(0, 0, 1000), (1000, 5000, 9000)]
    first, second = (figures_of(mine) for mine in spans)
    assert (first.wall, first.compute, first.comm, first.exposed, first.bubble) == (9000, 1000, 4000, 4000, 4000)
    assert (second.wall, second.compute, second.comm, second.exposed, second.bubble) == (9000, 5000, 4000, 4000, 0)
    assert first.operations == 8000  # what the program itself calls communication


def test_a_receiver_waits_until_its_sender_sends(tmp_path: Path) -> None:
    sender = [make.work(1, 4), make.message(2, 0, 1, 100, True, (1,)), make.message(3, 0, 1, 100, True, (2,))]
    receiver = [make.message(1, 0, 1, 100, False), make.message(2, 0, 1, 100, False, (1,))]
    inputs = make.load(tmp_path, [sender, receiver])
    logged = [
        _op(0, 1, 0, 4000), _op(0, 2, 4000, 4100), _op(0, 3, 4100, 4200), _op(1, 1, 0, 4600), _op(1, 2, 4600, 4700)
    ]  # fmt: skip
    spans, _ = spans_of(inputs, logged)
    assert [(one.start, one.moving, one.end) for one in spans[1]] == [(0, 4000, 4600), (4600, 4600, 4700)]
    assert figures_of(spans[1]).bubble == 4000


def test_nodes_that_the_log_lacks_are_counted(tmp_path: Path) -> None:
    inputs = make.load(tmp_path, [[make.work(1, 1), make.work(2, 1)]] * 2)
    assert spans_of(inputs, [_op(0, 2, 0, 1000), _op(1, 1, 0, 1000), _op(7, 1, 0, 5)])[1] == 2


def test_lone_collectives_go_and_what_waited_for_them_waits_for_what_they_waited_for(tmp_path: Path) -> None:
    nodes = [
        make.work(1, 1), make.collective(2, 64, (1,), "1"), make.collective(3, 64, (2,), "1"), make.work(4, 1, (3,)),
        make.collective(5, 64, (4,), "2"),
    ]  # fmt: skip
    other = [make.work(1, 1), make.collective(5, 64, (1,), "2")]
    inputs = make.load(tmp_path, [nodes, other], groups={"1": [0], "2": [0, 1]})
    changed, gone = without_lone_collectives(inputs)
    assert gone == 2
    assert list(changed) == [0]
    assert [(node.id, node.deps) for node in changed[0].nodes] == [(1, ()), (4, (1,)), (5, (4,))]


@pytest.mark.parametrize(
    ("system", "kind", "engine", "said"),
    [
        ({"all-reduce-implementation": ["doubleBinaryTree"]}, 0, "aware", "the whole buffer over every edge"),
        ({"reduce-scatter-implementation": ["doubleBinaryTree"]}, 7, "aware", "all-reduce in place of reduce_scatter"),
        ({"all-to-all-implementation": ["ring"]}, 6, "aware", "ring all-to-all"),
        ({"all-reduce-implementation": ["direct"]}, 0, "unaware", "below the bandwidth bound"),
        ({"preferred-dataset-splits": 8}, 0, "aware", "8 chunks of which 1"),
        ({}, 0, "aware", "each is serialised twice"),
    ],
)
def test_known_traps_are_said(system: dict[str, object], kind: int, engine: str, said: str, tmp_path: Path) -> None:
    inputs = make.load(tmp_path, [[make.collective(1, 1 << 20, (), None, kind)]] * 4, system=system)
    assert said in " | ".join(cautions(inputs, engine))  # type: ignore[arg-type]


def test_two_groups_of_a_rank_on_one_dimension_are_said(tmp_path: Path) -> None:
    groups = {"1": [0, 1], "2": [2, 3], "3": [0, 2], "4": [1, 3]}
    names = [("1", "3"), ("1", "4"), ("2", "3"), ("2", "4")]
    ranks = [[make.collective(1, 1 << 20, (), a), make.collective(2, 1 << 20, (1,), b)] for a, b in names]
    assert "crash at its end" in " ".join(cautions(make.load(tmp_path, ranks, groups=groups), "aware"))
    two = "topology: [Switch, Switch]\nnpus_count: [2, 2]\nbandwidth: [100, 100]\nlatency: [500, 500]\n"
    system = {key: [*value, *value] for key, value in make.SYSTEM.items() if key.endswith("-implementation")}
    flat = make.load(tmp_path, ranks, groups=groups, network=two, system=system)
    said = " ".join(cautions(flat, "unaware"))
    assert "crash at its end" not in said
    assert "run ring in one dimension" in said


@pytest.mark.parametrize("flag", ["--comm-scale=2", "--compute-scale=2", "--nope=1", "num-queues-per-dim=2"])
def test_flags_that_do_nothing_are_refused(flag: str) -> None:
    with pytest.raises(BadInputError):
        check_flags((flag,))
