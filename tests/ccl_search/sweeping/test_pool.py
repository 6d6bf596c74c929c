"""Work in processes: all of it comes back, errors do too."""

from __future__ import annotations

import math
import os
import signal

import pytest

from ccl_search.sweeping import pool
from runs.errors import BadInputError


def where(item: int) -> tuple[int, int]:
    return math.factorial(item), os.getpid()


def test_one_process_is_this_one_and_keeps_the_order() -> None:
    found = list(pool.each(where, [3, 1, 2], 1))

    assert found == [(item, (math.factorial(item), os.getpid())) for item in (3, 1, 2)]


def test_two_processes_do_everything_elsewhere() -> None:
    found = dict(pool.each(where, [3, 1, 2, 4], 2))

    assert {item: value for item, (value, _) in found.items()} == {1: 1, 2: 2, 3: 6, 4: 24}
    assert os.getpid() not in {process for _, process in found.values()}


def ctrl_c_is_held(_item: int) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_workers_leave_ctrl_c_to_their_parent_from_their_first_moment() -> None:
    found = dict(pool.each(ctrl_c_is_held, [1, 2], 2))

    assert set(found.values()) == {True}
    assert not ctrl_c_is_held(0)  # here it works as before


def test_an_error_in_a_process_is_raised_here() -> None:
    with pytest.raises(ValueError, match="factorial"):
        list(pool.each(where, [1, -1, 2], 2))


def test_no_process_is_refused() -> None:
    with pytest.raises(BadInputError, match="0 processes"):
        list(pool.each(where, [1], 0))
