"""The verdict on a replay: does the published optimum transfer, which knobs changed and why, what could not run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ccl_search import repeats
from ccl_search.proposers.arms import ARMS
from ccl_search.replaying.preparing import CONFIG, DROPPED, POLICY, REPLAY, SEED, Origin, own_inputs
from policies.runner import PolicyError, PolicyRunner
from runs.errors import BadInputError
from runs.metric import Direction
from runs.objective import Objective
from runs.space import config_key
from runs.store.records import RunStatus
from runs.trial import FailureClass, TrialState

if TYPE_CHECKING:
    from runs.environment import Environment
    from runs.store import RunRecord, Store, TrialRecord

TOLERANCE = 0.05
"""How far above the best found a policy's result may lie and still count as transferred, unless told otherwise."""

REFINED = "refined"
_LABELS = {
    SEED: "seed policy",
    POLICY: "published policy, unchanged",
    CONFIG: "published config, verbatim",
    REFINED: "best of the search from there",
}


@dataclass(frozen=True)
class ArmResult:
    """What became of one arm. `ratio` is its cost over that of the best found (1 is the best), None without a result.

    `same_as` names the arm that gave the same config before it; its result stands for both.
    """

    arm: str
    trial: int | None
    config: dict[str, Any] | None
    score: float | None
    metrics: dict[str, float]
    ratio: float | None
    spread: float | None
    same_as: str | None
    infeasible: str | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "label": _LABELS[self.arm]}


def judge(
    store: Store,
    run_id: str,
    origin: Origin,
    environment: Environment,
    runner: PolicyRunner,
    tolerance: float = TOLERANCE,
) -> dict[str, Any]:
    """The whole report of a replay, as plain data."""
    run = store.run(run_id)
    trials = store.trials(run.id)
    best = store.best(run.id)
    objective = run.typed_objective()
    arms = _results(run, trials, best, objective)
    policy, is_whole = arms[POLICY], run.status is RunStatus.FINISHED
    return {
        "run_id": run.id,
        "parent": run.parent,
        "replayed": {key: value for key, value in run.options[REPLAY].items() if key != "translations"},
        "environment": run.environment,
        "framework": run.framework,
        "objective": objective.name,
        "fidelity": best.fidelity.value if best and best.fidelity else None,
        "backend": best.backend if best else None,
        "status": run.status.value,
        "transfers": _transfers(policy, tolerance) if is_whole else None,
        "verdict": _verdict(policy, arms, best, tolerance, len(trials)) if is_whole else _open(run.id),
        "tolerance": tolerance,
        "best_found": None if best is None else _best(best, arms),
        "arms": [found.as_dict() for found in arms.values()],
        "knobs": _knobs(origin, policy, environment, runner),
        "translations": run.options[REPLAY]["translations"],
        "notes": _notes(run, best),
    }


def _open(run_id: str) -> str:
    return f"the replay was interrupted and has no verdict yet; `ccl-search resume {run_id}` goes on and gives it"


def _results(
    run: RunRecord, trials: list[TrialRecord], best: TrialRecord | None, objective: Objective
) -> dict[str, ArmResult]:
    own = {arm["rationale"]: arm["name"] for arm in run.options[ARMS]}
    rows = {SEED: next((trial for trial in trials if trial.iteration == 0), None)}
    rows |= {own[trial.rationale]: trial for trial in trials if trial.rationale in own}
    added = [t for t in trials if t.iteration > 0 and t.rationale not in own and t.score is not None]
    if added:
        rows[REFINED] = max(added, key=lambda trial: (trial.score or 0.0, -trial.number))
    found: dict[str, ArmResult] = {}
    for name in (SEED, POLICY, CONFIG, REFINED):
        if name != REFINED or name in rows:
            found[name] = _result(name, rows.get(name), trials, found, best, objective)
    return found


def _result(
    name: str,
    trial: TrialRecord | None,
    trials: list[TrialRecord],
    before: Mapping[str, ArmResult],
    best: TrialRecord | None,
    objective: Objective,
) -> ArmResult:
    if trial is None:
        reason = "the policy gives no config for this cluster" if name == POLICY else "it was not tried"
        return ArmResult(name, None, None, None, {}, None, None, None, reason)
    measured, same = trial, None
    if trial.failure is FailureClass.DUPLICATE and trial.config is not None:
        key = config_key(trial.config)
        measured = next(t for t in trials if t.config is not None and config_key(t.config) == key)
        same = next((arm for arm, found in before.items() if found.trial == measured.number), None)
    succeeded = measured.state is TrialState.SUCCEEDED
    return ArmResult(
        arm=name,
        trial=measured.number,
        config=trial.config,
        score=measured.score,
        metrics={t.spec.name: measured.values[t.spec.name] for t in objective.terms if t.spec.name in measured.values},
        ratio=cost_ratio(measured, best, objective),
        spread=repeats.score_spread(measured.metrics, objective) if succeeded else None,
        same_as=same,
        infeasible=None if succeeded and measured.score is not None else _reason(measured),
    )


def cost_ratio(trial: TrialRecord, best: TrialRecord | None, objective: Objective) -> float | None:
    """The trial's cost over the best one's: metric values for a single metric, scores for a composite; 1 is equal."""
    if best is None or trial.score is None or best.score is None:
        return None
    term = objective.terms[0]
    if objective.is_composite or term.spec.direction is Direction.MAXIMIZE:
        return best.score / trial.score if trial.score else None
    return trial.score / best.score if best.score else None


