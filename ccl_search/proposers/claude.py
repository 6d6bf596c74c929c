"""The `claude` proposer: an LLM reads the whole history and rewrites the policy through one strict tool.

Each iteration is a conversation of its own, built from the context alone, so that a stored run can be replayed. Within
it an answer that cannot be used is sent back with the exact error, at most `MAX_REPAIRS` times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ccl_search.llm import prompts, submission
from ccl_search.llm.client import AnthropicClient
from ccl_search.llm.errors import LlmBudgetError, LlmInterruptedError, LlmRequestError, LlmTooLongError
from ccl_search.llm.history import MAX_COMPACTION
from ccl_search.llm.models import Effort, capability
from ccl_search.llm.reply import LlmClient, LlmReply
from ccl_search.llm.request import CacheTtl, RequestSettings, Shape, body
from ccl_search.llm.submission import Submission
from ccl_search.proposers.base import Proposal, ProposalContext, ProposalFailedError, ProposerExhaustedError
from runs.ledger import LlmLedger, LlmRequest

DEFAULT_MODEL = "claude-opus-5-5"
MAX_REPAIRS = 2
MAX_TURNS = 16
_LONG_REQUEST_CHARS = 500_000

PolicyCheck = Callable[[str], str | None]


class NoPolicyError(ProposalFailedError):
    """No usable policy in this iteration. `source` is the last one rejected, `llm_calls` the ledger rows it took."""

    def __init__(self, message: str, source: str = "", llm_calls: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.source = source
        self.llm_calls = llm_calls


class ClaudeProposer:
    """Proposes policies by asking a Claude model.

    `check` runs a source in the sandbox and against the space and returns the error to be repaired, or None.
    `dialect` is the paragraph that says which Python a policy may use. `fallback_models` are asked in turn when a
    model refuses. `force_tool` forces the tool where the model accepts that (thinking is then off); elsewhere, and
    after a model has turned it down once, the model is asked to call it. `client` replaces the live client: a
    `ReplayClient`, or an `AnthropicClient` with a budget, prices, retries or a callback of its own.
    """

    name = "claude"

    def __init__(
        self,
        ledger: LlmLedger,
        model: str = DEFAULT_MODEL,
        *,
        check: PolicyCheck | None = None,
        dialect: str | None = None,
        fallback_models: Sequence[str] = (),
        effort: Effort | None = None,
        cache_ttl: CacheTtl | None = "5m",
        max_tokens: int = 16_000,
        force_tool: bool = True,
        client: LlmClient | None = None,
    ) -> None:
        self.models = (model, *fallback_models)
        self.max_tokens = max_tokens
        self.check = check or (lambda source: None)
        self.settings = RequestSettings(dialect or prompts.template("dialect"), effort, cache_ttl)
        self.client: LlmClient = client or AnthropicClient(ledger)
        self.compaction = 0
        self._force_tool = force_tool
        self._never_forced: set[str] = set()

    def propose(self, context: ProposalContext) -> Proposal:
        """The next policy, accepted by `check`.

        Raises:
            NoPolicyError: no usable policy (refused by every model, cut off, not submitted, not mended).
            ProposerExhaustedError: the LLM budget is spent, or the search was stopped during a wait.
            LlmError: the API cannot be used at all (credentials, network, a request it does not accept).
        """
        try:
            return _Conversation(self, context).run()
        except (LlmBudgetError, LlmInterruptedError) as error:
            raise ProposerExhaustedError(error.message) from error

    def close(self) -> None:
        """Close the client's connections."""
        self.client.close()

    def shape(self, model: str) -> Shape:
        """How `model` is first asked: forced where it may be, with the history as compact as it had to be made."""
        able = capability(model)
        forced = self._force_tool and model not in self._never_forced and able.can_force(self.settings.effort)
        return Shape(model, min(self.max_tokens, able.max_output), forced, compaction=self.compaction)

    def never_force(self, model: str) -> None:
        """Remember for the session that `model` does not accept a forced tool."""
        self._never_forced.add(model)


