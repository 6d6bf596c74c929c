"""Work spread over processes: results come back as they are ready, and an error of one stops all."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from runs.errors import BadInputError, CclSearchError

_Given = TypeVar("_Given")
_Found = TypeVar("_Found")
_LOOK_UP_S = 0.2
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(
    work: Callable[[_Given], _Found], items: Sequence[_Given], processes: int | None = None
) -> Iterator[tuple[_Given, _Found]]:
    """`work(item)` of every item, in the order they end; in this process where one is enough.

    `work` and the items are pickled, so `work` is a function of a module. Items are begun in their order.

    Raises:
        BadInputError: `processes` is below one.
        CclSearchError: a process died (most often for want of memory). What `work` raises is raised here.
    """
    count = processes if processes is not None else cores()
    if count < 1:
        raise BadInputError(f"{count} processes", "--jobs is at least 1")
    if count == 1 or len(items) < 2:
        for item in items:
            yield item, work(item)
        return
    yield from _spread(work, items, min(count, len(items)))


def _spread(work: Callable[[_Given], _Found], items: Sequence[_Given], count: int) -> Iterator[tuple[_Given, _Found]]:
    context = multiprocessing.get_context("spawn")  # a fork would share the store's connection
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin)
    ended = False
    try:
        with _interrupts_held():
            pending: dict[Future[_Found], _Given] = {pool.submit(work, item): item for item in items}
        while pending:
            done, _ = wait(pending, timeout=_LOOK_UP_S, return_when=FIRST_COMPLETED)
            for future in done:
                yield pending.pop(future), future.result()
        ended = True
    except BrokenProcessPool as error:
        raise CclSearchError("a worker process died", "there may be too little memory; try a smaller --jobs") from error
    finally:
        pool.shutdown(wait=ended, cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """A Ctrl-C waits, here and for good in workers that are begun meanwhile, which are not yet as `_begin` has them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """A worker leaves Ctrl-C to its parent and keeps to one core."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in _THREADS:
        os.environ.setdefault(name, "1")
