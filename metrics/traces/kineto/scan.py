"""Cut a Kineto file into events without parsing the ones no metric reads.

Kineto writes every event with the same layout. `Layout` learns it from the first event; a chunk whose every `"ph"`
key fits is cut at the event starts, and events of categories that no metric reads (Python frames, ATen operators,
flow arrows) are dropped by their first bytes: inside a JSON string every quote is escaped, so `"ph": "X", "cat":
"cpu_op"` can only be what it says. Other layouts go through msgspec in whole chunks, damaged chunks event by event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_FIRST = re.compile(rb'(\{\s*"ph"(\s*:\s*)")\w("\s*,\s*")')
_SKIPPED_PHASES = (b'f"', b's"', b'M"')
_SKIPPED_CATS = ("overhead", "cuda_sync", "mtia_ccp_events")
_FRAME_CATS = ("python_function", "PythonFunction")
_OPERATOR_CATS = ("cpu_op", "Operator")
_KEPT_OPERATORS = ("record_param_comms", "ProfilerStep#", "nccl:", "execute_", "step[", "bubble")


@dataclass(frozen=True)
class Layout:
    """How this file writes the beginning of an event, and the prefixes (after `"ph": "`) that decide what to do with
    it."""

    separator: bytes
    frames: tuple[bytes, ...]
    skip: tuple[bytes, ...]
    rare: tuple[bytes, ...]
    device: tuple[bytes, ...]
    launch: tuple[bytes, ...]
    operators: tuple[bytes, ...]
    kept_operators: tuple[bytes, ...]

    @classmethod
    def learn(cls, head: bytes) -> Layout | None:
        """The layout of the first event in `head`; None when events do not begin with `"ph"`."""
        match = _FIRST.search(head)
        if match is None or head[: match.start()].strip():
            return None
        separator, colon, comma = match.groups()

        def cats(names: tuple[str, ...]) -> tuple[bytes, ...]:
            return tuple(b"X" + comma + b'cat"' + colon + b'"' + name.encode() + b'"' for name in names)

        operators = tuple(prefix + comma[1:] + b'name"' + colon + b'"' for prefix in cats(_OPERATOR_CATS))
        return cls(
            separator=separator,
            frames=cats(_FRAME_CATS),
            skip=(operators[0] + b"aten::", *_SKIPPED_PHASES, operators[0] + b"autograd::"),
            rare=cats(_SKIPPED_CATS),
            device=cats(("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")),
            launch=cats(("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime")),
            operators=operators,
            kept_operators=tuple(prefix + name.encode() for prefix in operators for name in _KEPT_OPERATORS),
        )


@dataclass
class Picked:
    """The events of one chunk that may count, as JSON texts, by what they are."""

    device: list[bytes] = field(default_factory=list)
    launch: list[bytes] = field(default_factory=list)
    other: list[bytes] = field(default_factory=list)


def cut(layout: Layout, text: bytes) -> tuple[list[bytes], bytes] | None:
    """The whole events of a text that begins at an event start, without their separators, and the text of the last
    event, which may go on in the next block. None when some event of the text has another layout."""
    pieces = text.split(layout.separator)
    if pieces[0] or len(pieces) - 1 != text.count(b'"ph"'):
        return None
    return pieces[1:-1], layout.separator + pieces[-1]


def pick(layout: Layout, pieces: list[bytes], frames: bool) -> Picked:
    """The wanted events among `pieces`. `frames`: some Python frame among them may be a step of a serving loop."""
    skip = layout.skip if frames else (layout.frames[0], *layout.skip)
    rest = [piece for piece in pieces if not piece.startswith(skip)]
    device = [piece for piece in rest if piece.startswith(layout.device)]
    launch = [piece for piece in rest if piece.startswith(layout.launch)]
    known, operators, kept = layout.device + layout.launch + layout.rare, layout.operators, layout.kept_operators
    other = [piece for piece in rest if not piece.startswith(known)]
    other = [piece for piece in other if not piece.startswith(operators) or piece.startswith(kept)]
    other = [piece for piece in other if not piece.startswith(layout.frames) or b"run_batch" in piece]
    separator = layout.separator
    return Picked(_close(separator, device), _close(separator, launch), _close(separator, other))


def _close(separator: bytes, pieces: list[bytes]) -> list[bytes]:
    """The pieces as whole JSON objects: the separator before, nothing after the last brace."""
    return [separator + piece[: piece.rfind(b"}") + 1] for piece in pieces]


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\]]', re.DOTALL)


@dataclass
class Split:
    """Where the whole events of a text are, where the reading stopped, and whether the event list ended there."""

    events: list[tuple[int, int]]
    stop: int
    ended: bool
    trailing_comma: bool = False


def split_events(text: bytes) -> Split:
    """Cut a text that begins inside the event list into events by counting braces outside strings. Slow and sure."""
    events: list[tuple[int, int]] = []
    depth = start = stop = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == b"{":
            start = match.start() if depth == 0 else start
            depth += 1
        elif token == b"}" and depth:
            depth -= 1
            if depth == 0:
                stop = match.end()
                events.append((start, stop))
        elif token == b"]" and depth == 0:
            comma = text[stop : match.start()].strip() == b"," and bool(events)
            return Split(events, match.end(), True, comma)
    return Split(events, stop, False)


_BOUNDARY = re.compile(rb'\}\s*,\s*\{\s*"')


def last_boundary(text: bytes) -> int:
    """Where the last event probably begins, searching back in growing windows; -1 when nothing looks like a
    boundary."""
    window = 1 << 14
    while True:
        start = max(0, len(text) - window)
        found = [match.start() for match in _BOUNDARY.finditer(text, start)]
        if found:
            return found[-1] + 1
        if start == 0:
            return -1
        window *= 8


def repairs(text: bytes) -> Iterator[tuple[bytes, str]]:
    """Versions of a broken event that may parse, each with what was wrong with it."""
    clean = text
    try:
        clean.decode("utf-8")
    except UnicodeDecodeError:
        clean = clean.decode("latin-1").encode("utf-8")
        yield clean, "a byte that is not UTF-8 was read as Latin-1"
    fixed = _BAD_ESCAPE.sub(lambda m: m.group() if m.group(1) is None else b"\\\\" + m.group(1), clean)
    if fixed != clean:
        clean = fixed
        yield clean, "an invalid escape was taken literally"
    plain = _CONTROL.sub(b" ", clean)
    if plain != clean:
        clean = plain
        yield clean, "a control character inside a string was replaced"
    quoted = _NOT_FINITE.sub(rb'\1"\2"', clean)
    if quoted != clean:
        yield quoted, ""


_BAD_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\(.)', re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x1f]")
_NOT_FINITE = re.compile(rb"(:\s*|[\[,]\s*)(NaN|-?Infinity|nan|-?inf)\b")
