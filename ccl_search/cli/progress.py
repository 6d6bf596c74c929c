"""The live table of a search: trials as they come, the best so far, what it cost, and when it should be done."""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ccl_search.cli.output import console, short
from ccl_search.loop.observer import Observer, RunView
from ccl_search.proposers.base import TrialView
from runs.trial import TrialState

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from runs.store import Store

_SHOWN = 20
_COLOURS = {TrialState.SUCCEEDED: "green", TrialState.FAILED: "red", TrialState.PRUNED: "yellow"}


class LiveTable(Observer):
    """Draws on a console; on something that is no terminal it prints one line a trial instead.

    `cost` tells the dollars that the LLM calls of a run have cost so far.
    """

    def __init__(self, console: Console, cost: Callable[[str], Decimal]) -> None:
        self._console = console
        self._cost = cost
        self._live: Live | None = None
        self._run: RunView | None = None
        self._trials: list[TrialView] = []
        self._doing = ""
        self._began = time.monotonic()

    def run_started(self, run: RunView) -> None:
        """Say what is going to happen, and start drawing."""
        self._run = run
        self._console.print(f"proposer {run.proposer} ({run.reason}) target {run.target}", soft_wrap=True)
        self._console.print(
            f"run {run.run_id}: {run.workload} with {run.framework} on {run.environment}, "
            f"objective {run.objective}, {run.iterations} iterations after the seed policy",
            soft_wrap=True,
        )
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(self._draw(), console=self._console, refresh_per_second=4, transient=False)
            self._live.start()

    def proposing(self, iteration: int) -> None:
        """Show that the proposer works."""
        self._say(f"iteration {iteration}: proposing")

    def trial_launched(self, number: int, config: dict[str, Any]) -> None:
        """Show that a trial runs."""
        self._say(f"trial {number}: running")

    def trial_refused(self, trial: TrialView) -> None:
        """Add the refused proposal."""
        self._add(trial)

    def trial_finished(self, trial: TrialView) -> None:
        """Add the trial."""
        self._add(trial)

    def notice(self, text: str) -> None:
        """Print above the table."""
        self._console.print(text, style="dim", markup=False, soft_wrap=True)

    def run_finished(self, status: str, reason: str) -> None:
        """Stop drawing."""
        self._say(f"{status}: {reason}" if reason else status)
        if self._live is not None:
            self._live.update(self._draw())
            self._live.stop()
        else:
            self._console.print(self._doing)

    def _add(self, trial: TrialView) -> None:
        self._trials.append(trial)
        if self._live is not None:
            self._live.update(self._draw())
        else:
            self._console.out(_line(trial), highlight=False)

    def _say(self, text: str) -> None:
        self._doing = text
        if self._live is not None:
            self._live.update(self._draw())

    def _best(self) -> TrialView | None:
        scored = [trial for trial in self._trials if trial.score is not None]
        return max(scored, key=lambda trial: trial.score or 0.0, default=None)

    def _draw(self) -> RenderableType:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        knobs = self._run.knobs if self._run else ()
        table = Table(caption=self._caption(), caption_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in ("trial", "state", "score", *map(short, knobs)):
            table.add_column(column, justify="right" if column in ("trial", "score") else "left", no_wrap=True)
        best = self._best()
        for trial in self._trials[-_SHOWN:]:
            colour = _COLOURS.get(trial.state, "white")
            mark = "*" if trial is best else ""
            config = trial.config or {}
            state = trial.failure.value if trial.failure else trial.state.value
            cells = [str(config.get(knob, "")) for knob in knobs]
            table.add_row(f"{mark}{trial.number}", Text(state, style=colour), _score(trial), *cells)
        return table

    def _caption(self) -> str:
        done = sum(trial.state is not TrialState.PRUNED for trial in self._trials)
        total = (self._run.iterations if self._run else 0) + 1
        elapsed = time.monotonic() - self._began
        left = elapsed / done * max(0, total - done) if done else 0.0
        cost = self._cost(self._run.run_id) if self._run else Decimal(0)
        spent = f", LLM ${cost:.2f}" if cost else ""
        return f"{done}/{total} trials, {elapsed:.0f} s{spent}, about {left:.0f} s left; {self._doing}"


def live_table(store: Store) -> LiveTable:
    """The live table of a search that writes into `store`."""
    return LiveTable(console(), lambda run_id: store.totals(run_id).known_llm_cost_usd)


def config_text(config: dict[str, Any] | None) -> str:
    """A config on one line: `tp=4 pp=2 …`."""
    return " ".join(f"{key}={value}" for key, value in (config or {}).items())


def _score(trial: TrialView) -> str:
    return "" if trial.score is None else f"{trial.score:.6g}"


def _line(trial: TrialView) -> str:
    state = trial.failure.value if trial.failure else trial.state.value
    reason = f" ({trial.evidence.splitlines()[0]})" if trial.evidence else ""
    return f"trial {trial.number:>3} {state:<14} {_score(trial):>12} {config_text(trial.config)}{reason}"