class _Conversation:
    """One iteration's exchange. Every answer moves it on: to a policy, another turn, another shape, or an error."""

    def __init__(self, proposer: ClaudeProposer, context: ProposalContext) -> None:
        self._proposer = proposer
        self._context = context
        self._models = list(proposer.models)
        self._shape = proposer.shape(self._models.pop(0))
        self._kind = "propose"
        self._dialogue: list[dict[str, Any]] = []
        self._calls: list[int] = []
        self._turn = 0
        self._repairs = self._misses = self._pauses = self._cuts = 0
        self._rejected = Submission()

    def run(self) -> Proposal:
        while self._turn < MAX_TURNS:
            reply = self._ask()
            self._calls.append(reply.call_id)
            found = self._judged(reply)
            if found is not None:
                return Proposal(found.code, found.rationale, tuple(self._calls))
        raise self._failure(f"no policy after {MAX_TURNS} turns")

    def _judged(self, reply: LlmReply) -> Submission | None:
        if reply.stop_reason == "model_context_window_exceeded":
            self._compact("the model's context window is exceeded")
            return None
        self._turn += 1
        if reply.stop_reason == "refusal":
            self._next_model(reply)
        elif reply.stop_reason == "max_tokens":
            self._allow_more()
        elif reply.stop_reason == "pause_turn":
            self._resume(reply)
        else:
            return self._submitted(reply)
        return None

    def _submitted(self, reply: LlmReply) -> Submission | None:
        found = submission.from_json(reply) if self._shape.as_json else submission.from_tool(reply)
        if found is None:
            self._remind(reply)
            return None
        if self._shape.as_json and found.error:
            raise self._failure(f"no tool call, and no policy as structured text either: {found.error}")
        error = found.error or submission.defect(found.code) or self._proposer.check(found.code)
        if error is None:
            return found
        self._repair(reply, replace(found, error=error), error)
        return None

    def _ask(self) -> LlmReply:
        while True:
            asked = self._request()
            try:
                return self._proposer.client.call(asked)
            except LlmRequestError as error:
                self._adapt(error, asked)

    def _request(self) -> LlmRequest:
        context, shape = self._context, self._shape
        return LlmRequest(
            run_id=context.run_id,
            iteration=context.iteration,
            turn=context.refusals * MAX_TURNS + self._turn,
            purpose=shape.label(self._kind),
            model=shape.model,
            request=body(context, self._proposer.settings, shape, self._dialogue),
            prompt_hash=prompts.prompt_hash(),
        )

    def _adapt(self, error: LlmRequestError, asked: LlmRequest) -> None:
        """Change what may have made the API refuse the request, or give up with `error`."""
        if error.status == 400 and self._shape.forced:
            self._proposer.never_force(self._shape.model)
            self._shape = replace(self._shape, forced=False)
        elif isinstance(error, LlmTooLongError) or (error.status == 400 and _is_long(asked.request)):
            if self._shape.compaction == MAX_COMPACTION:
                raise error
            self._compact(error.message)
        else:
            raise error

    def _compact(self, reason: str) -> None:
        if self._shape.compaction == MAX_COMPACTION:
            raise self._failure(f"the history does not fit even when compacted: {reason}")
        self._proposer.compaction = max(self._proposer.compaction, self._shape.compaction + 1)
        self._start_anew(replace(self._shape, compaction=self._shape.compaction + 1))

    def _next_model(self, reply: LlmReply) -> None:
        details = reply.response.get("stop_details") or {}
        reason = f"category {details.get('category') or 'none given'}: {details.get('explanation') or 'no explanation'}"
        if not self._models:
            raise self._failure(f"{self._shape.model} refused to answer ({reason}); no fallback model is left")
        self._start_anew(self._proposer.shape(self._models.pop(0)))

    def _allow_more(self) -> None:
        most = capability(self._shape.model).max_output
        doubled = min(2 * self._shape.max_tokens, most)
        if self._cuts or doubled == self._shape.max_tokens:
            raise self._failure(f"the answer was cut off at {self._shape.max_tokens} tokens")
        self._cuts += 1
        self._shape = replace(self._shape, max_tokens=doubled)

    def _resume(self, reply: LlmReply) -> None:
        if self._pauses:
            raise self._failure("the model paused twice without an answer")
        self._pauses += 1
        self._dialogue = [*self._dialogue, {"role": "assistant", "content": reply.content}]

    def _remind(self, reply: LlmReply) -> None:
        self._misses += 1
        if self._misses == 1:
            self._kind = "reprompt"
            self._dialogue = [*self._dialogue, *submission.reminder_turns(reply)]
        else:
            self._start_anew(replace(self._shape, forced=False, as_json=True))

    def _repair(self, reply: LlmReply, rejected: Submission, error: str) -> None:
        self._rejected = rejected
        if self._repairs == MAX_REPAIRS:
            raise self._failure(f"not mended in {MAX_REPAIRS} repairs; the last error: {error}")
        self._repairs += 1
        self._kind = "repair"
        self._dialogue = [*self._dialogue, *submission.repair_turns(reply, error)]

    def _start_anew(self, shape: Shape) -> None:
        """Thinking blocks are bound to their model and prefix, so a new shape gets a conversation without them."""
        self._shape = shape
        error = self._rejected.error
        self._kind = "repair" if error else "propose"
        self._dialogue = submission.carried_turns(self._rejected.code, error) if error else []

    def _failure(self, message: str) -> NoPolicyError:
        return NoPolicyError(message, self._rejected.code, tuple(self._calls))


def _is_long(request: dict[str, Any]) -> bool:
    texts = [block.get("text", "") for message in request["messages"] for block in message["content"]]
    return sum(map(len, texts)) > _LONG_REQUEST_CHARS
