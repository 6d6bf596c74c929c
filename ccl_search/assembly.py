"""Putting a search together: from what the user named to a `Search` with its store, proposer, sandbox and record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ccl_search import feasibility, retracting, targets
from ccl_search.loop.interrupt import Interrupt
from ccl_search.loop.observer import Observer, RunView
from ccl_search.loop.recorder import Recorder
from ccl_search.loop.search import Search
from ccl_search.portability.metric import is_wanted, tool_for
from ccl_search.portability.spec import SPEC as PORTABILITY
from ccl_search.problem import Problem, ProblemSource, resolve
from ccl_search.proposers import arms, factory
from ccl_search.settings import SearchSettings
from ccl_search.version import version
from runs.errors import BadInputError
from runs.trial import Fidelity

if TYPE_CHECKING:
    from ccl_search.constraints import Constraints
    from ccl_search.screening.screen import Screen
    from policies.runner import PolicyRunner
    from runs.metric import MetricSpec
    from runs.store import Store


@dataclass(frozen=True)
class Origin:
    """What kind of run a search is, the run it comes from, and further options to be stored with it.

    An option `arms` (see `ccl_search.proposers.arms`) are policies to be tried before the proposer is asked.
    """

    kind: str
    parent: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


def open_store(home: str | None, write: bool) -> Store:
    """The store of `home` (see `runs.store.resolve_home`), with a leaderboard column for every bundled metric.

    One that is opened for writing has the values of retracted tool versions flagged.
    """
    from metrics.registry import BUNDLED
    from runs.store import Store, resolve_home

    store = Store.open(
        resolve_home(Path(home) if home else None), write=write, metric_columns=BUNDLED, product_version=version()
    )
    if write:
        retracting.flag(store)
    return store


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
    where = targets.find(settings.target, store.home).environment
    if where is not None and source.card is None and source.environment is None:
        source = replace(source, environment=where)
    problem = resolve(source)
    return start(problem, settings, store, _seed_policy(problem, policy), observer)


def start(
    problem: Problem,
    settings: SearchSettings,
    store: Store,
    seed_policy: str,
    observer: Observer | None = None,
    origin: Origin | None = None,
) -> Search:
    """As `create`, for a problem that is resolved already; `origin` tells where a search that is no first is from."""
    watching = observer or Observer()
    early = _Notices(list(problem.notes))
    try:
        search, choice = _started(problem, settings, store, seed_policy, watching, early, origin)
        _announce(search, choice)
        return search
    finally:
        for text in early.texts:
            watching.notice(text)


@dataclass
class _Notices(Observer):
    """Keeps what there is to say until the run is announced, whose line is the first of the output."""

    texts: list[str]

    def notice(self, text: str) -> None:
        """Keep the text."""
        self.texts.append(text)


def _started(
    problem: Problem,
    settings: SearchSettings,
    store: Store,
    seed_policy: str,
    observer: Observer,
    early: Observer,
    origin: Origin | None,
) -> tuple[Search, factory.Choice]:
    from ccl_search.feasibility import require_feasible
    from runs.store import RunStatus

    target = targets.find(settings.target, store.home)
    limits = _limits(settings, problem, target, early)
    problem = replace(problem, space=limits.applied_to(problem.space))
    choice = factory.choose(settings.proposer, settings.replay_llm)
    factory.check(choice.name, settings)
    for option in factory.without_effect(choice.name, settings):
        early.notice(f"warning: {option} has no effect: the proposer {choice.name} asks no LLM")
    if settings.replay_llm is not None:
        settings = replace(settings, replay_llm=store.run(settings.replay_llm).id)
    require_feasible(problem)
    extras = {**settings.extras, **target.extras()}
    settings = replace(settings, screening=_screening(settings, target, store.home, early))
    settings = replace(settings, extras=extras, time_limit_s=settings.time_limit_s or target.time_limit_s)
    runner = _runner(settings)
    run_id = store.create_run(_from(origin, _new_run(problem, settings, target, choice.name, seed_policy)))
    if choice.name == "claude":
        from ccl_search.llm import prompts

        store.add_prompt(prompts.full_text())
    recorder = Recorder(store, run_id, problem.objective, target.fidelity, limits=limits.limits, pareto=settings.pareto)
    try:
        search = _search(problem, settings, target, recorder, choice.name, runner, seed_policy, observer)
    except BaseException as error:
        store.finish_run(run_id, RunStatus.FAILED, f"could not begin: {error}")
        raise
    return search, choice


def reopen(
    run: str, store: Store, observer: Observer | None = None, changes: Mapping[str, Any] | None = None
) -> Search:
    """The search of a run that is in the store, ready to go on. The run's row changes only once all else is there.

    `changes` are fields of `SearchSettings` that are to be others from now on: budgets, retries, trials in flight.
    With one of them a run that has finished goes on too.

    Raises:
        BadInputError: there is no such run, it was imported, it has finished and no budget is changed, or the proposer
            cannot be used.
        TargetUnavailableError: the sandbox does not work here.
    """
    from ccl_search.publishing.staging import KIND as IMPORTED
    from runs.card import parse_card

    record = store.run(run)
    if record.kind == IMPORTED:
        raise BadInputError(
            f"run {record.id} was imported; trials of this machine would stand among those of another",
            f"`ccl-search replay {record.id} --refine N` searches on from it in a run of its own",
        )
    if record.status.value == "finished" and not changes:
        raise BadInputError(
            f"run {record.id} has finished: {record.stop_reason}",
            "raise a limit (`resume RUN --iterations N`, or another budget), or start a new one with `run`",
        )
    card = parse_card(record.card, record.id).card
    problem = Problem(
        card,
        card.workload(),
        card.environment(),
        _framework(record.framework),
        record.config_space(),
        record.typed_objective(),
    )
    settings = replace(SearchSettings.from_dict(record.options["settings"]), **(changes or {}))
    factory.check(record.proposer, settings)
    seed_policy = record.options["seed_policy"]
    target = targets.of_run(record.target, record.target_settings)
    recorder = Recorder.load(store, record.id, target.fidelity)
    search = _search(problem, settings, target, recorder, record.proposer, _runner(settings), seed_policy, observer)
    stored = {**record.options, "settings": settings.as_dict()}
    store.reopen_run(record.id, options=stored, budgets=settings.budgets())
    _announce(search, factory.Choice(record.proposer, f"as in run {record.id}"))
    return search


def _limits(settings: SearchSettings, problem: Problem, target: targets.Target, observer: Observer) -> Constraints:
    """The user's constraints; a Pareto search without a front, and repeats that can only be equal, are told of."""
    from ccl_search import constraints, repeats
    from ccl_search.pareto.front import check_axes

    if settings.pareto:
        check_axes([term.spec for term in problem.objective.terms])
    if settings.repeats > 1 and target.fidelity is Fidelity.SIMULATED:
        observer.notice(f"warning: {repeats.IDENTICAL}")
    return constraints.parse(settings.constraints, problem.space)


