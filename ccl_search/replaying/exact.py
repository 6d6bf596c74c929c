"""`replay --exact`: a published search again, from its record alone, config by config.

What follows from what is checked: given the recorded outcomes of the trials and the recorded answers of the LLM, the
proposer must propose every policy again, the sandbox must give every config again, and the checks must refuse what was
refused. Nothing is launched (the outcomes are the published ones, whatever the target was) and nothing is asked of a
network: the LLM client is the one that serves stored answers.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccl_search import assembly
from ccl_search.portability.spec import NAME as PORTABILITY
from ccl_search.problem import Problem
from ccl_search.publishing import opening
from ccl_search.publishing.importing import import_published
from ccl_search.publishing.opening import PublishedTrial
from ccl_search.publishing.verifying import MismatchError
from ccl_search.settings import SearchSettings
from policies.reading import CARD, Published
from runs.errors import BadInputError, CclSearchError, UnverifiableError
from runs.objective import Objective
from runs.trial import FailureClass, TrialState

if TYPE_CHECKING:
    from ccl_search.loop.search import Search
    from runs.store import TrialRecord


NOTHING_IS_LAUNCHED = "dry-run"
"""The target of a repeated search, which launches nothing: its real one may not exist here."""


@dataclass
class ExactReplay:
    """How a repeated search compares: the trials compared, and every difference, `file: what`."""

    name: str
    run_id: str
    proposer: str
    trials: int = 0
    llm_calls: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def reproduced(self) -> bool:
        """Whether every trial came again as it was published."""
        return not self.differences

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "reproduced": self.reproduced}

    def lines(self) -> list[str]:
        """The report for people."""
        word = "reproduced" if self.reproduced else "not reproduced"
        head = f"{word}: {self.trials} trials of run {self.run_id} ({self.proposer}, {self.llm_calls} LLM answers)"
        return [*self.differences, head]

    def require(self) -> None:
        """Raise the first difference.

        Raises:
            MismatchError: there is one (exit code 1).
        """
        if self.differences:
            raise MismatchError(
                f"the search is not reproduced: {self.differences[0]}",
                "replay with the version of ccl-search that the manifest names under `versions`",
            )


def replay_exactly(published: Published) -> ExactReplay:
    """Repeat the search of an open published folder in a store of its own, which goes away.

    Raises:
        BadInputError: the folder cannot be used.
        UnverifiableError: what the search needs was not published (LLM answers, exact values).
    """
    manifest = published.manifest
    trials = opening.trials(published)
    _require_record(published, trials)
    with (
        tempfile.TemporaryDirectory(prefix="ccl-search-") as home,
        assembly.open_store(str(Path(home) / "store"), write=True) as store,
    ):
        recorded = import_published(store, published, check=False)
        calls = store.llm_calls(recorded)
        search = _search(published, store, recorded, bool(calls))
        found = ExactReplay(published.name, str(manifest["run"].get("id")), search.proposer.name, llm_calls=len(calls))
        try:
            _drive(search, trials, found)
        except CclSearchError as error:
            found.differences.append(f"{error.message} ({error.hint})")
        finally:
            search.close()
        _compare(store.trials(search.run_id), trials, found)
    return found


def _require_record(published: Published, trials: list[PublishedTrial]) -> None:
    manifest = published.manifest
    statement = manifest.get("anonymised") or {}
    if isinstance(statement, dict) and statement.get("perturbation"):
        raise UnverifiableError(
            "the search cannot be repeated exactly: its measurements were perturbed before it was published",
            "`replay --environment` and `verify` work all the same",
        )
    asked = manifest["proposer"].get("name") == "claude" and any(trial.iteration > 0 for trial in trials)
    if asked and not manifest["evidence"].get("transcript"):
        raise UnverifiableError(
            "the search cannot be repeated exactly: its LLM transcript was not published",
            "ask the publisher for it (publish without --no-transcript)",
        )
    if (manifest["settings"].get("parallel") or 1) != 1:
        raise UnverifiableError(
            "the search cannot be repeated exactly: several of its trials were in flight at a time",
            "`verify` works all the same",
        )
    if any(trial.state is TrialState.CANCELLED for trial in trials):
        raise UnverifiableError(
            "the search cannot be repeated exactly: a trial was cancelled by hand", "`verify` works all the same"
        )


def _search(published: Published, store: Any, recorded: str, asked: bool) -> Search:
    from launchers import frameworks
    from runs.card import parse_card

    manifest = published.manifest
    card = parse_card(published.read_text(CARD), CARD).card
    objective = _as_it_began(opening.objective(manifest), opening.trials(published))
    problem = Problem(
        card,
        card.workload(),
        card.environment(),
        frameworks.get(str(manifest["framework"].get("name"))),
        published.space(),
        objective,
    )
    settings = replace(
        SearchSettings.from_dict(_with_tuples(manifest["settings"])),
        proposer=str(manifest["proposer"].get("name")),
        target=NOTHING_IS_LAUNCHED,
        replay_llm=recorded if asked else None,
        unconfined=False,
        prices=None,
    )
    seed = store.run(recorded).options["seed_policy"]
    if not seed:
        raise BadInputError("seed_policy.py is missing", "get the folder again")
    return assembly.start(problem, settings, store, seed, None, assembly.Origin("replay", recorded))


def _with_tuples(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}


def _as_it_began(objective: Objective, trials: list[PublishedTrial]) -> Objective:
    """The objective without the baselines that the search took from its first succeeded trial."""
    first = next((trial for trial in trials if trial.state is TrialState.SUCCEEDED), None)
    if first is None or not objective.is_composite:
        return objective
    own = {name: found.value for name, found in first.metrics.items()}
    terms = (replace(t, baseline=None) if t.baseline == own.get(t.spec.name) else t for t in objective.terms)
    return Objective(tuple(terms))


def _drive(search: Search, trials: list[PublishedTrial], found: ExactReplay) -> None:
    """Ask for every config, and tell the published outcome as long as it is the published one."""
    known = {trial.number: trial for trial in trials}
    last = max(known, default=-1)
    while (suggestion := search.ask()) is not None:
        trial = known.get(suggestion.number)
        if trial is None:
            if suggestion.number <= last:
                found.differences.append(f"trial {suggestion.number} was not published")
            return
        if suggestion.config != trial.config:
            return
        if trial.failure is None:
            values = {name: v.value for name, v in trial.metrics.items() if v.value is not None and name != PORTABILITY}
            search.tell(suggestion, values)  # portability follows from the policy: the search computes it again
        else:
            search.tell(suggestion, failure=trial.failure, evidence=str(trial.data["evidence"]))
        if suggestion.number == last:
            return


def _compare(again: list[TrialRecord], trials: list[PublishedTrial], found: ExactReplay) -> None:
    made = {record.number: record for record in again}
    for trial in trials:
        record = made.get(trial.number)
        where = f"{trial.folder}/trial.json"
        if record is None:
            found.differences.append(f"{where}: the trial did not come again")
            return
        found.trials += 1
        if record.config != trial.config:
            found.differences.append(f"{where}: config {trial.config!r} -> {record.config!r}")
            return
        if record.policy_source != trial.policy_source:
            found.differences.append(f"{trial.folder}/policy.py: another policy was proposed")
        if (record.state, record.failure) != (trial.state, trial.failure):
            was, now = _outcome(trial.state, trial.failure), _outcome(record.state, record.failure)
            found.differences.append(f"{where}: {was} -> {now}")


def _outcome(state: TrialState, failure: FailureClass | None) -> str:
    return f"{state.value} ({failure.value})" if failure else state.value
