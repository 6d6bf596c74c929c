"""The `tpe` proposer: Optuna's tree-structured Parzen estimator over the knobs, told the whole history each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ccl_search.proposers.base import Proposal, ProposalContext, TrialView, constant_policy
from ccl_search.proposers.samplers import (
    Fitting,
    RandomProposer,
    anything_fits,
    is_new_and_valid,
    seen_configs,
)
from runs.space import Config

if TYPE_CHECKING:
    import optuna

    from ccl_search.constraints import Limit

_STARTUP_TRIALS = 5
_MAX_ASKS = 200


class TpeProposer:
    """Asks a fresh study, rebuilt from the history, for a config; stateless, so a resumed run goes on the same way.

    Configs that the space forbids or that do not fit in memory (`fits`) are asked again; when the sampler keeps
    returning such or known ones, a random valid config is proposed instead and the rationale says so.
    """

    name = "tpe"

    def __init__(self, seed: int, fits: Callable[[Config], bool] = anything_fits) -> None:
        self._seed = seed
        self._fits = Fitting(fits)
        self._fallback = RandomProposer(seed, self._fits)

    def propose(self, context: ProposalContext) -> Proposal:
        """The sampler's next valid config.

        Raises:
            ProposerExhaustedError: every valid config has been tried.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        distributions = {
            knob.key: optuna.distributions.CategoricalDistribution(knob.choices) for knob in context.space.knobs
        }
        study = self._study(context, distributions)
        seen = seen_configs(context)
        for _ in range(_MAX_ASKS):
            trial = study.ask(dict(distributions))
            config = {key: trial.params[key] for key in context.space.keys}
            if is_new_and_valid(config, context, seen) and self._fits(config):
                return Proposal(constant_policy(config), "tree-structured Parzen estimator")
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        fallback = self._fallback.propose(context)
        return Proposal(fallback.source, f"the sampler found nothing new in {_MAX_ASKS} draws; {fallback.rationale}")

    def close(self) -> None:
        """Nothing is held."""

    def _study(self, context: ProposalContext, distributions: dict[str, Any]) -> optuna.Study:
        import optuna

        seed = self._seed * 1_000_003 + len(context.history)
        sampler = optuna.samplers.TPESampler(seed=seed % 2**32, n_startup_trials=_STARTUP_TRIALS)
        study = optuna.create_study(directions=_directions(context), sampler=sampler)
        for view in context.history:
            if view.config is not None and not _outside(view, context):
                study.add_trial(_frozen(view, distributions, context))
        return study


def _directions(context: ProposalContext) -> list[Any]:
    """One direction for the score; one for every metric of the objective where the front itself is wanted."""
    if context.pareto is None:
        return ["maximize"]
    return [spec.direction.value for spec in context.pareto.axes]


def _outside(view: TrialView, context: ProposalContext) -> bool:
    config = view.config or {}
    return any(key not in config or not context.space.knob(key).allows(config[key]) for key in context.space.keys)


def _frozen(view: TrialView, distributions: dict[str, Any], context: ProposalContext) -> optuna.trial.FrozenTrial:
    import optuna

    params = {key: (view.config or {})[key] for key in distributions}
    values = _values(view, context)
    if values is None:
        return optuna.trial.create_trial(state=optuna.trial.TrialState.FAIL, params=params, distributions=distributions)
    excesses = {limit.text: _excess(limit, view) for limit in context.limits}
    return optuna.trial.create_trial(
        values=values, params=params, distributions=distributions, constraints=excesses or None
    )


def _values(view: TrialView, context: ProposalContext) -> list[float] | None:
    """The numbers the sampler learns from; a trial that breaks a limit has some too, with how far it breaks it."""
    if context.pareto is not None:
        found = [view.metrics.get(spec.name) for spec in context.pareto.axes]
        return None if None in found else [value for value in found if value is not None]
    if view.score is not None:
        return [view.score]
    if not view.violations:
        return None
    try:
        return [context.objective.score(view.metrics)]
    except (KeyError, ValueError):
        return None


def _excess(limit: Limit, view: TrialView) -> float:
    value = view.metrics.get(limit.spec.name)
    return 1.0 if value is None else limit.excess(value)
