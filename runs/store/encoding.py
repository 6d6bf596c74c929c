"""How values become text in the store: canonical JSON, UTC timestamps, clean text, and no secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from runs.errors import BadInputError
from runs.store.errors import StoreError

_SECRET_NAMES = frozenset({"authorization", "proxyauthorization", "xapikey", "apikey", "anthropicapikey", "authtoken"})
_SECRET_TEXT = re.compile(r"\bsk-ant-[A-Za-z0-9_-]{8,}|\bBearer\s+[A-Za-z0-9._~+/=-]{16,}")


def dump(value: Any, what: str) -> str:
    """`value` as JSON in the order it has; `what` names it in the error.

    Raises:
        StoreError: it is no JSON data, or holds a NaN or an infinity.
    """
    return _json(value, what, sort=False)


def canonical(value: Any, what: str) -> str:
    """`value` as JSON that is equal for equal values: sorted keys, no spaces, no NaN. Raises as `dump` does."""
    return _json(value, what, sort=True)


def clean(text: str) -> str:
    """`text` as every database takes it: lone surrogates and NUL characters replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


def redact(text: str) -> str:
    """`clean` text with anything shaped like an API key or a bearer token replaced by `[secret]`."""
    return _SECRET_TEXT.sub("[secret]", clean(text))


def refuse_secrets(value: Any, what: str) -> None:
    """Check that no key of the nested `value` names a credential and no text in it is shaped like one.

    Raises:
        BadInputError: there is one; the message tells where, never the value.
    """
    found = _secret_place(value, what)
    if found is not None:
        raise BadInputError(
            f"{found} looks like a credential, which the store does not keep",
            "pass keys by environment variables; give the ledger bodies, not headers",
        )


def stamp(moment: datetime) -> str:
    """A moment as sortable text in UTC: `2026-11-30T10:45:12.000345Z`. Naive moments are taken as UTC."""
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return aware.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str) -> datetime:
    """The inverse of `stamp`, aware, in UTC."""
    return datetime.fromisoformat(text)


def optional_moment(text: str | None) -> datetime | None:
    """`moment`, and None for None."""
    return None if text is None else moment(text)


_PLAIN = json.JSONEncoder(allow_nan=False)
_CANONICAL = json.JSONEncoder(sort_keys=True, allow_nan=False, separators=(",", ":"))


def _json(value: Any, what: str, *, sort: bool) -> str:
    try:
        return (_CANONICAL if sort else _PLAIN).encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"{what} is not plain JSON data: {error}", "store numbers, text, lists and mappings"
        ) from error


def _secret_place(value: Any, path: str) -> str | None:
    if isinstance(value, str):
        return path if _SECRET_TEXT.search(value) else None
    if isinstance(value, Mapping):
        for key, inner in value.items():
            place = f"{path}.{key}"
            named = re.sub(r"[^a-z0-9]", "", str(key).lower()) in _SECRET_NAMES
            found = place if named else _secret_place(inner, place)
            if found is not None:
                return found
    if isinstance(value, list | tuple):
        places = (_secret_place(inner, f"{path}[{index}]") for index, inner in enumerate(value))
        return next((place for place in places if place is not None), None)
    return None
