"""The two repairs of a card whose strict parse failed. They change text in memory and never the number of lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import yaml
from yaml.parser import ParserError
from yaml.scanner import ScannerError

_MAX_REPAIRS = 20
_PAIR = re.compile(
    r"(?P<head>\s*(?:- +)*[^\s#'\"\[\]{}&*!|>%@`,?-][^#\[\]{}'\"]*?: +|\s*(?:- +)+)(?P<value>[^\s#'\"\[\]{}&*!|>%@`].*)"
)
_LONE_WORD = re.compile(r"\s*[\w.]+\s*(?:#.*)?")
QUOTED = 'quoted a value that contains ": "'
DROPPED = "dropped a lone word in a mapping"


@dataclass(frozen=True)
class Repair:
    """One repaired line: its number (from 1), the rule, what stood there, and what is read instead (None: nothing)."""

    line: int
    rule: str
    text: str
    repaired: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def mend(text: str, error: yaml.YAMLError, parse: Callable[[str], object]) -> tuple[str, tuple[Repair, ...]]:
    """Repair `text` where `error` points, again wherever `parse` then fails, until it parses or no rule applies.

    Returns the text and the repairs made: none if they did not make it parse.
    """
    lines = text.split("\n")
    repairs: list[Repair] = []
    for _ in range(_MAX_REPAIRS):
        repair = next(_candidates(lines, error), None)
        if repair is None:
            break
        lines[repair.line - 1] = _indent(lines[repair.line - 1]) + (repair.repaired or "")
        repairs.append(repair)
        try:
            parse("\n".join(lines))
        except yaml.YAMLError as next_error:
            error = next_error
        else:
            return "\n".join(lines), tuple(sorted(repairs, key=lambda each: each.line))
    return text, ()


def quoted(line: str) -> str | None:
    """`line` with its plain value in quotes if that value contains ": ", else None; a comment after it stays."""
    match = _PAIR.fullmatch(line.rstrip())
    if match is None:
        return None
    value, comment = _split_comment(match["value"])
    if ": " not in value:
        return None
    doubled = value.replace("'", "''")
    return f"{match['head']}'{doubled}'{comment}"


def _candidates(lines: list[str], error: yaml.YAMLError) -> Iterator[Repair]:
    if not isinstance(error, (ScannerError, ParserError)):
        return
    problem, context = _line_of(error, "problem_mark"), _line_of(error, "context_mark")
    for index in (problem, context):
        new = quoted(lines[index]) if index is not None and index < len(lines) else None
        if index is not None and new is not None:
            yield Repair(index + 1, QUOTED, lines[index].strip(), new.strip())
    for index in (context, problem, _before(lines, problem)):
        if index is not None and _is_lone_word(lines, index):
            yield Repair(index + 1, DROPPED, lines[index].strip())


def _line_of(error: yaml.YAMLError, mark: str) -> int | None:
    found = getattr(error, mark, None)
    return None if found is None else int(found.line)


def _before(lines: list[str], index: int | None) -> int | None:
    """The line above with text on it."""
    above = range((index or 0) - 1, -1, -1)
    return next((i for i in above if i < len(lines) and lines[i].strip()), None)


def _is_lone_word(lines: list[str], index: int) -> bool:
    """A single word, with a pair of the same indentation next to it: only then it stands inside a block mapping."""
    if index >= len(lines) or not _LONE_WORD.fullmatch(lines[index]):
        return False
    below = next((i for i in range(index + 1, len(lines)) if lines[i].strip()), None)
    near = [lines[i] for i in (_before(lines, index), below) if i is not None]
    return any(_indent(line) == _indent(lines[index]) and ":" in line for line in near)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _split_comment(value: str) -> tuple[str, str]:
    text, blank, comment = value.partition(" #")
    return text.rstrip(), f" {blank}{comment}" if blank else ""
