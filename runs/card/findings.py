"""What a check has to say: `Finding`, the codes it can carry, and the error raised when a card is unusable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from runs.card.codes import CODES
from runs.errors import BadInputError

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One remark on a file: a stable `code`, its severity, a sentence, and where (`line` counts from 1).

    `error` means the file cannot be used; `warning` that a result may mislead; `info` that something is left out.
    """

    code: str
    severity: Severity
    message: str
    line: int | None = None
    file: str = ""

    @property
    def place(self) -> str:
        """`file:line`, as far as known."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def __str__(self) -> str:
        return f"{self.place}: {self.severity} {self.code}: {self.message}"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def finding(code: str, message: str, line: int | None = None, file: str = "") -> Finding:
    """A finding with the severity its code has (KeyError for a code that is not in the table)."""
    return Finding(code, CODES[code].severity, " ".join(message.split()), line, file)


class CardError(BadInputError):
    """A card cannot be used at all; `findings` holds every reason, each with its line where it has one."""

    def __init__(self, findings: Sequence[Finding], hint: str) -> None:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(f"{printable(findings[0].place)}: {findings[0].message}{more}", hint)
        self.findings = tuple(findings)


def printable(text: str) -> str:
    """`text` without characters that would break a line or steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def shown(value: Any, limit: int = 80) -> str:
    """`value` as one printable line of at most `limit` characters, for messages."""
    text = printable(repr(value) if isinstance(value, str) else str(value))
    return text if len(text) <= limit else text[: limit - 1] + "…"