def _reason(trial: TrialRecord) -> str:
    first = trial.evidence.strip().partition("\n")[0]
    if trial.state is TrialState.SUCCEEDED:  # it ran, but keeps to a constraint of the user's no more
        return first or "it has no score"
    return f"{trial.failure.value if trial.failure else trial.state.value}: {first}"


def _transfers(policy: ArmResult, tolerance: float) -> bool:
    return policy.ratio is not None and policy.ratio <= 1 + tolerance


def _verdict(
    policy: ArmResult, arms: Mapping[str, ArmResult], best: TrialRecord | None, tolerance: float, trials: int
) -> str:
    config, seed = arms[CONFIG], arms[SEED]
    if policy.ratio is None:
        head = f"the policy has no result there ({policy.infeasible})"
    else:
        word = "transfers" if _transfers(policy, tolerance) else "does not transfer"
        head = f"the policy {word}: its config costs {policy.ratio:.3f} x the best found in {trials} trials"
        head += _noise(policy, best, arms)
    parts = [head]
    if policy.ratio is not None and seed.ratio is not None:
        parts.append(_against_seed(seed.ratio / policy.ratio))
    if config.ratio is not None:
        parts.append(f"the published config, verbatim, costs {config.ratio:.3f} x the best found")
    else:
        broken = (config.infeasible or "").startswith("infeasible:")
        word = "breaks a constraint" if broken else "cannot run"
        parts.append(f"the published config {word} there ({config.infeasible})")
    return "; ".join(parts)


def _noise(policy: ArmResult, best: TrialRecord | None, arms: Mapping[str, ArmResult]) -> str:
    """Whether the measured spread covers the difference from the best found."""
    if best is None or best.score is None or policy.score is None or policy.trial == best.number:
        return ""
    of_best = next((found.spread for found in arms.values() if found.trial == best.number), None)
    if not repeats.within(best.score - policy.score, policy.spread, of_best):
        return ""
    return " (the difference is inside the measured spread)"


def _against_seed(ratio: float) -> str:
    if ratio >= 1:
        return f"{ratio:.2f} x better than the seed policy"
    return f"{1 / ratio:.2f} x worse than the seed policy"


def _best(best: TrialRecord, arms: Mapping[str, ArmResult]) -> dict[str, Any]:
    by = next((found.arm for found in arms.values() if found.trial == best.number), REFINED)
    return {"trial": best.number, "arm": by, "config": best.config, "score": best.score, "metrics": best.values}


def _knobs(origin: Origin, policy: ArmResult, environment: Environment, runner: PolicyRunner) -> list[dict[str, Any]]:
    """Every knob whose value is another there, with the facts that alone account for it and the policy's own words.

    On another framework these are the knobs of the policy's own one, before they were translated.
    """
    config = policy.config
    if config is not None and environment.framework != origin.framework:
        config = _own_config(origin, environment, runner)
    if config is None:
        return []
    causes = _causes(origin, environment, runner)
    keys = [*origin.config, *(key for key in config if key not in origin.config)]
    return [
        {
            "knob": key,
            "published": origin.config.get(key),
            "replayed": config.get(key),
            "because_of": causes.get(key, []),
            "rationale": origin.rationale,
        }
        for key in keys
        if origin.config.get(key) != config.get(key)
    ]


def _own_config(origin: Origin, environment: Environment, runner: PolicyRunner) -> dict[str, Any] | None:
    try:
        return runner.evaluate(origin.policy_source, *own_inputs(origin, environment))
    except (PolicyError, BadInputError):
        return None


def _causes(origin: Origin, environment: Environment, runner: PolicyRunner) -> dict[str, list[str]]:
    """Knob to the facts that decide it: with one fact back at its published value the policy gives another value."""
    try:
        workload, there = own_inputs(origin, environment)
        old_workload, old = own_inputs(origin, origin.environment)
        now = runner.evaluate(origin.policy_source, workload, there)
    except (PolicyError, BadInputError):
        return {}
    found: dict[str, list[str]] = {}
    changed = [key for key in {**there, **old} if there.get(key) != old.get(key)]
    tries = [(f"{key} {old.get(key)} -> {there.get(key)}", workload, _with(there, key, old)) for key in changed]
    if workload["config_space"] != old_workload["config_space"]:
        tries.append(("the choices of the space", {**workload, "config_space": old_workload["config_space"]}, there))
    for fact, inputs, facts in tries:
        try:
            config = runner.evaluate(origin.policy_source, inputs, facts)
        except PolicyError:
            continue
        for key in now:
            if config.get(key) != now[key]:
                found.setdefault(key, []).append(fact)
    return found


def _with(facts: Mapping[str, Any], key: str, old: Mapping[str, Any]) -> dict[str, Any]:
    changed = {name: value for name, value in facts.items() if name != key}
    return {**changed, key: old[key]} if key in old else changed


def _notes(run: RunRecord, best: TrialRecord | None) -> list[str]:
    found = repeats.warnings(run, best)
    told = run.options[REPLAY]
    kept = run.options.get("settings", {}).get("constraints") or ()
    if kept:
        found.append(f"constraints that held here: {', '.join(f'`{text}`' for text in kept)}")
    found += [f"the published constraint `{text}` means nothing there" for text in run.options.get(DROPPED, ())]
    if best is not None and best.fidelity is not None and told["fidelity"] not in (None, best.fidelity.value):
        found.append(
            f"the published optimum is {told['fidelity']}, this replay {best.fidelity.value}: only results of this "
            "replay are compared with each other"
        )
    if not run.options.get("refine"):
        found.append("nothing was searched there: the best found is the best of what was compared (see --refine N)")
    return found
