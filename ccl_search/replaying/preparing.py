"""Replaying a published policy on another cluster: what it gives there, next to what else could be run there.

The run holds, side by side: the seed policy of the framework (trial 0), the published policy, unchanged, the published
config, verbatim, and, where asked for, a search that starts from these. The verdict says whether the published optimum
transfers: how far the policy's config is from the best that was found.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ccl_search import assembly, constraints
from ccl_search.portability.cases import Home
from ccl_search.portability.spaces import elsewhere
from ccl_search.problem import Problem
from ccl_search.proposers.arms import ARMS, REFINE, Arm
from ccl_search.proposers.base import constant_policy
from ccl_search.publishing import opening
from ccl_search.replaying.translating import Translation, translate
from ccl_search.settings import SearchSettings
from policies.runner import PolicyError
from runs.errors import BadInputError
from runs.objective import Objective
from runs.space import ConfigSpace

if TYPE_CHECKING:
    from ccl_search.loop.observer import Observer
    from ccl_search.loop.search import Search
    from launchers.frameworks.base import Framework
    from policies.reading import Published
    from policies.runner import PolicyRunner
    from runs.environment import Environment
    from runs.store import RunRecord, Store
    from runs.workload import Workload

KIND = "replay"
REPLAY, VERDICT, DROPPED, SOURCE = "replay", "verdict", "dropped_constraints", "replay_source"
"""Options of a replay's run: what is replayed, how it came out, published constraints that mean nothing there, and
what else a later process needs to judge it."""

SEED, POLICY, CONFIG = "seed", "policy", "config"


@dataclass(frozen=True)
class Origin:
    """What is replayed: a policy with the optimum it was published for, and where that was.

    `published_score` is higher-is-better, of another cluster, and never ranked with anything measured here.
    """

    name: str
    run_id: str
    parent: str | None
    policy_source: str
    config: dict[str, Any]
    rationale: str
    published_score: float | None
    fidelity: str | None
    objective: Objective
    space: ConfigSpace
    workload: Workload
    environment: Environment
    framework: str
    settings: dict[str, Any]
    sandbox: str
    seed: int

    @property
    def constraints(self) -> tuple[str, ...]:
        """The user's constraints that the published search kept to."""
        return tuple(self.settings.get("constraints") or ())

    def home(self) -> Home:
        """Where the policy was made, for trying it elsewhere."""
        return Home(self.workload, self.environment, _framework(self), self.space, self.constraints)

    def as_dict(self) -> dict[str, Any]:
        """What is kept of it with the replay's run."""
        return {
            "name": self.name, "run_id": self.run_id, "config": self.config, "rationale": self.rationale,
            "published_score": self.published_score, "fidelity": self.fidelity, "framework": self.framework,
            "environment": self.environment.policy_input(), "environment_name": self.environment.name,
        }  # fmt: skip

    def source(self) -> dict[str, Any]:
        """The rest of it, so that a later process can make it again (`of_replay`)."""
        from runs.card import card_from, to_yaml

        return {
            "policy": self.policy_source, "card": to_yaml(card_from(self.workload, self.environment)),
            "space": self.space.as_dict(), "settings": self.settings, "sandbox": self.sandbox, "seed": self.seed,
        }  # fmt: skip


def of_replay(run: RunRecord) -> tuple[Origin, float]:
    """What the run `run` replays, as it was when it began, and the tolerance of its verdict.

    Raises:
        BadInputError: the run is of a version that did not keep it.
    """
    from runs.card import parse_card

    if SOURCE not in run.options:
        raise BadInputError(f"run {run.id} was begun by a version that kept no verdict", "start the replay again")
    kept, told = run.options[SOURCE], run.options[REPLAY]
    card = parse_card(kept["card"], run.id).card
    origin = Origin(
        name=told["name"],
        run_id=told["run_id"],
        parent=run.parent,
        policy_source=kept["policy"],
        config=told["config"],
        rationale=told["rationale"],
        published_score=told["published_score"],
        fidelity=told["fidelity"],
        objective=run.typed_objective(),
        space=ConfigSpace.from_dict(kept["space"], "published"),
        workload=card.workload(),
        environment=card.environment(),
        framework=told["framework"],
        settings=kept["settings"],
        sandbox=kept["sandbox"],
        seed=kept["seed"],
    )
    return origin, float(kept["tolerance"])


