"""What a proposer's LLM is told: text blocks that are a pure function of the `ProposalContext`.

Three parts, in the order that lets a prompt cache work: facts of the run (never change), trials (only grow, in blocks
of `GROUP` that never change once full), and what changes from call to call. No clock, no random order: keys are
sorted and floats have six significant digits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ccl_search.llm import front, prompts
from ccl_search.llm.redact import redact
from ccl_search.proposers.base import ProposalContext, TrialView
from runs.metric import Direction
from runs.objective import Objective, Term
from runs.space import ConfigSpace
from runs.trial import TrialState

GROUP = 10
EVIDENCE_HEAD = 6_000
EVIDENCE_TAIL = 2_000
BRIEF_EVIDENCE = 160
KEPT_WHOLE = {0: None, 1: 10, 2: 3}
MAX_COMPACTION = max(KEPT_WHOLE)


def facts_block(context: ProposalContext) -> str:
    """Workload, environment, space with constraints, objective with its direction: the same text all through a run."""
    workload = {key: value for key, value in context.workload.items() if key != "config_space"}
    return prompts.fill(
        "facts",
        workload=redact(dumps(workload)),
        environment=redact(dumps(context.environment)),
        space=context.space.name,
        size=context.space.size,
        world_size=context.space.world_size_expression.text,
        knobs="\n".join(f"- {dumps(knob.as_dict())}" for knob in context.space.knobs),
        constraints=_constraints(context.space),
        objective=context.objective.name,
        scoring=scoring(context.objective) + front.limits_text(context) + front.goal_text(context),
    )


def history_blocks(context: ProposalContext, compaction: int = 0) -> list[str]:
    """The trials in blocks of `GROUP`, one line each. Adding a trial changes at most the last block, and only its end.

    `compaction` above 0 shortens trials: at 1 all but the last ten, at 2 all but the last three. The best trial always
    stays whole, and every trial keeps its config, state, class and score.
    """
    keep = KEPT_WHOLE[compaction]
    best = context.best
    first_whole = 0 if keep is None else max(0, len(context.history) - keep)
    lines = [
        trial_line(trial) if index >= first_whole or trial is best else brief_line(trial)
        for index, trial in enumerate(context.history)
    ]
    return [_block(lines[start : start + GROUP], start) for start in range(0, len(lines), GROUP)]


def full_groups(context: ProposalContext) -> int:
    """How many blocks of `history_blocks` are full and will not change any more."""
    return len(context.history) // GROUP


def task_block(context: ProposalContext) -> str:
    """What changes: current policy in full, best trial, refusals of this iteration, iterations left, the task."""
    best = context.best
    return prompts.fill(
        "task",
        iteration=context.iteration,
        iterations=context.iterations,
        left=max(0, context.iterations - context.iteration),
        trials=len(context.history),
        succeeded=sum(trial.state is TrialState.SUCCEEDED for trial in context.history),
        best=_best(best) + front.front_text(context),
        current=redact(context.current_policy.rstrip("\n")),
        best_policy=_best_policy(best, context.current_policy),
        refusals=_refusals(context),
        task=_task(context),
    )


def scoring(objective: Objective) -> str:
    """How the score is made from metrics and which way each of them improves."""
    lines = [f"- {_meaning(term)}" for term in objective.terms]
    if not objective.is_composite:
        term = objective.terms[0]
        sign = "" if term.spec.direction is Direction.MAXIMIZE else "-"
        head = f"score = {sign}{term.spec.name}. A higher score is better."
    else:
        head = f"score = {' + '.join(map(_ratio, objective.terms))}. A higher score is better; the baseline scores 1."
    return "\n".join([head, *lines])


def trial_line(trial: TrialView) -> str:
    """One trial as one line of JSON: whole config, state, class, whole evidence, score, metrics, rationale, and how its
    policy does elsewhere.

    Evidence or a rationale longer than 8,000 characters loses its middle, and says so.
    """
    return _line(trial, evidence(trial.evidence), evidence(trial.rationale), trial.metrics, trial.portability)


def brief_line(trial: TrialView) -> str:
    """The same without rationale, metrics and `elsewhere`, and with no more than the beginning of the evidence."""
    flat = " ".join(evidence(trial.evidence).split())
    return _line(trial, flat[:BRIEF_EVIDENCE] + (" ..." if len(flat) > BRIEF_EVIDENCE else ""), "", {})


def evidence(text: str) -> str:
    """Evidence without secrets, and without its middle where it is very long."""
    clean = redact(text.strip())
    left_out = len(clean) - EVIDENCE_HEAD - EVIDENCE_TAIL
    if left_out <= 0:
        return clean
    return f"{clean[:EVIDENCE_HEAD]}\n[{left_out} characters left out]\n{clean[-EVIDENCE_TAIL:]}"


def dumps(value: Any) -> str:
    """One line of JSON with sorted keys and floats of six significant digits."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, allow_nan=False)


