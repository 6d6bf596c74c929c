"""Rules that hold for every field: blocks are mappings, values are of the field's kind, unknown fields are named."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from runs.card.context import Context
from runs.card.findings import CardError, Finding, finding, shown
from runs.card.reading import Document, Position
from runs.card.schema import CardBlock, Executor, Kind, Section
from runs.card.values import number, whole

_OWN_CODES: dict[str, type] = {"batch_size": list, "metrics_specific_trace": str}
_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.COUNT: (int,),
    Kind.NUMBER: (int, float),
    Kind.TEXT: (str, int, float),
    Kind.FLAG: (bool,),
    Kind.LIST: (list,),
    Kind.MAPPING: (dict,),
}


def checked_blocks(document: Document, name: str) -> dict[str, Any]:
    """The document with text as keys of its blocks, ready for the models.

    Raises:
        CardError: a block is no mapping, or there is no block `workload`.
    """
    lines = document.lines
    if document.data.get("workload") is None:
        found = finding("workload_missing", "there is no block `workload`: this is no workload card", 1, name)
        raise CardError([found], "start from the card template (docs/cards.md)")
    wrong = [
        finding(
            "section_not_mapping", f"{'.'.join(at)} is {shown(value)}, not a block of fields", lines.get(at, 1), name
        )
        for at, value in _wrong_blocks(document.data, CardBlock, ())
    ]
    if wrong:
        raise CardError(wrong, "indent the fields of the block under its name")
    return _text_keys(document.data, CardBlock)


def _blocks(cls: type[Section]) -> dict[str, type[Section]]:
    found = {key: block for key, block in cls.keys().items() if block is not None}
    return found | ({"Model-executor": Executor} if "model" in found else {})


def _wrong_blocks(
    data: dict[Any, Any], cls: type[Section], at: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, block in _blocks(cls).items():
        value = data.get(key)
        if isinstance(value, dict):
            yield from _wrong_blocks(value, block, (*at, key))
        elif value is not None:
            yield (*at, key), value


def _text_keys(data: dict[Any, Any], cls: type[Section]) -> dict[str, Any]:
    blocks = _blocks(cls)
    return {
        str(key): _text_keys(value, blocks[key]) if key in blocks and isinstance(value, dict) else value
        for key, value in data.items()
    }


def check_shape(context: Context) -> Iterator[Finding]:
    """Findings on kinds of values and unknown fields, in the whole card."""
    yield from _check_section(context, context.card, ())


def _check_section(context: Context, section: Section, at: tuple[str, ...]) -> Iterator[Finding]:
    for name, kind in section.kinds().items():
        value = getattr(section, name)
        if value is not None and not isinstance(value, _OWN_CODES.get(name, ())):
            yield from _check_value(context, value, kind, (*at, name))
    yield from _unknown(context, section, at)
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from _check_section(context, value, (*at, field.alias or name))


def _check_value(context: Context, value: Any, kind: Kind, at: tuple[str, ...]) -> Iterator[Finding]:
    is_flag = isinstance(value, bool)
    if not isinstance(value, _TYPES[kind]) or (is_flag and kind is not Kind.FLAG):
        yield context.at("wrong_type", f"{'.'.join(at)} is {shown(value)}, not {kind.value}", *at)
    elif kind is Kind.NUMBER and number(value) is None:
        yield context.at("wrong_type", f"{'.'.join(at)} is {shown(value)}, not a finite number", *at)
    elif kind is Kind.COUNT and (whole(value) or 0) <= 0:
        yield context.at("not_positive", f"{'.'.join(at)} is {shown(value)}, not {kind.value}", *at)


def _unknown(context: Context, section: Section, at: Position) -> Iterator[Finding]:
    if not at:
        return  # the top level has a code of its own
    known = [*section.keys(), *section.known_extras]
    for key in section.extra:
        if key in section.known_extras or (at == ("workload",) and key == "Model-executor"):
            continue
        close = difflib.get_close_matches(key, known, 1)
        guess = f"; did you mean {close[0]}?" if close else ""
        place = ".".join(map(str, (*at, shown(key).strip("'"))))
        yield context.at("unknown_field", f"{place} is no field of a card, it is kept as it is{guess}", *at, key)
