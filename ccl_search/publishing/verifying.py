"""Verifying a published search: every hash, metric and score again from the evidence, every policy run again.

A published value that its evidence does not give is a **mismatch**. What has no evidence (a trace that is missing or
was never published) is **unverifiable**. Both are findings with the file and, where there are two values, both of them.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ccl_search import constraints
from ccl_search.portability.metric import BASIS, PortabilityTool
from ccl_search.portability.spec import NAME as PORTABILITY
from ccl_search.portability.spec import concerns
from ccl_search.publishing import opening, packing
from ccl_search.publishing.entries import Subject, measured
from ccl_search.publishing.opening import PublishedTrial
from policies.program import Policy
from policies.reading import CARD, MANIFEST, POLICY, Published
from policies.runner import PolicyError, PolicyRunner
from runs.digests import file_sha256
from runs.errors import BadInputError, CclSearchError, TargetUnavailableError, UnverifiableError
from runs.objective import Objective
from runs.space import ConfigSpace
from runs.trial import TrialState

if TYPE_CHECKING:
    from ccl_search.measuring import Measurement

TOLERANCE = 1e-9
"""Relative difference up to which a recomputed number is the published one: other machines round sums differently."""

_MOST_POINTS = 10**7
Kind = Literal["mismatch", "unverifiable"]


class MismatchError(CclSearchError):
    """A published value is not what its evidence gives: exit code 1."""


@dataclass(frozen=True)
class Finding:
    """One thing that does not hold, or cannot be told: the `file`, `what`, the published and the found value."""

    kind: Kind
    file: str
    what: str
    published: Any = None
    found: Any = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(vars(self))

    def __str__(self) -> str:
        values = "" if self.published is None and self.found is None else f": {self.published!r} -> {self.found!r}"
        return f"{self.kind}: {self.file}: {self.what}{values}"


@dataclass
class Verification:
    """What verifying found. Counts are of what was checked and holds or not; `findings` is everything that does not."""

    name: str
    run_id: str
    files: int = 0
    trials: int = 0
    metrics: int = 0
    policies: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def status(self) -> str:
        """`mismatch` where anything is wrong, else `unverifiable` where anything cannot be told, else `verified`."""
        kinds = {finding.kind for finding in self.findings}
        return "mismatch" if "mismatch" in kinds else "unverifiable" if kinds else "verified"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "status": self.status, "findings": [finding.as_dict() for finding in self.findings]}

    def require(self) -> None:
        """Raise what does not hold.

        Raises:
            MismatchError: a value is not what the evidence gives (exit code 1).
            UnverifiableError: nothing is wrong, but something has no evidence (exit code 5).
        """
        if not self.findings:
            return
        first = next((each for each in self.findings if each.kind == self.status), self.findings[0])
        count = f"{len(self.findings)} findings in {self.name}, the first: {first}"
        if self.status == "mismatch":
            raise MismatchError(count, "do not rely on these values; ask the publisher")
        raise UnverifiableError(count, "ask the publisher for the traces, or take the values on trust")


def verify(published: Published, runner: PolicyRunner | None = None) -> Verification:
    """Check everything that can be checked of an open published folder. `runner` None: the sandbox it was made in.

    Raises:
        BadInputError: the folder's files do not have the form they should.
    """
    manifest = published.manifest
    found = Verification(published.name, str(manifest["run"].get("id", "")))
    found.findings += _files(published)
    found.files = len(manifest["files"])
    trials = opening.trials(published)
    with _sandbox(published, trials, runner, found) as used:
        policies = None if used is None else portability_of(published, used)
        objective, limits = opening.objective(manifest), _limits(published)
        checker = _Checker(published, objective, subject(published), policies, found, limits)
        for trial in trials:
            checker.trial(trial)
        checker.best(trials)
        _check_policies(published, trials, used, found)
    return found


def portability_of(published: Published, runner: PolicyRunner) -> PortabilityTool | None:
    """The tool that computes the metric `portability` again, from policies alone.

    None for a space of the publisher's own that is so large that looking for valid configs might never end.

    Raises:
        BadInputError: the card, the framework or the space cannot be used.
    """
    from ccl_search.portability.cases import Home
    from ccl_search.portability.metric import PortabilityTool
    from ccl_search.portability.spaces import is_own
    from launchers import frameworks

    where, manifest, space = subject(published), published.manifest, published.space()
    if space.size > _MOST_POINTS and is_own(space, where.workload, where.environment):
        return None
    framework = frameworks.get(str(manifest["framework"].get("name")))
    bounds = tuple(map(str, manifest["settings"].get("constraints") or ()))
    return PortabilityTool(Home(where.workload, where.environment, framework, space, bounds), runner)


def subject(published: Published) -> Subject:
    """Workload and environment of the published card.

    Raises:
        BadInputError: the card is missing or cannot be used.
    """
    from runs.card import parse_card

    card = parse_card(published.read_text(CARD), CARD).card
    return Subject(card.workload(), card.environment())


def _limits(published: Published) -> tuple[constraints.Limit, ...]:
    """The bounds on metrics that the search kept to.

    Raises:
        BadInputError: a constraint of the manifest is none.
    """
    texts = published.manifest["settings"].get("constraints") or ()
    return constraints.parse(map(str, texts), published.space()).limits


def _files(published: Published) -> Iterator[Finding]:
    listed, there = published.manifest["files"], published.files
    for name, facts in listed.items():
        if name not in there:
            kind: Kind = "unverifiable" if "/trace/" in name else "mismatch"
            yield Finding(kind, name, "is missing")
            continue
        digest = file_sha256(published.root / name)
        if digest != facts["sha256"]:
            yield Finding("mismatch", name, "SHA-256", facts["sha256"], digest)
    for name in there:
        if name not in listed and name != MANIFEST:
            yield Finding("mismatch", name, f"is not listed in {MANIFEST}")


@dataclass
class _Checker:
    published: Published
    objective: Objective
    subject: Subject
    policies: PortabilityTool | None
    found: Verification
    limits: tuple[constraints.Limit, ...] = ()

    @property
    def perturbed(self) -> bool:
        """Whether the published times are not the true ones."""
        statement = self.published.manifest.get("anonymised")
        return isinstance(statement, dict) and bool(statement.get("perturbation"))

    def trial(self, trial: PublishedTrial) -> None:
        """Metrics and score of one trial from its traces."""
        self.found.trials += 1
        if trial.score != trial.metrics_score and trial.metrics:
            self._mismatch(f"{trial.folder}/metrics.json", "score", trial.metrics_score, trial.score)
        if trial.state is not TrialState.SUCCEEDED:
            self._no_result(trial)
            return
        if trial.plan is None or not trial.traces:
            self._unverifiable(f"{trial.folder}/trial.json", "the trial has no trace")
            return
        lost = [packed for packed in trial.traces if not self._is_there(trial, packed)]
        for packed in lost:
            what = "only its hash is published" if packed.file is None else "the trace is missing"
            self._unverifiable(f"{trial.folder}/{packed.file or packed.path}", what)
        if not lost:
            self._recompute(trial)

    def best(self, trials: list[PublishedTrial]) -> None:
        """That the best trial is the best, and that its policy is the published one."""
        scored = [trial for trial in trials if trial.score is not None and trial.state is TrialState.SUCCEEDED]
        ranked = [trial for trial in scored if trial.fidelity and trial.fidelity.value == "measured"] or scored
        top = max(ranked, key=lambda trial: (trial.score or 0.0, -trial.number), default=None)
        told = self.published.best
        if (told is None) != (top is None) or (told is not None and top is not None and told["trial"] != top.number):
            self._mismatch(MANIFEST, "best trial", told and told["trial"], top and top.number)
        if told is None or top is None:
            return
        if told.get("score") != top.score:
            self._mismatch(MANIFEST, "score of the best trial", told.get("score"), top.score)
        if told["config"] != top.config:
            self._mismatch(MANIFEST, "config of the best trial", told["config"], top.config)
        digest = Policy(self.published.policy_source).sha256
        if digest != told["policy_sha256"] or self.published.policy_source != top.policy_source:
            self._mismatch(POLICY, "is not the policy of the best trial", told["policy_sha256"], digest)

    def _no_result(self, trial: PublishedTrial) -> None:
        if trial.score is not None:
            self._mismatch(f"{trial.folder}/trial.json", f"a {trial.state.value} trial has a score", trial.score, None)

    def _is_there(self, trial: PublishedTrial, packed: packing.PackedFile) -> bool:
        return packed.file is not None and f"{trial.folder}/{packed.file}" in self.published.files

    def _recompute(self, trial: PublishedTrial) -> None:
        with tempfile.TemporaryDirectory(prefix="ccl-search-") as place:
            try:
                for packed in trial.traces:
                    packing.unpack(packed, self.published.root / trial.folder, Path(place))
            except BadInputError as error:
                self._mismatch(f"{trial.folder}/trace", error.message)
                return
            assert trial.plan is not None
            measurement = measured(Path(place), self.subject, trial.plan)
        if measurement.failure is not None:
            self._mismatch(f"{trial.folder}/trace", f"no metric can be computed: {measurement.evidence}")
            return
        self._compare(trial, measurement)

    def _compare(self, trial: PublishedTrial, measurement: Measurement) -> None:
        where = f"{trial.folder}/metrics.json"
        if not trial.metrics:
            self._mismatch(where, "is missing")
        measurement = self._with_portability(trial, measurement)
        for name, told in trial.metrics.items():
            again = measurement.values.get(name)
            if name == PORTABILITY and again is None:
                self._unverifiable(where, f"{name}: {self._no_portability}")
                continue
            if again is None:
                self._unverifiable(where, f"there is no tool for the metric {name} here")
                continue
            self.found.metrics += 1
            if not _same(told.value, again.value):
                versions = "" if told.version == again.version else f" (version {told.version}, now {again.version})"
                self._mismatch(where, f"{name}{versions}", told.value, again.value)
            elif told.unit != again.unit:
                self._mismatch(where, f"unit of {name}", told.unit, again.unit)
        self._score(trial, measurement)

    def _with_portability(self, trial: PublishedTrial, measurement: Measurement) -> Measurement:
        """With the metric of the policy, where the trial has it and it can be told here."""
        told = trial.metrics.get(PORTABILITY)
        if told is None or self.policies is None or not trial.policy_source:
            return measurement
        if (told.detail or {}).get(BASIS) != self.policies.basis:
            return measurement
        again = self.policies.value(trial.policy_source)
        return replace(measurement, values={**measurement.values, PORTABILITY: again})

    @property
    def _no_portability(self) -> str:
        if self.policies is None:
            return "there is no sandbox to run policies in, or the space is too large to be walked"
        return "it was computed over other clusters or with another simulator than this ccl-search has"

    def _score(self, trial: PublishedTrial, measurement: Measurement) -> None:
        if concerns(self.objective) and PORTABILITY not in measurement.values:
            return  # unverifiable, which was said of the metric
        if trial.score is None and self.perturbed:
            return  # whether the true values kept to the constraints cannot be told from the perturbed ones
        broken = () if self.perturbed else constraints.violations(self.limits, measurement.values)
        try:
            score = None if broken else self.objective.score(measurement.numbers)
        except (KeyError, ValueError):
            score = None
        if not _same(trial.score, score):
            why = f": {'; '.join(broken)}" if broken else ""
            self._mismatch(f"{trial.folder}/trial.json", f"score ({self.objective.name}){why}", trial.score, score)

    def _mismatch(self, file: str, what: str, published: Any = None, found: Any = None) -> None:
        self.found.findings.append(Finding("mismatch", file, what, published, found))

    def _unverifiable(self, file: str, what: str) -> None:
        if not any(known.file == file for known in self.found.findings):
            self.found.findings.append(Finding("unverifiable", file, what))


def _same(told: float | None, again: float | None) -> bool:
    if told is None or again is None:
        return told is again
    return math.isclose(told, again, rel_tol=TOLERANCE, abs_tol=1e-12)


@contextmanager
def _sandbox(
    published: Published, trials: list[PublishedTrial], runner: PolicyRunner | None, found: Verification
) -> Iterator[PolicyRunner | None]:
    """The sandbox that policies run in; None, and a finding, where there is none, and where there is no policy."""
    if not any(trial.policy_source and trial.config is not None for trial in trials):
        yield None
        return
    if runner is not None:
        yield runner
        return
    try:
        used = sandbox(published)
    except TargetUnavailableError as error:
        found.findings.append(Finding("unverifiable", POLICY, f"no sandbox to run policies in: {error.message}"))
        yield None
        return
    try:
        yield used
    finally:
        used.close()


def _check_policies(
    published: Published, trials: list[PublishedTrial], runner: PolicyRunner | None, found: Verification
) -> None:
    """That every policy gives, in the sandbox, the config that was recorded for it."""
    if runner is None:
        return
    workload, environment = policy_inputs(published)
    for trial in trials:
        if not trial.policy_source or trial.config is None:
            continue
        found.policies += 1
        problem = _policy_problem(runner, trial, workload, environment)
        if problem is not None:
            found.findings.append(problem)


def _policy_problem(
    runner: PolicyRunner, trial: PublishedTrial, workload: dict[str, Any], environment: dict[str, Any]
) -> Finding | None:
    where = f"{trial.folder}/{POLICY}"
    try:
        config = runner.evaluate(trial.policy_source, workload, environment)
    except PolicyError as error:
        return Finding("mismatch", where, f"the policy gives no config: {error}", trial.config, None)
    if config != trial.config:
        return Finding("mismatch", where, "config of the policy", trial.config, config)
    return None


def sandbox(published: Published) -> PolicyRunner:
    """A sandbox of the kind the search used, never an unconfined one.

    Raises:
        BadInputError: the manifest names no sandbox there is.
        TargetUnavailableError: it does not work on this machine.
    """
    from policies.factory import create_runner

    proposer = published.manifest["proposer"]
    seed = proposer.get("seed")
    return create_runner(proposer.get("sandbox") or "monty", seed=seed if type(seed) is int else 0)


def policy_inputs(published: Published) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two dicts every policy of the search was given."""
    space: ConfigSpace = published.space()
    manifest = published.manifest
    return {**manifest["workload"], "config_space": [knob.as_dict() for knob in space.knobs]}, manifest["environment"]
