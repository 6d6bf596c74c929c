"""The trials of a published folder, checked for their form as they are read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ccl_search.publishing import packing
from ccl_search.publishing.packing import PackedFile
from runs.errors import BadInputError
from runs.metric import Direction, MetricSpec, MetricValue
from runs.objective import Objective, Term
from runs.plan import ParallelPlan
from runs.trial import FailureClass, Fidelity, TrialState

if TYPE_CHECKING:
    from policies.reading import Published

_FOLDER = re.compile(r"trials/(\d{2,6})/")
_JSON_BYTES = 8 * 2**20
_TEXT_BYTES = 2**20
_POLICY_BYTES = 64 * 2**10
_MOST_DIGITS = 18
_TYPES: Mapping[str, tuple[type, ...]] = {
    "number": (int,), "iteration": (int,), "state": (str,), "failure": (str, type(None)), "evidence": (str,),
    "config": (dict, type(None)), "rationale": (str,), "score": (int, float, type(None)),
    "plan": (dict, type(None)), "num_xpus": (int, type(None)), "fidelity": (str, type(None)),
    "backend": (str, type(None)), "provenance": (dict,), "policy_sha256": (str, type(None)), "traces": (list,),
}  # fmt: skip


@dataclass(frozen=True)
class PublishedTrial:
    """A published trial: what `trial.json` says, typed, with the texts and metric values beside it.

    `metrics_score` is the score in `metrics.json`; `data` the whole of `trial.json`.
    """

    folder: str
    number: int
    iteration: int
    state: TrialState
    failure: FailureClass | None
    score: float | None
    config: dict[str, Any] | None
    plan: ParallelPlan | None
    fidelity: Fidelity | None
    traces: tuple[PackedFile, ...]
    policy_source: str
    card: str
    script: str
    metrics: dict[str, MetricValue]
    metrics_score: float | None
    data: dict[str, Any]


def trials(published: Published) -> list[PublishedTrial]:
    """Every trial of the folder in order.

    Raises:
        BadInputError: a file of a trial is missing, is no JSON, or does not have the form it should.
    """
    matches = map(_FOLDER.match, published.files)
    folders = sorted({match[0].rstrip("/") for match in matches if match is not None}, key=_number)
    found = [_trial(published, folder) for folder in folders]
    if len(found) != published.manifest["trials"].get("total"):
        raise BadInputError(
            f"there are {len(found)} trials, the manifest says {published.manifest['trials'].get('total')}",
            "get the folder again",
        )
    return found


def objective(manifest: Mapping[str, Any]) -> Objective:
    """The objective of a published search, with its baselines.

    Raises:
        BadInputError: the manifest's objective is none.
    """
    described = {spec.get("name"): spec for spec in manifest["metrics"] if isinstance(spec, dict)}
    try:
        terms = tuple(_term(term, described.get(term["metric"], {})) for term in manifest["objective"]["terms"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadInputError(
            f"manifest.yaml: the objective cannot be read: {error!r}", "get the folder again"
        ) from error
    if not terms:
        raise BadInputError("manifest.yaml: the objective has no metric", "get the folder again")
    return Objective(terms)


def metric_specs(manifest: Mapping[str, Any]) -> tuple[MetricSpec, ...]:
    """The metric tools of the search.

    Raises:
        BadInputError: an entry is none.
    """
    known = {each.name for each in fields(MetricSpec)}
    try:
        return tuple(_spec({key: value for key, value in spec.items() if key in known}) for spec in manifest["metrics"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"manifest.yaml: a metric cannot be read: {error!r}", "get the folder again") from error


def _spec(data: dict[str, Any]) -> MetricSpec:
    lists = {key: tuple(data.get(key) or ()) for key in ("formats", "phases", "aliases")}
    return MetricSpec(**{**data, **lists, "direction": Direction(data["direction"])})


def _term(term: Mapping[str, Any], spec: Mapping[str, Any]) -> Term:
    weight, baseline = float(term["weight"]), term["baseline"]
    if not math.isfinite(weight):
        raise ValueError("a weight is not finite")
    own = {"name": term["metric"], "version": term["version"], "unit": term["unit"], "direction": term["direction"]}
    return Term(_spec({**spec, **own}), weight, None if baseline is None else float(baseline))


def _number(folder: str) -> int:
    return int(folder.removeprefix("trials/"))


def _trial(published: Published, folder: str) -> PublishedTrial:
    where = f"{folder}/trial.json"
    data = _json(published, where)
    for key, kinds in _TYPES.items():
        if key not in data or type(data[key]) not in kinds:
            raise BadInputError(f"{where}: `{key}` is missing or of the wrong kind", "get the folder again")
    if data["number"] != _number(folder):
        raise BadInputError(f"{where} is trial {data['number']}", "get the folder again")
    try:
        state, plan = TrialState(data["state"]), data["plan"]
        failure = None if data["failure"] is None else FailureClass(data["failure"])
        fidelity = None if data["fidelity"] is None else Fidelity(data["fidelity"])
        typed = None if plan is None else ParallelPlan.from_dict(plan)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"{where} cannot be read: {error!r}"[:300], "get the folder again") from error
    metrics, score = _metrics(published, f"{folder}/metrics.json")
    return PublishedTrial(
        folder=folder,
        number=data["number"],
        iteration=data["iteration"],
        state=state,
        failure=failure,
        score=_finite(data["score"], where),
        config=data["config"],
        plan=typed,
        fidelity=fidelity,
        traces=tuple(packing.from_dict(entry, where) for entry in data["traces"]),
        policy_source=_text(published, f"{folder}/policy.py", _POLICY_BYTES),
        card=_text(published, f"{folder}/card.yaml", _TEXT_BYTES),
        script=_text(published, f"{folder}/script.sh", _TEXT_BYTES),
        metrics=metrics,
        metrics_score=score,
        data=data,
    )


def _metrics(published: Published, name: str) -> tuple[dict[str, MetricValue], float | None]:
    if name not in published.files:
        return {}, None
    data = _json(published, name)
    values = data.get("metrics")
    if not isinstance(values, dict):
        raise BadInputError(f"{name}: `metrics` is missing or of the wrong kind", "get the folder again")
    try:
        found = {key: MetricValue(**{**value, "warnings": tuple(value["warnings"])}) for key, value in values.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"{name}: a metric cannot be read: {error!r}"[:300], "get the folder again") from error
    if any(value.name != key or type(value.value) not in (int, float, type(None)) for key, value in found.items()):
        raise BadInputError(f"{name}: a metric's value is no number, or its name is another", "get the folder again")
    return found, _finite(data.get("score"), name)


def _finite(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value):
        raise BadInputError(f"{where}: the score is no finite number", "get the folder again")
    return float(value)


def _json(published: Published, name: str) -> dict[str, Any]:
    try:
        text = published.read_text(name, _JSON_BYTES)
        found = json.loads(text, parse_constant=_no_constant, parse_int=_whole, parse_float=_decimal)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{name} is no JSON: {error}", "get the folder again") from error
    if not isinstance(found, dict):
        raise BadInputError(f"{name} is no JSON object", "get the folder again")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _decimal(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is out of range")
    return value


def _text(published: Published, name: str, most: int) -> str:
    return published.read_text(name, most) if name in published.files else ""
