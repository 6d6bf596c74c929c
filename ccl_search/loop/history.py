"""The finished trials of a run in memory, kept so that what the loop asks of them in every iteration costs no walk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ccl_search.proposers.base import TrialView
from ccl_search.settings import MAX_REPROPOSALS
from runs.space import config_key
from runs.trial import FailureClass, TrialState

_NOT_REMEMBERED = frozenset({FailureClass.CANCELLED, FailureClass.TRACE_MISSING, FailureClass.METRIC_ERROR})


class History:
    """Every finished trial in order, by iteration, and by config. Trials are only ever added."""

    def __init__(self) -> None:
        self._views: list[TrialView] = []
        self._iterations: dict[int, list[TrialView]] = defaultdict(list)
        self._tried: dict[str, TrialView] = {}
        self._over_before = 0
        self.newest_policy = ""

    def add(self, iteration: int, view: TrialView) -> None:
        """The trial has ended, or was refused."""
        self._views.append(view)
        self._iterations[iteration].append(view)
        if view.config is not None and not _may_be_repeated(view):
            self._tried[config_key(view.config)] = view
        self.newest_policy = view.policy_source or self.newest_policy

    @property
    def views(self) -> tuple[TrialView, ...]:
        """Every finished trial in order."""
        return tuple(self._views)

    @property
    def tried(self) -> dict[str, TrialView]:
        """Config key to the newest trial of it, for every config that is not to be launched again.

        What the machines or the metric tools did is not held against a config.
        """
        return dict(self._tried)

    @property
    def over(self) -> Iterator[TrialView]:
        """The last trial of every iteration that is over."""
        return (views[-1] for iteration, views in self._iterations.items() if self.is_over(iteration))

    def first_open(self, under_way: set[int]) -> int:
        """The first iteration that is neither over nor among those `under_way`."""
        while self.is_over(self._over_before):
            self._over_before += 1
        iteration = self._over_before
        while iteration in under_way or self.is_over(iteration):
            iteration += 1
        return iteration

    def is_over(self, iteration: int) -> bool:
        """Whether nothing more is to be proposed in an iteration; what led to a cancelled launch does not count."""
        since: list[TrialView] = []
        for view in self._iterations.get(iteration, ()):
            since = [] if view.state is TrialState.CANCELLED else [*since, view]
        if not all(map(_is_refused, since)):
            return True
        return len(since) > (0 if iteration == 0 else MAX_REPROPOSALS)


def _may_be_repeated(view: TrialView) -> bool:
    failure = view.failure
    return failure is not None and (failure.is_transient or failure in _NOT_REMEMBERED)


def _is_refused(view: TrialView) -> bool:
    """Turned down with the iteration still open; a proposer that gave up has closed it."""
    return view.failure is not None and (view.failure.is_refusal or view.failure is FailureClass.POLICY_ERROR)
