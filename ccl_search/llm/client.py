"""The live client of the Messages API: the only module that imports `anthropic`, and only once a call is made.

Every request is in the ledger before it is sent, every HTTP attempt after it. Bodies are recorded, headers never.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ccl_search.llm.budget import DollarBudget, SpendGuard
from ccl_search.llm.canonical import same_body
from ccl_search.llm.errors import LlmError, LlmInterruptedError, error_for, missing_key
from ccl_search.llm.prices import PriceTable, Usage
from ccl_search.llm.redact import redact
from ccl_search.llm.reply import LlmReply
from ccl_search.llm.retries import AttemptFailedError, RetryNotice, RetryPolicy
from runs.ledger import LlmAttempt, LlmLedger, LlmOutcome, LlmRequest, StoredCall

if TYPE_CHECKING:
    import anthropic

_REUSABLE_STOPS = ("tool_use", "end_turn")


@dataclass(frozen=True)
class ClientOptions:
    """How to reach the API. Without `base_url` and `api_key` the SDK's own look-up counts (`ANTHROPIC_BASE_URL`,
    `ANTHROPIC_API_KEY`, `ANTHROPIC_AUTH_TOKEN`, profiles). Timeouts in seconds."""

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = 600.0
    connect_s: float = 10.0


def _today() -> date:
    return datetime.now(UTC).date()


def _ignore(_: RetryNotice) -> None:
    return None


class AnthropicClient:
    """Sends requests, tries again what may succeed later, and keeps the ledger, the prices and the budget.

    A request that is already in the ledger, at the same place with the same body and with a whole answer, is answered
    from there: a resumed run does not pay twice. A stored request without an answer is closed as possibly billed and
    sent again.
    """

    def __init__(
        self,
        ledger: LlmLedger,
        *,
        options: ClientOptions | None = None,
        retries: RetryPolicy | None = None,
        budget: SpendGuard | None = None,
        prices: PriceTable | None = None,
        on_wait: Callable[[RetryNotice], None] = _ignore,
        today: Callable[[], date] = _today,
    ) -> None:
        self._ledger = ledger
        self._options = options or ClientOptions()
        self._retries = retries or RetryPolicy()
        self._budget = budget or DollarBudget()
        self._prices = prices or PriceTable.load()
        self._on_wait = on_wait
        self._today = today
        self._sdk: anthropic.Anthropic | None = None

    def call(self, request: LlmRequest) -> LlmReply:
        """The answer to `request`, from the ledger or from the API (see `LlmClient.call`)."""
        stored = self._ledger.find(request.run_id, request.iteration, request.turn, request.purpose)
        reply = _reusable(stored, request)
        if reply is not None:
            return reply
        sdk = self._connected()
        if stored is not None and stored.outcome is None:
            self._ledger.finish(stored.id, LlmOutcome(None, error="abandoned: its process ended; possibly billed"))
        self._budget.reserve(self._prices.ceiling(request.request, self._today()))
        return self._send(sdk, request, self._ledger.begin(request))

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        if self._sdk is not None:
            self._sdk.close()
            self._sdk = None

    def _send(self, sdk: anthropic.Anthropic, request: LlmRequest, call_id: int) -> LlmReply:
        calls = _Attempts(self._ledger, call_id, self._retries.clock)
        failure: AttemptFailedError | None = None
        response: dict[str, Any] = {}
        try:
            response = self._retries.retrying(self._on_wait)(self._attempt, sdk, request.request, calls)
        except AttemptFailedError as error:
            failure = error
        except BaseException as error:
            self._finish(call_id, LlmOutcome(None, error=f"ended by {type(error).__name__}; possibly billed"), None)
            raise
        if failure is not None:
            raise self._failed(call_id, failure, calls)
        outcome = self._outcome(request.model, response)
        self._finish(call_id, outcome, outcome.cost_usd)
        return LlmReply(call_id, response, outcome)

    def _attempt(self, sdk: anthropic.Anthropic, body: dict[str, Any], calls: _Attempts) -> dict[str, Any]:
        if self._retries.cancelled.is_set():
            raise LlmInterruptedError("the search was stopped while waiting for the Anthropic API", "resume the run")
        calls.start()
        try:
            answer = _post(sdk, body)
        except Exception as error:
            found = _classified(error)
            if found is None:
                raise
            answer = found
        except BaseException as error:
            calls.failed(AttemptFailedError("interrupted", f"{type(error).__name__} while waiting for the answer"))
            raise
        if isinstance(answer, AttemptFailedError):
            raise calls.failed(self._without_key(sdk, answer))
        calls.succeeded(answer.request_id)
        return answer.body

    def _failed(self, call_id: int, failure: AttemptFailedError, calls: _Attempts) -> LlmError:
        self._finish(call_id, LlmOutcome(None, error=str(failure)), None if calls.may_be_billed else Decimal(0))
        return error_for(failure.status, str(failure))

    def _finish(self, call_id: int, outcome: LlmOutcome, cost: Decimal | None) -> None:
        self._ledger.finish(call_id, outcome)
        self._budget.settle(cost)

    def _outcome(self, model: str, response: dict[str, Any]) -> LlmOutcome:
        usage = Usage.of(response)
        price_id, cost = self._prices.cost(model, usage, self._today()) if usage else (None, None)
        details = response.get("stop_details")
        return LlmOutcome(
            response=response,
            stop_reason=_text(response.get("stop_reason")),
            stop_category=_text(details.get("category")) if isinstance(details, Mapping) else None,
            input_tokens=usage.input if usage else None,
            cache_read_tokens=usage.cache_read if usage else None,
            cache_write_tokens=usage.write_5m + usage.write_1h if usage else None,
            output_tokens=usage.output if usage else None,
            price_id=price_id,
            cost_usd=cost,
        )

    def _connected(self) -> anthropic.Anthropic:
        if self._sdk is None:
            self._sdk = _connect(self._options)
        return self._sdk

    def _without_key(self, sdk: anthropic.Anthropic, failure: AttemptFailedError) -> AttemptFailedError:
        secrets = [secret for secret in (sdk.api_key, sdk.auth_token) if secret]
        message = redact(failure.message, secrets)
        return AttemptFailedError(failure.kind, message, failure.status, failure.request_id, failure.retry_after)


def _text(value: Any) -> str | None:
    """What a column of text can hold of an answer's field, whatever a gateway put there."""
    return value if value is None or isinstance(value, str) else repr(value)


