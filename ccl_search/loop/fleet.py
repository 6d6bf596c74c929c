"""Several trials in flight at once: each waits in a thread of its own, everything else stays in the search's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from ccl_search.loop.suggestion import Suggestion
from launchers.base import Announcing, Handle, Job, JobState, Launcher
from runs.trial import Execution

_LOOK_UP_S = 0.2

_Given = TypeVar("_Given")
_Found = TypeVar("_Found")

Fly = Callable[[Suggestion], Sequence[Execution]]


class Fleet:
    """At most `limit` trials in flight. `fly` takes one to its end and runs in a thread of the fleet."""

    def __init__(self, limit: int, fly: Fly) -> None:
        self._limit = limit
        self._fly = fly
        self._pool = ThreadPoolExecutor(max_workers=limit, thread_name_prefix="trial")
        self._flights: dict[Future[Sequence[Execution]], Suggestion] = {}

    @property
    def has_room(self) -> bool:
        """Whether another trial may be launched."""
        return len(self._flights) < self._limit

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in flight."""
        return not self._flights

    def launch(self, suggestion: Suggestion) -> None:
        """Put a trial in flight."""
        self._flights[self._pool.submit(self._fly, suggestion)] = suggestion

    def land(self) -> tuple[Suggestion, Sequence[Execution]]:
        """Wait for the next trial that ends; what it raised is raised here.

        The wait looks up often, so that signals are served while it lasts.
        """
        while True:
            done, _ = wait(self._flights, timeout=_LOOK_UP_S, return_when=FIRST_COMPLETED)
            if done:
                first = min(done, key=lambda flight: self._flights[flight].number)
                suggestion = self._flights.pop(first)
                return suggestion, first.result()

    def close(self, wait: bool = True) -> None:
        """Start nothing new, and `wait` for the threads unless what they do hangs."""
        self._pool.shutdown(wait=wait, cancel_futures=True)


class OneAtATime:
    """A launcher whose calls never run at the same time: launchers need not be safe in several threads."""

    def __init__(self, launcher: Launcher) -> None:
        self.name = launcher.name
        self._launcher = launcher
        self._lock = threading.Lock()

    @property
    def announce(self) -> Callable[[str], None]:
        """See `Announcing`; of a launcher that announces nothing, what takes no notice."""
        return self._launcher.announce if isinstance(self._launcher, Announcing) else lambda _text: None

    @announce.setter
    def announce(self, told: Callable[[str], None]) -> None:
        if isinstance(self._launcher, Announcing):
            self._launcher.announce = told

    def submit(self, job: Job) -> Handle:
        """See `Launcher.submit`."""
        return self._call(self._launcher.submit, job)

    def poll(self, handle: Handle) -> JobState:
        """See `Launcher.poll`."""
        return self._call(self._launcher.poll, handle)

    def cancel(self, handle: Handle) -> None:
        """See `Launcher.cancel`."""
        self._call(self._launcher.cancel, handle)

    def collect(self, handle: Handle) -> Execution:
        """See `Launcher.collect`."""
        return self._call(self._launcher.collect, handle)

    def _call(self, method: Callable[[_Given], _Found], argument: _Given) -> _Found:
        with self._lock:
            return method(argument)
