"""Keeping secrets out of what is sent and stored: text of trials may quote a job's environment.

The shapes cover those the store refuses (`runs.store.encoding`), so that evidence can never make a call unstorable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "[secret removed]"
_SHAPES = (
    re.compile(r"\bsk-ant-[A-Za-z0-9_-]{8,}"),
    re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"),
    re.compile(r"(?<=\bBearer )\s*[A-Za-z0-9._~+/=-]{16,}"),
    re.compile(r"\bhf_[A-Za-z0-9]{16,}"),
    re.compile(r"\bgh[opsur]_[A-Za-z0-9]{20,}"),
    re.compile(r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
    re.compile(r"\bAKIA[A-Z0-9]{16}\b"),
    re.compile(r"\bAIza[A-Za-z0-9_-]{30,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}"),
)
_NAMED = re.compile(
    r"""(?ix)
    (?P<name> \b [A-Z0-9_]{0,80}
    (?:api_?key|secret|password|passwd|auth_?token|access_?token|hf_?token|wandb_?key) [A-Z0-9_]{0,40} ["']?
    \s* [=:] \s* ["']? | \b authorization ["']? \s* : \s* ["']? (?:bearer|basic)? \s* )
    (?P<value> [^\s"',;]{8,})
    """
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without keys of known shape, without values named like secrets, and without the given `secrets`."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    for shape in _SHAPES:
        text = shape.sub(HIDDEN, text)
    return _NAMED.sub(lambda found: found.group("name") + HIDDEN, text)
