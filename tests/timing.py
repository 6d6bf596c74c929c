"""What a piece of work costs on this processor when nothing disturbs it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

TRIES = 5


def cpu_seconds(work: Callable[[], object]) -> float:
    """The least processor time (s) of several tries, without garbage collection.

    What runs beside it only ever adds, and a collection walks everything that the tests before it have left.
    """
    spent = []
    gc.disable()
    try:
        for _ in range(TRIES):
            started = time.process_time()
            work()
            spent.append(time.process_time() - started)
    finally:
        gc.enable()
    return min(spent)
