"""From bytes to a checked YAML document: a strict parse first, two repairs only after it failed, positions of keys."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import Reader

from runs.card.findings import CardError, Finding, finding, shown
from runs.card.repairs import Repair, mend

MAX_BYTES = 5_000_000
_MAX_DEPTH = 100
_MAX_EXPANDED = 100_000
_MAX_NUMBER = 100
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Position = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """A YAML mapping as Python data, the line of every key and list entry, and how the text was repaired."""

    data: dict[Any, Any]
    lines: dict[Position, int]
    sources: dict[Position, str]
    repairs: tuple[Repair, ...]


def read_text(path: Path) -> str:
    """The text of a card file.

    Raises:
        CardError: the file cannot be read, is larger than `MAX_BYTES`, or is no text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _unusable(
            path.name, "unreadable", f"cannot read {shown(str(path))}: {reason}", "check the path"
        ) from error
    if len(content) > MAX_BYTES:
        raise _unusable(path.name, "too_large", f"larger than {MAX_BYTES} bytes", "a card has a few kilobytes")
    return decode(content, path.name)


def decode(content: bytes, name: str) -> str:
    """`content` as text: UTF-8, or UTF-16 with a byte order mark.

    Raises:
        CardError: it is neither; the message names the line of the first wrong byte.
    """
    utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        what = f"byte {error.start + 1} is no {error.encoding}: the file is binary or in another encoding"
        raise _unusable(name, "not_text", what, "save the card as UTF-8 text", line) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise _unusable(name, "not_text", "the file is binary (it has a zero byte)", "give a YAML text file", line)
    return text


def read_document(text: str, name: str) -> Document:
    """Parse `text`; strict first, repaired if that fails and the repairs make it parse.

    Raises:
        CardError: it is no YAML mapping, gives a key twice, is nested too deeply or abuses aliases.
    """
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise _unusable(name, "not_text", "half a character (a lone surrogate)", "save it as UTF-8", line) from error
    if size > MAX_BYTES:
        raise _unusable(name, "too_large", f"larger than {MAX_BYTES} bytes", "a card has a few kilobytes")
    try:
        return _document(text, name, ())
    except yaml.YAMLError as error:
        text, repairs = mend(text, error, lambda mended: _check_depth(mended, name))
        return _repaired(text, name, repairs, error)


def _repaired(text: str, name: str, repairs: tuple[Repair, ...], strict: yaml.YAMLError) -> Document:
    try:
        if repairs:
            return _document(text, name, repairs)
    except yaml.YAMLError:
        pass  # the first error is the one to report: its line is untouched by repairs
    line, reason = _explain(strict, text)
    raise _unusable(
        name, "not_yaml", f"no YAML: {reason}", "correct that line; a value with a colon in it needs quotes", line
    ) from strict


def _document(text: str, name: str, repairs: tuple[Repair, ...]) -> Document:
    _check_depth(text, name)
    loader = _LOADER(text)
    try:
        node = loader.get_single_node()
        _check_root(node, name)
        _check_size(node, name)
        _check_duplicates(node, name)
        places = list(_places(node, ()))
        data = _construct(loader, node, name)
    finally:
        loader.dispose()
    lines = {position: line for position, line, _ in places}
    sources = {position: source for position, _, source in places if source is not None}
    return Document(data, lines, sources, repairs)


def _construct(loader: Any, node: Any, name: str) -> dict[Any, Any]:
    """The mapping as Python data. Numbers of absurd length are refused first: reading them takes forever."""
    for value in _values(node):
        if value.tag.endswith((":str", ":binary", ":merge", ":value")):
            continue
        line = value.start_mark.line + 1
        if len(value.value) > _MAX_NUMBER:
            what = f"a number of {len(value.value)} characters"
            raise _unusable(name, "not_yaml", what, "put the value in quotes", line)
        try:
            loader.construct_object(value)
        except (ValueError, OverflowError) as error:
            what = f"{shown(value.value)} cannot be read: {error}"
            raise _unusable(name, "not_yaml", what, "put the value in quotes", line) from error
    data: dict[Any, Any] = loader.construct_document(node)
    return data


