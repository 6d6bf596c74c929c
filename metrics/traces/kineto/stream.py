"""Read one Kineto file in bounded memory: blocks of bytes in, a `Collector` and the file's metadata out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from metrics.traces.kineto import scan
from metrics.traces.kineto.collect import Collector

_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_HEAD_LIMIT = 64 << 20


@dataclass
class Contents:
    """What a Kineto file holds: collected events, top-level metadata, and what was wrong with it."""

    events: Collector = field(default_factory=Collector)
    metadata: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    incomplete: bool = False
    found_list: bool = True
    any_event: bool = False


class Stream:
    """The state of one pass: text not yet cut, the layout once learned, whether the event list has ended."""

    def __init__(self, out: Contents | None = None) -> None:
        self.out = out or Contents()
        self._text = b""
        self._head = b""
        self._layout: scan.Layout | None = None
        self._started = False
        self._ended = False

    def feed(self, block: bytes) -> None:
        """The next bytes of the file."""
        self._text = self._text + block if self._text else block
        if not self._started:
            self._start()
        if self._started and not self._ended:
            self._cut()

    def _start(self) -> None:
        text = self._text.removeprefix(b"\xef\xbb\xbf")
        bare = text.lstrip()
        match = _KEY.search(text)
        if bare.startswith(b"["):
            self._head, self._text = b"", bare[1:]
        elif match is not None:
            self._head, self._text = text[: match.start()], text[match.end() :]
        elif len(text) > _HEAD_LIMIT:
            self._ended = True
            return
        else:
            return
        self._started = True
        self._layout = scan.Layout.learn(self._text[:4096].lstrip())
        self._text = self._text.lstrip()
        self.out.any_event = self._text.startswith(b"{")

    def _cut(self) -> None:
        """Take the whole events of the text, leave the last one (it may go on in the next block)."""
        layout, text = self._layout, self._text
        found = scan.cut(layout, text) if layout is not None else None
        if layout is not None and found is not None:
            pieces, self._text = found
            self.out.events.take(scan.pick(layout, pieces, frames=not self.out.events.marked and b"run_batch" in text))
            return
        cut = scan.last_boundary(text)
        if cut > 0 and self.out.events.take_list(text[:cut].rstrip().rstrip(b",")):
            self._text = text[cut:].lstrip(b", \r\n\t")
        elif cut > 0:
            self._take_slowly()

    def _take_slowly(self) -> None:
        split = scan.split_events(self._text)
        self.out.events.take_texts([self._text[a:b] for a, b in split.events])
        self._text = self._text[split.stop :].lstrip(b", \r\n\t")
        self._ended = split.ended
        if split.trailing_comma:
            self.out.problems.append("a comma after the last event was ignored")

    def finish(self) -> Contents:
        """The end of the file: the last events, and the metadata before and after the list."""
        if not self._started:
            self.out.found_list = False
            self.out.metadata = _object(self._text.strip())
            return self.out
        if not self._ended:
            self._take_slowly()
        if not self._ended:
            self.out.incomplete = True
            self._text = b""
        tail = self._text.strip().lstrip(b",").strip()
        self.out.metadata = _metadata(self._head, tail)
        return self.out


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        value = _repaired(text)
    return value if isinstance(value, dict) else {}


def _repaired(text: bytes) -> Any:
    for version, _ in scan.repairs(text):
        try:
            return msgspec.json.decode(version)
        except msgspec.MsgspecError:
            continue
    return None


def _metadata(head: bytes, tail: bytes) -> dict[str, Any]:
    """The object around the event list, without the list. `head` ends before the key, `tail` begins after the list.

    What is before the list and what is after it are read apart, so that damage in one does not lose the other.
    """
    before = head.strip().rstrip(b",")
    front = _object(before + b"}") if before.startswith(b"{") else {}
    back = _object(b"{" + tail) if tail else {}
    return front | back


def read_blocks(blocks: Iterable[bytes], into: Contents | None = None) -> Contents:
    """One pass over a file given as blocks of bytes (decompressed). `into` may hold events of other files of the
    rank."""
    stream = Stream(into)
    for block in blocks:
        stream.feed(block)
    return stream.finish()


def iterate(blocks: Iterator[bytes], problems: list[str]) -> Iterator[bytes]:
    """The blocks until the source fails (a truncated gzip file); the failure is put into `problems`."""
    try:
        yield from blocks
    except (EOFError, OSError) as error:
        problems.append(f"cut off: {error}")