@dataclass(frozen=True)
class ReplayOptions:
    """Where and how to replay. `framework` None: the published one. `refine` trials are added by `proposer`.

    The cluster is `environment` (a bundled one), else that of `card` (its machines; the workload stays the published
    one), else what the target stands for, else the published one.
    `repeats` is how often each config is measured; `constraints` None are those of the published search. `tolerance`
    is how far from the best found still counts as transferred.
    """

    environment: str | None = None
    framework: str | None = None
    target: str = "dry-run"
    refine: int = 0
    proposer: str | None = None
    seed: int | None = None
    repeats: int = 1
    constraints: tuple[str, ...] | None = None
    card: Path | None = None
    tolerance: float = 0.05


@dataclass(frozen=True)
class Replay:
    """A replay that is ready to run: the search, what is replayed, and what was translated for another framework."""

    search: Search
    origin: Origin
    translations: dict[str, Translation] = field(default_factory=dict)


def origin_of_published(store: Store | None, published: Published) -> Origin:
    """What an open published folder holds to be replayed; `store` is where it may have been imported.

    Raises:
        BadInputError: no trial of it succeeded, or its card or space cannot be used.
    """
    from ccl_search.publishing.importing import find_imported, manifest_sha256
    from ccl_search.publishing.verifying import subject

    manifest, where = published.manifest, subject(published)
    best, proposer, seed = published.best or {}, manifest["proposer"], manifest["proposer"].get("seed")
    fidelities = manifest["target"].get("fidelity") or []
    return Origin(
        name=published.name,
        run_id=str(manifest["run"].get("id")),
        parent=None if store is None else find_imported(store, manifest_sha256(published)),
        config=published.best_config,
        policy_source=published.policy_source,
        rationale=str(best.get("rationale") or ""),
        published_score=best.get("score"),
        fidelity=fidelities[0] if len(fidelities) == 1 else None,
        objective=opening.objective(manifest),
        space=published.space(),
        workload=where.workload,
        environment=where.environment,
        framework=str(manifest["framework"].get("name")),
        settings=manifest["settings"],
        sandbox=str(proposer.get("sandbox") or "monty"),
        seed=seed if type(seed) is int else 0,
    )


def origin_of_run(store: Store, reference: str) -> Origin:
    """The best policy of a run in the store as something to be replayed.

    Raises:
        BadInputError: there is no such run, or no trial of it succeeded with a policy.
    """
    from runs.card import parse_card

    run = store.run(reference)
    best = store.best(run.id)
    if best is None or not best.policy_source or best.config is None:
        raise BadInputError(f"run {run.id} has no best trial with a policy", "replay another run")
    card = parse_card(run.card, run.id).card
    return Origin(
        name=run.id,
        run_id=run.id,
        parent=run.id,
        config=best.config,
        policy_source=best.policy_source,
        rationale=best.rationale,
        published_score=best.score,
        fidelity=best.fidelity.value if best.fidelity else None,
        objective=run.typed_objective(),
        space=run.config_space(),
        workload=card.workload(),
        environment=card.environment(),
        framework=run.framework,
        settings=run.options.get("settings", {}),
        sandbox=run.sandbox or "monty",
        seed=run.seed or 0,
    )


def prepare(store: Store, origin: Origin, options: ReplayOptions, observer: Observer | None = None) -> Replay:
    """The search that replays `origin`, with its row in the store; nothing has been launched yet.

    Raises:
        BadInputError: the environment, framework or target does not exist, or nothing can run there.
    """
    from policies.seeds import seed_policy

    problem = _problem(origin, options, _where(store, origin, options))
    settings, dropped = _settings(origin, options, problem)
    translations: dict[str, Translation] = {}
    arms = list(_arms(origin, problem, settings, translations))
    kept = {
        REPLAY: {**origin.as_dict(), "translations": {name: t.as_dict() for name, t in translations.items()}},
        ARMS: [arm.as_dict() for arm in arms],
        REFINE: options.refine,
        DROPPED: list(dropped),
        SOURCE: {**origin.source(), "tolerance": options.tolerance},
    }
    settings = replace(settings, iterations=len(arms) + options.refine)
    started = assembly.Origin(KIND, origin.parent, kept)
    seed = seed_policy(problem.framework.name)
    search = assembly.start(problem, settings, store, seed, observer, started)
    return Replay(search, origin, translations)


def _where(store: Store, origin: Origin, options: ReplayOptions) -> Environment:
    from ccl_search import targets
    from runs import catalogue
    from runs.card import load_card

    if options.environment is not None and options.card is not None:
        raise BadInputError("--card already says the machines", "leave out --environment")
    if options.card is not None:
        return load_card(options.card).card.environment()
    named = options.environment or targets.find(options.target, store.home).environment
    return origin.environment if named is None else catalogue.environment(named)


