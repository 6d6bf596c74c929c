"""The part of docs/frameworks.md that the era files and the settings' schema say: `python -m` this module prints it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from launchers.frameworks.commands.eras import Era, read
from launchers.frameworks.commands.settings import FrameworkSettings
from launchers.frameworks.commands.words import key_of

FRAMEWORKS = ("torchtitan", "megatron-lm", "maxtext", "vllm", "sglang", "command")
_NOTHING = "(nothing)"


def document() -> str:
    """Settings of target files, then one section for each framework."""
    lines = list(_settings())
    for framework in FRAMEWORKS:
        lines += _framework(framework)
    return "\n".join(lines).rstrip() + "\n"


def _settings() -> Iterator[str]:
    yield from ("### What a target file may set", "", "| key | default | meaning |", "|---|---|---|")
    for name, field in FrameworkSettings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "" if default in (None, (), {}) else f"`{_default(default)}`"
        yield f"| `{name}` | {shown} | {field.description} |"
    yield ""


def _default(value: Any) -> str:
    return (
        " ".join(value) if isinstance(value, tuple) else str(value).lower() if isinstance(value, bool) else str(value)
    )


def _framework(framework: str) -> Iterator[str]:
    table = read(framework)
    yield from (f"### {framework}", "", "| era | releases | days | read from |", "|---|---|---|---|")
    for era in table.eras:
        yield f"| `{era.name}` | {_range(era.versions)} | {_range(era.dates)} | {era.source} |"
    yield ""
    yield f"Without a version: {table.default}. Newest one that was read: {table.known_until}."
    yield ""
    for title, part in (("knob", "knobs"), ("argument", "facts")):
        yield from _table(title, [(era, getattr(era, part)) for era in table.eras])
    for era in table.eras:
        yield from _era(era)
    yield ""


def _range(bounds: Sequence[str | None]) -> str:
    low, high = bounds
    if low is None:
        return f"before {high}" if high else "-"
    return f"{low} to before {high}" if high else f"from {low}"


def _table(title: str, parts: Sequence[tuple[Era, Mapping[str, Mapping[str, Any]]]]) -> Iterator[str]:
    """One row for each name and spelling, with the eras that spell it so."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for era, spellings in parts:
        for name, spelling in spellings.items():
            row = (name, _spelling(spelling), str(spelling.get("means", "")))
            rows.setdefault(row, []).append(era.name)
    if not rows:
        return
    told = any(means for _, _, means in rows)
    yield f"| {title} | eras | words |{' from |' if told else ''}"
    yield f"|---|---|---|{'---|' if told else ''}"
    names = list(dict.fromkeys(name for name, _, _ in rows))
    order = [era.name for era, _ in parts]
    for (name, words, means), eras in sorted(rows.items(), key=lambda row: names.index(row[0][0])):
        yield f"| `{name}` | {_eras(eras, order)} | {words} |{f' {means} |' if told else ''}"
    yield ""


def _eras(eras: Sequence[str], order: Sequence[str]) -> str:
    """Eras in words: neighbours as a range."""
    if len(eras) == len(order):
        return "all"
    runs: list[list[str]] = []
    for era in eras:
        if runs and order.index(era) == order.index(runs[-1][-1]) + 1:
            runs[-1].append(era)
        else:
            runs.append([era])
    return ", ".join(f"`{run[0]}`" if len(run) == 1 else f"`{run[0]}` to `{run[-1]}`" for run in runs)


def _spelling(spelling: Mapping[str, Any]) -> str:
    if "untold" in spelling:
        return _NOTHING
    if "via" in spelling:
        return "by " + ", ".join(f"`{name}`" for name in spelling["via"])
    if "words" in spelling:
        return (
            "; ".join(f"{key_of(value)}: {_words(words)}" for value, words in spelling["words"].items()) or "auto only"
        )
    if "env" in spelling:
        return f"variable `{spelling['env']}` ({', '.join(map(str, spelling['values'].values()))})"
    flag = str(spelling["flag"]).strip()
    values = spelling.get("values")
    listed = f" ({', '.join(f'{key_of(k)}: `{v}`' for k, v in values.items())})" if values else ""
    return f"`{flag}`{listed}"


def _words(words: Sequence[str]) -> str:
    return f"`{' '.join(words)}`" if words else _NOTHING


def _era(era: Era) -> Iterator[str]:
    """The words, variables, models and traces of an era, as a list entry."""
    yield f"- `{era.name}`"
    if era.start:
        yield f"  - starts: `{' '.join(era.start)}`"
    if era.constant:
        separator = "`, `" if era.form == "python" else " "
        yield f"  - always: `{separator.join(era.constant)}`"
    if era.env:
        yield f"  - variables: {', '.join(f'`{name}={value}`' for name, value in era.env.items())}"
    if era.models:
        yield f"  - models: {', '.join(_model(name, entry) for name, entry in era.models.items())}"
    if era.profiler:
        yield f"  - profiler: `{' '.join(era.profiler)}`"
    if era.step_log:
        yield f"  - log line of a step: `{era.step_log}`"
    patterns = ", ".join(f"`{pattern}`" for pattern in era.traces)
    yield f"  - traces: {patterns}{_files(era)}"


def _files(era: Era) -> str:
    """How many trace files there are; a program of the user's own says so itself."""
    if era.framework == "command":
        return ""
    who = "host" if era.framework == "maxtext" else "rank"
    return f" ({era.traces_per_rank} a {who})" if era.traces_per_rank > 1 else f" (one a {who})"


def _model(name: str, entry: Mapping[str, Any]) -> str:
    words = " ".join(str(entry[key]) for key in ("model", "flavor") if key in entry)
    return f"{name} is `{words}`"


if __name__ == "__main__":
    import sys

    sys.stdout.write(document())
