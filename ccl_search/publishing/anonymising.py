"""What is done to a search before it is published, decided once, and the statement that says so."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ccl_search.publishing import names
from ccl_search.publishing.entries import Entry, Subject, remeasured
from ccl_search.publishing.names import Redactor
from ccl_search.publishing.rewriting import LARGEST, OperatorNames, TraceRewriter, Warp
from runs.digests import text_sha256
from runs.errors import BadInputError
from runs.objective import Objective
from runs.trial import FailureClass, TrialState

if TYPE_CHECKING:
    from runs.store import LlmCallRecord, RunRecord

_SHORTEST = 3
"""Letters of the shortest name that is replaced without being told to."""

_DECIMAL = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?|\d+ ?%")


@dataclass(frozen=True)
class PublishOptions:
    """What is published. `names` are further names to redact; `perturb_seed` None: made from the run's id."""

    anonymise: bool = False
    redact_operators: bool = False
    perturb: bool = False
    perturb_seed: int | None = None
    names: tuple[str, ...] = ()
    metrics_only: bool = False
    transcript: bool = True
    plain_traces: bool = False

    def check(self) -> None:
        """Refuse options that mean nothing without `anonymise`.

        Raises:
            BadInputError: there is one.
        """
        if not self.anonymise and (self.redact_operators or self.perturb or self.names):
            raise BadInputError(
                "--redact-operators, --perturb and --name are parts of --anonymise",
                "add --anonymise, or leave them out",
            )


@dataclass(frozen=True)
class Treatment:
    """How the texts and traces of one run are changed. Without a redactor nothing is."""

    options: PublishOptions
    seed: int = 0
    redactor: Redactor | None = None
    operators: OperatorNames | None = None

    @classmethod
    def of(cls, options: PublishOptions, run: RunRecord, entries: list[Entry], calls: list[LlmCallRecord]) -> Treatment:
        """The treatment of a run: the names to be redacted are looked for in all that is known of it."""
        options.check()
        if not options.anonymise:
            return cls(options)
        documents: list[Any] = [run.card, run.options, run.target_settings, run.notes]
        for entry in entries:
            trial = entry.trial
            documents += [trial.provenance, trial.evidence, trial.script, trial.card, entry.execution or {}]
        documents += [call.request.request for call in calls]
        hosts, users = names.found_in(documents)
        here, who = names.of_this_machine()
        told = (*options.names, *_of_the_card(run.card))
        redactor = Redactor(tuple(sorted(hosts | here)), tuple(sorted(users | who)), told)
        seed = options.perturb_seed
        if seed is None:
            seed = int(text_sha256(run.id)[:8], 16)
        return cls(options, seed, redactor, OperatorNames() if options.redact_operators else None)

    @property
    def changes_numbers(self) -> bool:
        """Whether metrics have to be computed anew."""
        return self.options.perturb or self.options.redact_operators

    def rewriter(self, number: int) -> TraceRewriter | None:
        """What is done to the traces of a trial; None where nothing is."""
        if self.redactor is None:
            return None
        warp = Warp.of(self.seed, number) if self.options.perturb else None
        return TraceRewriter(self.redactor, self.operators, warp)

    def text(self, text: str) -> str:
        """A text as it is published."""
        return text if self.redactor is None else self.redactor.text(text)

    def data(self, value: Any) -> Any:
        """Plain data as it is published."""
        return value if self.redactor is None else self.redactor.data(value)

    def prose(self, text: str) -> str:
        """A text that may quote measurements: with perturbed times its figures are masked."""
        return _DECIMAL.sub("#", self.text(text)) if self.options.perturb else self.text(text)

    def program(self, source: str) -> str:
        """A policy's source: names are replaced; with perturbed times the figures in comments and docstrings are."""
        found = self.text(source)
        return _masked_comments(found) if self.options.perturb else found

    def measured(self, entries: list[Entry], objective: Objective, subject: Subject) -> tuple[list[Entry], Objective]:
        """The entries with the values and scores of their published traces, and the objective that scored them."""
        if not self.changes_numbers:
            return entries, objective
        rewritten = [self._remeasured(entry, subject) for entry in entries]
        return _scored(rewritten, _loosened(objective, entries))

    def _remeasured(self, entry: Entry, subject: Subject) -> Entry:
        rewriter = self.rewriter(entry.number)
        return entry if rewriter is None else remeasured(entry, rewriter, subject)

    def statement(self) -> dict[str, Any] | None:
        """What was done, for the manifest; None where nothing was."""
        if self.redactor is None:
            return None
        done = [
            "host and user names, mail and network addresses and paths of files are replaced by neutral words, the "
            "same word for the same name; contributor, contact and trace_url of the cards are emptied",
        ]
        if self.operators is not None:
            done.append(
                f"{len(self.operators)} names of operators in the traces are replaced, and arguments of events that "
                "describe operators are left out; collectives, copies and steps keep their names; metrics are those "
                "of the traces as they are published"
            )
        if self.options.perturb:
            done.append(
                f"the time axis of each trial is warped by at most {LARGEST:.0%} in any place, by the manifest's seed; "
                "metrics and scores are those of the perturbed traces; the LLM transcript, the timings of the search "
                "and figures in rationales, evidence, comments and docstrings are left out"
            )
        found: dict[str, Any] = {"done": done, "replaced": self.redactor.counts}
        if self.options.perturb:
            found["perturbation"] = {"seed": self.seed, "largest": LARGEST}
        return found


