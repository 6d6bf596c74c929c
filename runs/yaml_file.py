"""Reading a YAML file that a user wrote: one mapping or list, with what is wrong with it in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from runs.errors import BadInputError

MAX_BYTES = 5_000_000
_MAX_DEPTH = 50
_MAX_VALUES = 100_000
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path, kind: str, hint: str) -> Any:
    """The content of `path`, which is `kind` (`"the target file"`); `hint` tells what to do where it cannot be used.

    Raises:
        BadInputError: the file cannot be read, is empty, no UTF-8 text, larger than `MAX_BYTES`, no YAML, nested too
            deeply, has aliases that refer to themselves or blow it up, or gives a key twice.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise BadInputError(f"{kind} {path} cannot be read: {error.strerror}", "check the path") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{kind} {path} is no UTF-8 text (byte {error.start + 1})", "save it as UTF-8") from error
    if len(content) > MAX_BYTES:
        raise BadInputError(f"{kind} {path} is larger than {MAX_BYTES} bytes", hint)
    return parse_yaml(text, f"{kind} {path}", hint)


def parse_yaml(text: str, where: str, hint: str) -> Any:
    """As `read_yaml`, for a text; `where` names it in messages."""
    try:
        _check_depth(text, where, hint)
        loader = _LOADER(text)
        try:
            node = loader.get_single_node()
            _check_keys(node, where)
            _check_size(node, {}, where)
            found = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise BadInputError(f"{where} is no YAML: {_reason(error)}", hint) from error
    except (ValueError, OverflowError) as error:
        reason = str(error).partition(";")[0]
        raise BadInputError(f"{where} has a value that cannot be read: {reason}", "put it in quotes") from error
    if found is None:
        raise BadInputError(f"{where} is empty", hint)
    return found


def _check_depth(text: str, where: str, hint: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark is not None else 0
            raise BadInputError(f"{where}: line {line} is nested more than {_MAX_DEPTH} deep", hint)


def _check_size(node: Any, sizes: dict[int, int], where: str) -> int:
    """The number of values under `node` with aliases written out; `sizes` are those known, 0 while in the making."""
    if id(node) in sizes:
        if sizes[id(node)] == 0:
            raise BadInputError(f"{where}: an alias refers to itself", "write the value out")
        return sizes[id(node)]
    sizes[id(node)] = 0
    parts = getattr(node, "value", None)
    children = parts if isinstance(parts, list) else []
    flat = [each for child in children for each in (child if isinstance(child, tuple) else (child,))]
    size = 1 + sum(_check_size(each, sizes, where) for each in flat)
    if size > _MAX_VALUES:
        raise BadInputError(f"{where} has more than {_MAX_VALUES} values, aliases written out", "write fewer")
    sizes[id(node)] = size
    return size


def _check_keys(node: Any, where: str) -> None:
    """Refuse a key given twice; which of the two is meant cannot be told."""
    waiting, known = [node], set()
    while waiting:
        each = waiting.pop()
        if id(each) in known:
            continue
        known.add(id(each))
        if isinstance(each, yaml.MappingNode):
            first: dict[tuple[str, str], int] = {}
            for key, value in each.value:
                waiting.append(value)
                if isinstance(key, yaml.ScalarNode):
                    _once(key, first, where)
        elif isinstance(each, yaml.SequenceNode):
            waiting += each.value


def _once(key: yaml.ScalarNode, first: dict[tuple[str, str], int], where: str) -> None:
    line, name = key.start_mark.line + 1, (key.tag, key.value)
    if name in first:
        raise BadInputError(f"{where}: line {line} gives {key.value!r} again, first on line {first[name]}", "keep one")
    first[name] = line


def _reason(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if mark is None or not problem:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}: {problem}"
