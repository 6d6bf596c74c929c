"""The first real error in a job's logs: what it says, which rank said it, and what class of failure it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

import yaml

from runs.trial import FailureClass

_TRACEBACK = "Traceback (most recent call last):"
_DRESS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RANK = re.compile(r"^\s*(?:\[(?:default)?(?:rank)?(\d+)\]:\s?|(\d+): )")
_LONGEST_LINE = 400
_EXCERPT_LINES = 24
_NOISE, _IGNORE = "noise", "ignore"
_NO_RANK = 10**9


@dataclass(frozen=True)
class Signature:
    """A kind of line. `failure` is None for lines that follow from a failure elsewhere; `ignored` ones say nothing."""

    id: str
    failure: FailureClass | None
    pattern: re.Pattern[str]
    source: str
    ignored: bool = False


@dataclass(frozen=True)
class Finding:
    """An error line, the signature it matched, who wrote it, and the lines around (a whole traceback).

    `rank` is a process of the framework, `node` a node whose processes share one log; both None for the job itself.
    """

    line: str
    signature: str
    failure: FailureClass | None
    rank: int | None = None
    node: int | None = None
    excerpt: tuple[str, ...] = ()

    @property
    def weight(self) -> int:
        """Order of belief: what names its cause before what is only an exception, consequences last."""
        if self.failure is None:
            return 2
        return 1 if self.failure is FailureClass.FRAMEWORK_ERROR else 0


@cache
def signatures() -> tuple[Signature, ...]:
    """The table `signatures.yaml`, in its order."""
    text = resources.files("launchers.shell").joinpath("signatures.yaml").read_text(encoding="utf-8")
    return tuple(
        Signature(
            row["id"],
            None if row["class"] in (_NOISE, _IGNORE) else FailureClass(row["class"]),
            re.compile(row["pattern"]),
            row["source"],
            row["class"] == _IGNORE,
        )
        for row in yaml.safe_load(text)
    )


def match(line: str) -> Signature | None:
    """The first signature that a line matches."""
    return next((signature for signature in signatures() if signature.pattern.search(line)), None)


def find(lines: Iterable[str], rank: int | None = None, node: int | None = None) -> Finding | None:
    """The first and most telling error of one log, which is that of a rank or a node (lines may name a rank, too).

    An out-of-memory text beats a traceback, which beats a plain error line; consequences of a failure elsewhere
    count only where there is nothing else.
    """
    best: Finding | None = None
    for found in _findings(lines):
        found = replace(found, rank=rank if found.rank is None else found.rank, node=node)
        if best is None or found.weight < best.weight:
            best = found
        if best.weight == 0:
            break
    return best


def _findings(lines: Iterable[str]) -> Iterator[Finding]:
    """Errors in the order of the log. A traceback is one error, told by its last line."""
    block: list[str] = []
    for raw in lines:
        line, own = undress(raw)
        if _TRACEBACK in line:
            block = [line]
            continue
        if block:
            block.append(line)
            if line.startswith((" ", "\t")) or not line.strip():
                continue
            excerpt, block = _shorten(block), []
        else:
            excerpt = ()
        signature = match(line)
        if signature is not None and not signature.ignored:
            shown = line.strip()[:_LONGEST_LINE]
            yield Finding(shown, signature.id, signature.failure, own, excerpt=excerpt)


def undress(raw: str) -> tuple[str, int | None]:
    """A log line without colours and rank label, and the rank it named (`[rank3]: ` of PyTorch, `3: ` of srun)."""
    line = _DRESS.sub("", raw.rstrip("\r\n"))
    label = _RANK.match(line)
    if label is None:
        return line, None
    return line[label.end() :], int(label.group(1) or label.group(2))


def _shorten(block: list[str]) -> tuple[str, ...]:
    if len(block) <= _EXCERPT_LINES:
        return tuple(block)
    half = _EXCERPT_LINES // 2
    return (*block[:half], f"  ... {len(block) - 2 * half} lines ...", *block[-half:])


@dataclass(frozen=True)
class Evidence:
    """What the logs of a job say: the class they speak for, and a text for people."""

    failure: FailureClass | None
    text: str
    findings: tuple[Finding, ...] = ()


NOTHING = Evidence(None, "")
_SHOWN = 6


def weigh(findings: Iterable[Finding]) -> Evidence:
    """One verdict from the findings of all logs: the most telling first, equal lines of several ranks together."""
    ordered = sorted(findings, key=_order)
    if not ordered:
        return NOTHING
    telling = [finding for finding in ordered if finding.failure is not None] or ordered
    grouped: dict[str, list[Finding]] = {}
    for finding in telling:
        grouped.setdefault(_without_numbers(finding.line), []).append(finding)
    lines = [_tell(group) for group in list(grouped.values())[:_SHOWN]]
    if len(grouped) > _SHOWN:
        lines.append(f"and {len(grouped) - _SHOWN} other errors")
    excerpt = telling[0].excerpt
    return Evidence(telling[0].failure, "\n".join([*lines, *excerpt]), tuple(telling))


def _order(finding: Finding) -> tuple[int, int, int]:
    """The most telling first; the job's own log last, because what it says the ranks' logs say better."""
    own = [_NO_RANK if number is None else number for number in (finding.node, finding.rank)]
    return (finding.weight, min(own), own[1])


def _tell(group: list[Finding]) -> str:
    for word, numbers in (("rank", [f.rank for f in group]), ("node", [f.node for f in group])):
        known = sorted({number for number in numbers if number is not None})
        if known:
            label = f"{word} {known[0]}" if len(known) == 1 else f"{word}s {_ranges(known)}"
            return f"{label}: {group[0].line}"
    return group[0].line


def _ranges(ranks: list[int]) -> str:
    parts: list[str] = []
    start = previous = ranks[0]
    for rank in [*ranks[1:], -1]:
        if rank == previous + 1:
            previous = rank
            continue
        parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = rank
    return ",".join(parts)


def _without_numbers(line: str) -> str:
    return re.sub(r"\d+", "#", line)