def _problem(origin: Origin, options: ReplayOptions, where: Environment) -> Problem:
    from launchers import frameworks
    from runs import catalogue
    from runs.card import card_from

    framework = frameworks.get(options.framework or origin.framework)
    version = framework.version if framework.name != origin.framework else origin.environment.framework_version
    environment = catalogue.with_framework(where, framework.name, version)
    space = _space(origin, framework, environment)
    card = card_from(origin.workload, environment)
    return Problem(card, origin.workload, environment, framework, space, _objective(origin))


def _objective(origin: Origin) -> Objective:
    """What the published search optimised, but for portability: that is of the policies, not of how configs run there.

    Baselines are those of the replay's own first trial.
    """
    from ccl_search.portability.spec import without_portability
    from ccl_search.problem import ProblemSource, objective_of

    found = without_portability(origin.objective) or objective_of(ProblemSource())
    return Objective(tuple(replace(term, baseline=None) for term in found.terms))


def _space(origin: Origin, framework: Framework, environment: Environment) -> ConfigSpace:
    """The framework's own space there; a space that the published search brought itself stays that space."""
    if framework.name != origin.framework:
        return framework.default_space(origin.workload, environment)
    return elsewhere(origin.space, (), framework, origin.workload, origin.environment, environment)


def _settings(origin: Origin, options: ReplayOptions, problem: Problem) -> tuple[SearchSettings, tuple[str, ...]]:
    """How the replay searches, and the published constraints that mean nothing in its space."""
    published = SearchSettings.from_dict(origin.settings)
    kept = options.constraints
    if kept is None:
        kept = constraints.kept_in(_of_configs(origin.constraints), problem.space)
    settings = SearchSettings(
        seed=origin.seed if options.seed is None else options.seed,
        proposer=options.proposer or (None if options.refine else "guided"),
        target=options.target,
        sandbox=origin.sandbox,
        time_limit_s=published.time_limit_s,
        retries=published.retries,
        repeats=options.repeats,
        constraints=kept,
    )
    dropped = () if options.constraints is not None else origin.constraints
    return settings, tuple(text for text in dropped if text not in kept)


def _of_configs(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Without bounds on portability, which is of policies."""
    from ccl_search.portability.spec import NAME

    return tuple(text for text in texts if NAME not in text)


def _arms(
    origin: Origin, problem: Problem, settings: SearchSettings, translations: dict[str, Translation]
) -> list[Arm]:
    if problem.framework.name == origin.framework:
        return [
            Arm(POLICY, origin.policy_source, f"published policy, unchanged: {origin.rationale}"),
            Arm(CONFIG, constant_policy(origin.config), "published config, verbatim"),
        ]
    found = []
    for name, config, label in _to_translate(origin, problem, settings):
        translation = translate(config, _framework(origin), problem.space, problem.workload, problem.environment)
        translations[name] = translation
        rationale = f"{label}, translated from {origin.framework}: {_told(translation)}"
        found.append(Arm(name, constant_policy(translation.config), rationale))
    return found


def _to_translate(origin: Origin, problem: Problem, settings: SearchSettings) -> list[tuple[str, dict[str, Any], str]]:
    """What the policy gives for the new cluster in the words of its own framework, and the published config."""
    found = [(CONFIG, origin.config, "published config")]
    runner = _runner(settings)
    try:
        config = runner.evaluate(origin.policy_source, *own_inputs(origin, problem.environment))
        found.insert(0, (POLICY, config, "published policy, unchanged"))
    except (PolicyError, BadInputError):
        pass  # the policy gives nothing there, and the verdict says so: there is no such trial
    finally:
        runner.close()
    return found


def own_inputs(origin: Origin, environment: Environment) -> tuple[dict[str, Any], dict[str, Any]]:
    """The policy's two inputs for another cluster that runs the framework it was written for.

    Raises:
        BadInputError: that framework has no config there.
    """
    from runs import catalogue

    framework = _framework(origin)
    there = catalogue.with_framework(environment, framework.name, origin.environment.framework_version)
    space = _space(origin, framework, there)
    workload = {**origin.workload.policy_input(), "config_space": [knob.as_dict() for knob in space.knobs]}
    return workload, there.policy_input()


def _framework(origin: Origin) -> Framework:
    from launchers import frameworks

    return frameworks.get(origin.framework)


def _told(translation: Translation) -> str:
    changed = [note for note in translation.notes if note.how != "kept"]
    words = [f"{note.knob} {note.before} -> {note.after} ({note.how})" for note in changed]
    return ", ".join(words) or "every knob kept"


def _runner(settings: SearchSettings) -> PolicyRunner:
    from policies.factory import create_runner

    return create_runner(cast("Any", settings.sandbox), seed=settings.seed)
