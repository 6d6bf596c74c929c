"""A clock that moves only when somebody sleeps on it."""

from __future__ import annotations

from ccl_search.llm.retries import RetryPolicy


class ManualClock:
    """`sleeps` are the seconds of every sleep."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds

    def retries(self, total_s: float = 900.0) -> RetryPolicy:
        return RetryPolicy(total_s=total_s, clock=self, sleep=self.sleep)
