"""Putting a search together: from what the user named to a `Search` with its store, proposer, sandbox and record."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ccl_search import targets
from ccl_search.interrupt import Interrupt
from ccl_search.observer import Observer, RunView
from ccl_search.problem import Problem, ProblemSource, resolve
from ccl_search.proposers import factory
from ccl_search.proposers.base import Proposer
from ccl_search.recorder import Recorder
from ccl_search.search import Search
from ccl_search.settings import SearchSettings
from ccl_search.version import version
from runs.errors import BadInputError

if TYPE_CHECKING:
    from policies.runner import PolicyRunner
    from runs.store import Store

PolicyCheck = Callable[[str], str | None]


def open_store(home: str | None, write: bool) -> Store:
    """The store of `home` (see `runs.store.resolve_home`), with a leaderboard column for every bundled metric."""
    from metrics.registry import BUNDLED
    from runs.store import Store, resolve_home

    return Store.open(
        resolve_home(Path(home) if home else None), write=write, metric_columns=BUNDLED, product_version=version()
    )


def create(
    source: ProblemSource,
    settings: SearchSettings,
    store: Store,
    policy: Path | None = None,
    observer: Observer | None = None,
) -> Search:
    """A new search with its row in `store`. `policy` replaces the framework's seed policy.

    Raises:
        BadInputError: something named does not exist or does not fit; nothing is written then.
    """
    from ccl_search.feasibility import require_feasible

    problem = resolve(source)
    targets.find(settings.target)
    choice = factory.choose(settings.proposer)
    seed_policy = _seed_policy(problem, policy)
    require_feasible(problem)
    runner = _runner(settings)
    run_id = store.create_run(_new_run(problem, settings, choice.name, seed_policy))
    recorder = Recorder(store, run_id, problem.objective)
    search = _search(problem, settings, recorder, choice.name, runner, seed_policy, observer)
    _announce(search, choice)
    return search


def reopen(run: str, store: Store, observer: Observer | None = None) -> Search:
    """The search of a run that is in the store, ready to go on.

    Raises:
        BadInputError: there is no such run, or it has finished.
    """
    from runs.card import parse_card

    record = store.run(run)
    if record.status.value == "finished":
        raise BadInputError(f"run {record.id} has finished: {record.stop_reason}", "start a new one with `run`")
    card = parse_card(record.card, record.id).card
    problem = Problem(
        card,
        card.workload(),
        card.environment(),
        _framework(record.framework),
        record.config_space(),
        record.typed_objective(),
    )
    settings = SearchSettings.from_dict(record.options["settings"])
    store.reopen_run(record.id)
    recorder = Recorder.load(store, record.id)
    seed_policy = record.options["seed_policy"]
    search = _search(problem, settings, recorder, record.proposer, _runner(settings), seed_policy, observer)
    _announce(search, factory.Choice(record.proposer, f"as in run {record.id}"))
    return search


def _search(
    problem: Problem,
    settings: SearchSettings,
    recorder: Recorder,
    proposer: str,
    runner: PolicyRunner,
    seed_policy: str,
    observer: Observer | None,
) -> Search:
    watching, interrupt = observer or Observer(), Interrupt()

    def check(source: str) -> str | None:
        return search.check_policy(source)

    search = Search(
        problem=problem,
        settings=settings,
        recorder=recorder,
        proposer=_claude(settings, recorder, check, watching, interrupt)
        if proposer == "claude"
        else _without_llm(proposer, settings.seed),
        runner=runner,
        seed_policy=seed_policy,
        observer=watching,
        interrupt=interrupt,
    )
    return search


def _without_llm(name: str, seed: int) -> Proposer:
    if name == "random":
        from ccl_search.proposers.samplers import RandomProposer

        return RandomProposer(seed)
    if name == "grid":
        from ccl_search.proposers.samplers import GridProposer

        return GridProposer()
    if name == "tpe":
        from ccl_search.proposers.tpe import TpeProposer

        return TpeProposer(seed)
    from ccl_search.proposers.guided import GuidedProposer

    return GuidedProposer(seed)


def _claude(
    settings: SearchSettings, recorder: Recorder, check: PolicyCheck, observer: Observer, interrupt: Interrupt
) -> Proposer:
    from ccl_search.llm.budget import DollarBudget
    from ccl_search.llm.client import AnthropicClient
    from ccl_search.llm.replay import ReplayClient
    from ccl_search.llm.reply import LlmClient
    from ccl_search.llm.retries import RetryNotice, RetryPolicy
    from ccl_search.proposers.claude import ClaudeProposer
    from policies.program import dialect

    def waiting(notice: RetryNotice) -> None:
        observer.notice(f"LLM attempt {notice.attempt}: {notice.reason}; waiting {notice.seconds:.0f} s")

    ledger, client = recorder.store.ledger, None
    if settings.replay_llm is not None:
        client = cast("LlmClient", ReplayClient(ledger, recorder.store.run(settings.replay_llm).id))
    else:
        limit = Decimal(settings.max_cost_usd) if settings.max_cost_usd is not None else None
        budget = DollarBudget(limit, recorder.store.totals(recorder.run_id).known_llm_cost_usd)
        retries = RetryPolicy(cancelled=interrupt.stopped)
        client = AnthropicClient(ledger, retries=retries, budget=budget, on_wait=waiting)
    return ClaudeProposer(ledger, settings.model, check=check, dialect=dialect(), client=client)


def _runner(settings: SearchSettings) -> PolicyRunner:
    from policies.factory import create_runner

    return create_runner(cast("Any", settings.sandbox), unconfined=settings.unconfined, seed=settings.seed)


def _seed_policy(problem: Problem, path: Path | None) -> str:
    if path is not None:
        from policies.program import load_policy

        return load_policy(path).source
    from policies.seeds import seed_policy

    return seed_policy(problem.framework.name)


def _framework(name: str) -> Any:
    from launchers import frameworks

    return frameworks.get(name)


def _new_run(problem: Problem, settings: SearchSettings, proposer: str, seed_policy: str) -> Any:
    from metrics import registry
    from runs.card import to_yaml
    from runs.store import NewRun

    specs = tuple(registry.spec(name) for name in registry.BUNDLED)
    budgets = {
        "iterations": settings.iterations,
        "patience": settings.patience,
        "cost_usd": settings.max_cost_usd,
        "xpu_hours": settings.max_xpu_hours,
        "seconds": settings.max_seconds,
    }
    return NewRun(
        card=to_yaml(problem.card),
        workload=problem.workload_input,
        environment=problem.environment_input,
        framework=problem.framework.name,
        space=problem.space,
        objective=problem.objective,
        metrics=specs,
        target=settings.target,
        proposer=proposer,
        model=settings.model if proposer == "claude" else None,
        sandbox=settings.sandbox,
        seed=settings.seed,
        budgets={name: value for name, value in budgets.items() if value is not None},
        tool_versions={spec.name: spec.version for spec in specs},
        product_version=version(),
        options={"settings": settings.as_dict(), "seed_policy": seed_policy},
    )


def _announce(search: Search, choice: factory.Choice) -> None:
    problem = search.problem
    search.observer.run_started(
        RunView(
            run_id=search.run_id,
            proposer=choice.name,
            reason=choice.reason,
            target=search.settings.target,
            workload=problem.workload.name,
            environment=problem.environment.name,
            framework=problem.framework.name,
            objective=problem.objective.name,
            iterations=search.settings.iterations,
            knobs=problem.space.keys,
        )
    )