def number(value: float) -> str:
    """A float as it is shown everywhere: six significant digits."""
    return f"{value:.6g}"


def _line(
    trial: TrialView, shown_evidence: str, rationale: str, metrics: Mapping[str, float], elsewhere: str = ""
) -> str:
    fields: dict[str, Any] = {
        "trial": trial.number,
        "state": trial.state.value,
        "failure": trial.failure.value if trial.failure else None,
        "config": trial.config,
        "score": trial.score,
        "metrics": dict(metrics) or None,
        "evidence": shown_evidence or None,
        "rationale": redact(rationale.strip()) or None,
        "breaks": list(trial.violations) or None,
        "score_spread": trial.score_spread,
        "elsewhere": redact(elsewhere) or None,
    }
    shown = {key: _plain(value) for key, value in fields.items() if value is not None or key == "config"}
    shown = {key: dict(sorted(value.items())) if isinstance(value, dict) else value for key, value in shown.items()}
    return json.dumps(shown, ensure_ascii=False, allow_nan=False)


def _block(lines: Iterable[str], start: int) -> str:
    return "\n".join([f"<trials from_entry={start}>", *lines])


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(number(value)) if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _constraints(space: ConfigSpace) -> str:
    lines = [
        f"- {rule.name}: `{rule.expression.text}`" + (f" ({rule.message})" if rule.message else "")
        for rule in space.constraints
    ]
    return "\n".join(lines) or "- none beyond the choices of each knob"


def _meaning(term: Term) -> str:
    spec = term.spec
    way = "lower is better" if spec.direction is Direction.MINIMIZE else "higher is better"
    about = f": {spec.description}" if spec.description else ""
    return f"{spec.name} in {spec.unit or 'no unit'}, {way}{about}"


def _ratio(term: Term) -> str:
    base = "baseline" if term.baseline is None else number(term.baseline)
    name = term.spec.name
    over, under = (name, base) if term.spec.direction is Direction.MAXIMIZE else (base, name)
    return f"{number(term.weight)} * ({over} / {under})"


def _best(best: TrialView | None) -> str:
    if best is None or best.score is None:
        return "Best so far: nothing has succeeded yet."
    metrics = f", metrics {dumps(best.metrics)}" if best.metrics else ""
    return (
        f"Best so far (highest score): trial {best.number}, score {number(best.score)}, "
        f"config {dumps(best.config)}{metrics}."
    )


def _best_policy(best: TrialView | None, current: str) -> str:
    if best is None or not best.policy_source or best.policy_source.strip() == current.strip():
        return ""
    source = redact(best.policy_source.rstrip("\n"))
    return f"\nThe policy of the best trial ({best.number}), which is not the current one:\n```python\n{source}\n```\n"


def _refused(context: ProposalContext) -> tuple[TrialView, ...]:
    return context.history[-context.refusals :] if context.refusals else ()


def _refusals(context: ProposalContext) -> str:
    refused = _refused(context)
    if not refused:
        return ""
    lines = [
        f"- {trial.failure or trial.state}: {dumps(trial.config)}: {evidence(trial.evidence)}" for trial in refused
    ]
    return "\nRefused in this iteration, before a launch, newest last:\n" + "\n".join(lines) + "\n"


def _task(context: ProposalContext) -> str:
    if context.refusals:
        return "your last proposal was refused for the reason above; submit a policy whose config avoids it and is new."
    if context.best is None:
        return "improve the policy so that its config for this workload and environment runs."
    wanted = front.task_text(context)
    if wanted:
        return wanted
    return "improve the policy so that its config for this workload and environment is new and beats the best score."