def _of_the_card(text: str) -> list[str]:
    """What a card tells of its contributor; scripts repeat the card."""
    from policies.reading import CARD
    from runs.card import parse_card

    card = parse_card(text, CARD).card
    return [name for name in (card.contributor, card.contact, card.trace_url) if name and len(name) >= _SHORTEST]


def _loosened(objective: Objective, entries: list[Entry]) -> Objective:
    """The objective without the baselines that the search itself took from its first succeeded trial."""
    first = next((entry for entry in entries if entry.trial.state is TrialState.SUCCEEDED), None)
    if first is None or not objective.is_composite:
        return objective
    own = first.values
    return Objective(
        tuple(replace(t, baseline=None) if t.baseline == own.get(t.spec.name) else t for t in objective.terms)
    )


def _scored(entries: list[Entry], objective: Objective) -> tuple[list[Entry], Objective]:
    found = []
    for entry in entries:
        values = entry.values
        complete = all(term.spec.name in values for term in objective.terms)
        if objective.needs_baseline and complete:
            objective = objective.with_baseline(values)
        scored = entry.trial.score is not None and complete and not objective.needs_baseline
        if entry.sources and entry.trial.state is TrialState.SUCCEEDED and entry.trial.score is not None and not scored:
            raise BadInputError(
                f"trial {entry.number} has no value for {objective.name} any more when its traces are rewritten",
                f"publish without --redact-operators ({FailureClass.METRIC_ERROR.value})",
            )
        found.append(replace(entry, score=objective.score(values) if scored else None))
    return found, objective


def _masked_comments(source: str) -> str:
    """The program with the decimal figures in comments and docstrings replaced by `#`; it computes the same."""
    try:
        places = {(node.lineno, node.col_offset) for node in _docstrings(ast.parse(source))}
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (SyntaxError, tokenize.TokenError, ValueError):
        return source
    lines = source.splitlines(keepends=True)
    for token in reversed(tokens):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.start in places):
            _replace(lines, token, _DECIMAL.sub("#", token.string))
    return "".join(lines)


def _docstrings(tree: ast.AST) -> list[ast.Constant]:
    found = []
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found.append(value)
    return found


def _replace(lines: list[str], token: tokenize.TokenInfo, text: str) -> None:
    (first, start), (last, end) = token.start, token.end
    lines[first - 1 : last] = [lines[first - 1][:start] + text + lines[last - 1][end:]]
