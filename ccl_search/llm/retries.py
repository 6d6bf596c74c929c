"""When a failed attempt is tried again, how long to wait, and when to give up. The SDK's own retries are off."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ccl_search.llm.errors import RETRIED_STATUS, failure_text

if TYPE_CHECKING:
    from tenacity import RetryCallState, Retrying

RETRIED_KINDS = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error"})
_DOZE_S = 0.1
LOCAL_KINDS = frozenset({"truncated_answer", "malformed_answer", "connection_error", "connection_timeout"})


class AttemptFailedError(Exception):
    """One HTTP attempt failed. `status` is None when no answer came; `kind` is the API's error type or our own."""

    def __init__(
        self,
        kind: str,
        message: str,
        status: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(failure_text(status, kind, message))
        self.kind = kind
        self.message = message
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later. A status of 200 is judged by the kind of error it carries."""
        if self.status is None or self.status < 400:
            return self.kind in RETRIED_KINDS | LOCAL_KINDS
        return self.status in RETRIED_STATUS or self.status >= 500

    @property
    def may_be_billed(self) -> bool:
        """Whether the API may have done the work although no usable answer arrived."""
        return self.kind in LOCAL_KINDS


@dataclass(frozen=True)
class RetryNotice:
    """What is told before every wait: seconds, the number of the attempt that failed, and why it failed."""

    seconds: float
    attempt: int
    reason: str


@dataclass(frozen=True)
class RetryPolicy:
    """Seconds: at most `total_s` from the first attempt on, waits included; `retry-after` counts up to its cap.

    `cancelled` ends a wait at once. `sleep` and `clock` are injectable for tests.
    """

    total_s: float = 900.0
    retry_after_cap_s: float = 120.0
    min_wait_s: float = 2.0
    max_wait_s: float = 60.0
    cancelled: threading.Event = field(default_factory=threading.Event)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] | None = None

    def retrying(self, notify: Callable[[RetryNotice], None]) -> Retrying:
        """A tenacity loop that follows this policy and re-raises the last `AttemptFailedError`."""
        import tenacity

        started = self.clock()
        jitter = tenacity.wait_random_exponential(multiplier=self.min_wait_s, max=self.max_wait_s, min=self.min_wait_s)

        def wait(state: RetryCallState) -> float:
            asked = min(_failure(state).retry_after or 0.0, self.retry_after_cap_s)
            return max(asked, jitter(state))

        def stop(state: RetryCallState) -> bool:
            return self.clock() - started + state.upcoming_sleep > self.total_s

        def announce(state: RetryCallState) -> None:
            notify(RetryNotice(state.upcoming_sleep, state.attempt_number, str(_failure(state))))

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_transient),
            wait=wait,
            stop=stop,
            before_sleep=announce,
            sleep=self._wait,
            reraise=True,
        )

    def _wait(self, seconds: float) -> None:
        (self.sleep or self._doze)(seconds)

    def _doze(self, seconds: float) -> None:
        # Not `cancelled.wait`: a signal handler that sets the event while its lock is held here would block for ever.
        end = time.monotonic() + seconds
        while not self.cancelled.is_set() and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _DOZE_S))


def is_transient(error: BaseException) -> bool:
    """Whether `error` is a failed attempt worth another one."""
    return isinstance(error, AttemptFailedError) and error.is_transient


def _failure(state: RetryCallState) -> AttemptFailedError:
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, AttemptFailedError)
    return error