@dataclass(frozen=True)
class _Answer:
    body: dict[str, Any]
    request_id: str | None


class _Attempts:
    """Numbers and times the HTTP attempts of one call and writes them to the ledger."""

    def __init__(self, ledger: LlmLedger, call_id: int, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._call_id = call_id
        self._clock = clock
        self._number = 0
        self._started = 0.0
        self.may_be_billed = False

    def start(self) -> None:
        self._number += 1
        self._started = self._clock()

    def succeeded(self, request_id: str | None) -> None:
        self._ledger.attempt(self._call_id, LlmAttempt(self._number, self._seconds(), 200, request_id))

    def failed(self, failure: AttemptFailedError) -> AttemptFailedError:
        self.may_be_billed = self.may_be_billed or failure.may_be_billed
        attempt = LlmAttempt(
            self._number, self._seconds(), failure.status, failure.request_id, failure.kind, failure.message
        )
        self._ledger.attempt(self._call_id, attempt)
        return failure

    def _seconds(self) -> float:
        return round(self._clock() - self._started, 6)


def require_key() -> None:
    """Check that there is a key of the API; whether the API accepts it, only a call can tell.

    Raises:
        LlmCredentialsError: there is none.
    """
    _connect(ClientOptions()).close()


def _connect(options: ClientOptions) -> anthropic.Anthropic:
    import anthropic

    try:
        sdk = anthropic.Anthropic(
            api_key=options.api_key,
            base_url=options.base_url,
            max_retries=0,
            timeout=anthropic.Timeout(options.timeout_s, connect=options.connect_s),
            open_telemetry=False,
        )
    except (anthropic.AnthropicError, ValueError):
        sdk = None
    if sdk is None or not (sdk.api_key or sdk.auth_token or sdk.credentials):
        raise missing_key()
    return sdk


def _post(sdk: anthropic.Anthropic, body: dict[str, Any]) -> _Answer | AttemptFailedError:
    raw = sdk.messages.with_raw_response.create(**body)
    text, request_id, status = raw.text(), raw.request_id, raw.status_code
    try:
        parsed = json.loads(text)
        json.dumps(parsed, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError:
        return AttemptFailedError("malformed_answer", _start_of(text), status, request_id)
    if not isinstance(parsed, dict) or parsed.get("type") not in ("message", "error"):
        return AttemptFailedError("malformed_answer", _start_of(text), status, request_id)
    if parsed["type"] == "error":
        detail = parsed.get("error") or {}
        return AttemptFailedError(
            str(detail.get("type", "api_error")), str(detail.get("message", "")), status, request_id
        )
    if parsed.get("stop_reason") is None:
        return AttemptFailedError("truncated_answer", "the answer has no stop reason", status, request_id)
    return _Answer(parsed, request_id)


def _classified(error: Exception) -> AttemptFailedError | None:
    import anthropic

    if isinstance(error, anthropic.APIStatusError):
        after = error.response.headers.get("retry-after")
        kind = str(error.type or f"http_{error.status_code}")
        message = error.api_message or _start_of(str(error.body or error.message))
        return AttemptFailedError(kind, message, error.status_code, error.request_id, _seconds_of(after))
    if isinstance(error, anthropic.APITimeoutError):
        return AttemptFailedError("connection_timeout", "no answer came in time")
    if isinstance(error, anthropic.APIConnectionError):
        return AttemptFailedError("connection_error", "the connection could not be made or broke")
    if isinstance(error, anthropic.AnthropicError):
        return AttemptFailedError("malformed_answer", f"{type(error).__name__}: {_start_of(str(error))}")
    return None


def _seconds_of(header: str | None) -> float | None:
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None


def _start_of(text: str, length: int = 300) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[:length] + " ..."


def _reusable(stored: StoredCall | None, request: LlmRequest) -> LlmReply | None:
    if stored is None or stored.outcome is None or stored.outcome.response is None:
        return None
    if stored.outcome.stop_reason not in _REUSABLE_STOPS or not same_body(stored.request.request, request.request):
        return None
    return LlmReply(stored.id, stored.outcome.response, stored.outcome)