def _screening(
    settings: SearchSettings, target: targets.Target, home: Path, observer: Observer
) -> dict[str, Any] | None:
    """What the screen of these settings does, as plain data; a screen that can tell nothing new is told of."""
    if settings.screen is None:
        if settings.screen_check:
            raise BadInputError("--screen-check without --screen", "add --screen dry-run")
        return None
    from ccl_search.screening.plan import resolve

    plan = resolve(settings.screen, settings.screen_check, target, home)
    if target.fidelity is Fidelity.SIMULATED:
        observer.notice("warning: the target is simulated itself; a screen saves launches on machines")
    observer.notice(f"screen {plan.target}, candidates an iteration: {plan.candidates}; {plan.basis}")
    return plan.as_dict()


def _screen(problem: Problem, settings: SearchSettings) -> Screen | None:
    if settings.screening is None:
        return None
    from ccl_search.screening.plan import ScreenPlan
    from ccl_search.screening.screen import Screen

    return Screen(ScreenPlan.from_dict(settings.screening), problem, settings.seed)


def _search(
    problem: Problem,
    settings: SearchSettings,
    target: targets.Target,
    recorder: Recorder,
    proposer: str,
    runner: PolicyRunner,
    seed_policy: str,
    observer: Observer | None,
) -> Search:
    watching, interrupt = observer or Observer(), Interrupt()

    def check(source: str) -> str | None:
        return search.check_policy(source)

    around = factory.Surroundings(
        ledger=recorder.store.ledger,
        spent=recorder.store.totals(recorder.run_id).known_llm_cost_usd,
        check=check,
        notice=watching.notice,
        stopped=interrupt.stopped,
        fits=lambda config: feasibility.fits(config, problem),
    )
    search = Search(
        problem=problem,
        settings=settings,
        target=target,
        recorder=recorder,
        proposer=arms.before(factory.build(proposer, settings, around), recorder.store.run(recorder.run_id).options),
        runner=runner,
        seed_policy=seed_policy,
        observer=watching,
        interrupt=interrupt,
        screen=_screen(problem, settings),
        portability=tool_for(problem, settings, runner) if is_wanted(problem.objective, settings, proposer) else None,
    )
    return search


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


def _new_run(
    problem: Problem, settings: SearchSettings, target: targets.Target, proposer: str, seed_policy: str
) -> Any:
    from metrics import registry
    from runs.store import NewRun

    of_policies = (PORTABILITY,) if is_wanted(problem.objective, settings, proposer) else ()
    specs = (*(registry.spec(name) for name in registry.BUNDLED), *of_policies)
    return NewRun(
        **described(problem, settings, specs),
        target=target.name,
        target_settings=target.content,
        proposer=proposer,
        model=settings.model if proposer == "claude" else None,
        sandbox=settings.sandbox,
        budgets=settings.budgets(),
        options={"settings": settings.as_dict(), "seed_policy": seed_policy},
    )


def described(problem: Problem, settings: SearchSettings, specs: tuple[MetricSpec, ...]) -> dict[str, Any]:
    """What a new run of any kind says of its problem, metrics, seed and versions: fields of `NewRun`."""
    from runs.card import to_yaml

    return {
        "card": to_yaml(problem.card),
        "workload": problem.workload_input,
        "environment": problem.environment_input,
        "framework": problem.framework.name,
        "space": problem.space,
        "objective": problem.objective,
        "metrics": specs,
        "seed": settings.seed,
        "tool_versions": {spec.name: spec.version for spec in specs},
        "product_version": version(),
    }


def _from(origin: Origin | None, run: Any) -> Any:
    if origin is None:
        return run
    return replace(run, kind=origin.kind, parent=origin.parent, options={**run.options, **origin.options})


def _announce(search: Search, choice: factory.Choice) -> None:
    problem = search.problem
    search.observer.run_started(
        RunView(
            run_id=search.run_id,
            proposer=choice.name,
            reason=choice.reason,
            target=search.target.name,
            workload=problem.workload.name,
            environment=problem.environment.name,
            framework=problem.framework.name,
            objective=problem.objective.name,
            iterations=search.settings.iterations,
            knobs=problem.space.keys,
        )
    )
