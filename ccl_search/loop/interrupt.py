"""Ctrl-C in good order: the first finishes the running trial and stops, the second cancels it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

MOST_SIGNALS = 2
"""A signal more than these ends the process without waiting for anything."""


class Interrupt:
    """Counts SIGINT and SIGTERM while it is entered; `announce` is called with what each one will do.

    A third signal raises KeyboardInterrupt, for the case that cancelling hangs. `stopped` is set from the first one
    on, for whoever waits.
    """

    def __init__(self, announce: Callable[[str], None] = lambda _text: None) -> None:
        self.announce = announce
        self._previous: dict[int, Any] = {}
        self.stopped = threading.Event()
        self.count = 0

    @property
    def stop_requested(self) -> bool:
        """No new trial should start."""
        return self.count >= 1

    @property
    def cancel_requested(self) -> bool:
        """The running trial should be cancelled too."""
        return self.count >= 2

    def request(self) -> None:
        """Ask for a stop, as one Ctrl-C does."""
        self.count += 1
        self.stopped.set()
        if self.count == 1:
            self.announce("stopping after the running trial; press Ctrl-C again to cancel it")
        elif self.count == 2:
            self.announce("cancelling the running trial")
        else:
            raise KeyboardInterrupt

    def __enter__(self) -> Interrupt:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            self.count = max(self.count, 1)
        self.request()
