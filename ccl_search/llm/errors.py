"""What can go wrong with an LLM call, in the error families of the product."""

from __future__ import annotations

import re

from runs.errors import BadInputError, BudgetExhaustedError, CclSearchError, UnverifiableError

_STATUS_PREFIX = re.compile(r"^(\d{3}) ")


class LlmError(CclSearchError):
    """Base of every error of an LLM call."""


class LlmCredentialsError(LlmError, BadInputError):
    """No key, or a key the API does not accept."""


class LlmRequestError(LlmError):
    """The API refused the request itself; sending it again would not help. `status` is the HTTP status."""

    def __init__(self, message: str, hint: str = "", status: int | None = None) -> None:
        super().__init__(message, hint)
        self.status = status


class LlmModelError(LlmRequestError, BadInputError):
    """The API does not know the model (or the address is not the API's)."""


class LlmTooLongError(LlmRequestError):
    """The request is larger than the API accepts."""


class LlmUnavailableError(LlmError):
    """Every attempt failed until the time for retries was used up."""


class LlmInterruptedError(LlmError):
    """The search was asked to stop while it waited to try again."""


class LlmBudgetError(LlmError, BudgetExhaustedError):
    """The next call could cost more than what is left of the LLM budget."""


class ReplayError(LlmError, UnverifiableError):
    """A replay asked for a call that is not stored, or stored with another request."""


def failure_text(status: int | None, kind: str, message: str) -> str:
    """How a failed call is written to the ledger: `400 invalid_request_error: ...`; see `error_from_text`."""
    return f"{status} {kind}: {message}" if status is not None else f"{kind}: {message}"


def error_from_text(text: str) -> LlmError:
    """The error a stored `failure_text` stands for, so that a replay fails the way the call did."""
    found = _STATUS_PREFIX.match(text)
    status = int(found.group(1)) if found else None
    return error_for(status, text)


def error_for(status: int | None, detail: str) -> LlmError:
    """The error of a call that ended with HTTP `status` (None: no answer came); `detail` says what the API said."""
    if status in (401, 403):
        return LlmCredentialsError(f"the Anthropic API did not accept the key ({detail})", _KEY_HINT)
    if status == 404:
        return LlmModelError(
            f"the Anthropic API does not know what was asked for ({detail})",
            "check the model's name (--model) and ANTHROPIC_BASE_URL",
            status,
        )
    if status == 402:
        hint = "check billing and spend limits of the Anthropic account"
        return LlmRequestError(f"the Anthropic API wants payment first ({detail})", hint, status)
    if status == 413:
        return LlmTooLongError(f"the request is too large ({detail})", "shorten the history or the policy", status)
    if status is not None and 400 <= status < 500 and status not in RETRIED_STATUS:
        hint = "the ledger holds the request; `--model` chooses another model"
        return LlmRequestError(f"the Anthropic API refused the request ({detail})", hint, status)
    return LlmUnavailableError(
        f"the Anthropic API could not be used ({detail})",
        "check the network and the status page of the API, then resume the run: every trial is kept",
    )


def missing_key() -> LlmCredentialsError:
    """No credentials were found."""
    return LlmCredentialsError("no Anthropic API key is set", _KEY_HINT)


RETRIED_STATUS = frozenset({408, 409, 429})
_KEY_HINT = "set ANTHROPIC_API_KEY to a valid key, or choose a proposer that needs no LLM (--proposer guided)"
