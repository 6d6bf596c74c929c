"""Driving a search on a launcher from a command: signals, several trials in flight, and what is left on the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ccl_search.loop.search import Search
    from launchers.base import Launcher
    from runs.store import Store


def drive(search: Search, store: Store, launcher: Launcher, with_profiler_cost: bool = False) -> str:
    """Run `search` to its end; its status. `with_profiler_cost`: a finished one then settles what the profiler costs.

    Raises:
        CclSearchError: the search cannot go on; the run is left resumable.
    """
    from ccl_search import profiler_cost
    from ccl_search.loop.execution import Executor
    from ccl_search.loop.fleet import OneAtATime

    notice = search.observer.notice
    held = OneAtATime(launcher) if search.parallel > 1 else launcher
    executor = Executor(held, search.interrupt, notice, search.settings.retries)
    search.interrupt.announce = notice
    with search.interrupt:
        status = search.run(executor)
        if status == "finished" and with_profiler_cost:
            profiler_cost.settle(search, store, executor)
    if status == "finished" and hasattr(launcher, "release"):
        for hindrance in launcher.release(search.run_id, search.recorder.trial_dir(0)):
            notice(f"a slice is left; `ccl-search cleanup` deletes it: {hindrance}")
    return status