def _values(node: Any) -> list[Any]:
    """Every single value under `node`, keys too."""
    found: dict[int, Any] = {}
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting += _children(each)
    return [each for each in found.values() if isinstance(each, yaml.ScalarNode)]


def _unusable(name: str, code: str, message: str, hint: str, line: int | None = None) -> CardError:
    return CardError([finding(code, message, line, name)], hint)


def _check_depth(text: str, name: str) -> None:
    depth = 0
    events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH:
            line = event.start_mark.line + 1
            raise _unusable(name, "too_deep", f"nested more than {_MAX_DEPTH} deep", "a card is nested 6 deep", line)


def _check_root(node: Any, name: str) -> None:
    if node is None or (isinstance(node, yaml.ScalarNode) and not node.value.strip()):
        raise _unusable(name, "empty", "the file is empty", "start from the card template (docs/cards.md)")
    if not isinstance(node, yaml.MappingNode):
        kind = "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
        hint = "a card is a mapping with `workload`, `Model-executor` and so on (docs/cards.md)"
        raise _unusable(name, "not_a_mapping", f"the document is {kind}, not a mapping", hint, node.start_mark.line + 1)


def _check_size(node: Any, name: str) -> None:
    memo: dict[int, tuple[int, int] | None] = {}
    size, depth = _measure(node, memo, name)
    if depth > _MAX_DEPTH or (size > _MAX_EXPANDED and size > len(memo)):
        hint = "write the values out instead of using aliases"
        raise _unusable(name, "alias_bomb", f"YAML aliases blow {len(memo)} values up to {size}", hint)


def _measure(node: Any, memo: dict[int, tuple[int, int] | None], name: str) -> tuple[int, int]:
    """Number of nodes once aliases are written out, and depth."""
    if id(node) in memo:
        known = memo[id(node)]
        if known is None:
            line = node.start_mark.line + 1
            raise _unusable(name, "alias_bomb", "a YAML alias refers to itself", "write the value out", line)
        return known
    memo[id(node)] = None
    parts = [_measure(child, memo, name) for child in _children(node)]
    measured = (1 + sum(size for size, _ in parts), 1 + max((depth for _, depth in parts), default=0))
    memo[id(node)] = measured
    return measured


def _children(node: Any) -> list[Any]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _check_duplicates(root: Any, name: str) -> None:
    found = sorted(_duplicates(root, set(), name), key=lambda each: each.line or 0)
    if found:
        raise CardError(found, "remove one of the two, it cannot be told which is meant")


def _duplicates(node: Any, visited: set[int], name: str) -> Iterator[Finding]:
    if id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, yaml.MappingNode):
        yield from _twice(node, name)
    for child in _children(node):
        yield from _duplicates(child, visited, name)


def _twice(node: Any, name: str) -> Iterator[Finding]:
    first: dict[tuple[str, str], int] = {}
    for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
        line = key.start_mark.line + 1
        if (key.tag, key.value) in first:
            before = first[key.tag, key.value]
            yield finding("duplicate_key", f"key {shown(key.value)} is given twice, first on line {before}", line, name)
        else:
            first[key.tag, key.value] = line


def _places(node: Any, at: Position) -> Iterator[tuple[Position, int, str | None]]:
    """Position, line and, for a single value, the text of everything under `node`."""
    if isinstance(node, yaml.MappingNode):
        pairs = [(key.value, key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    else:
        pairs = [(index, value, value) for index, value in enumerate(_children(node))]
    for label, marked, value in pairs:
        source = value.value if isinstance(value, yaml.ScalarNode) else None
        yield (*at, label), marked.start_mark.line + 1, source
        yield from _places(value, (*at, label))


def _explain(error: yaml.YAMLError, text: str) -> tuple[int | None, str]:
    """Line and reason of a YAML error, in one line."""
    strange = Reader.NON_PRINTABLE.search(text)
    if strange is not None:
        line = text.count("\n", 0, strange.start()) + 1
        return line, f"character U+{ord(strange.group()):04X} is not allowed in YAML"
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return mark.line + 1, str(getattr(error, "problem", None) or "cannot be parsed")
    return None, " ".join(str(error).split())
