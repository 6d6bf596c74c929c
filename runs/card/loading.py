"""Reading a card: text to `LoadedCard`, with every repair and finding."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs.card.card import WorkloadCard
from runs.card.context import Context
from runs.card.findings import Finding, finding, shown
from runs.card.reading import Document, Position, read_document, read_text
from runs.card.repairs import Repair
from runs.card.rules import check
from runs.card.shape import checked_blocks

_EXECUTOR = "Model-executor"
_VERSIONS: tuple[tuple[str, ...], ...] = (
    (_EXECUTOR, "framework", "version"),
    (_EXECUTOR, "communication_library", "version"),
)


@dataclass(frozen=True)
class LoadedCard:
    """A card as it was read: what was repaired in its text and what is worth knowing about it.

    `name` is the file's name. The findings are of severity `warning` and `info`, in the order of their lines.
    """

    card: WorkloadCard
    name: str
    repairs: tuple[Repair, ...]
    findings: tuple[Finding, ...]


def load_card(path: Path) -> LoadedCard:
    """Read the card file `path`; the file never changes.

    Raises:
        CardError: the file is unusable: unreadable, no text, no YAML even when repaired, a key given twice, no card.
    """
    return parse_card(read_text(path), path.name)


def parse_card(text: str, name: str = "card.yaml") -> LoadedCard:
    """Read a card from its text; `name` stands for the file in findings (as `load_card`)."""
    document = read_document(text, name)
    blocks = checked_blocks(document, name)
    nested = _lift_executor(blocks)
    _keep_versions(blocks, document.sources, nested)
    card = WorkloadCard.model_validate(blocks)
    found = [*_repaired(document, name), *check(Context(card, document.lines, name, nested))]
    return LoadedCard(card, name, document.repairs, tuple(sorted(found, key=lambda each: each.line or 0)))


def _lift_executor(blocks: dict[str, Any]) -> bool:
    """Put a Model-executor that is indented under workload where it belongs; says whether there was one."""
    if blocks.get(_EXECUTOR) is not None or blocks["workload"].get(_EXECUTOR) is None:
        return False
    blocks[_EXECUTOR] = blocks["workload"].pop(_EXECUTOR)
    return True


def _keep_versions(blocks: dict[str, Any], sources: dict[Position, str], nested: bool) -> None:
    """Versions that YAML takes for numbers as they were written: `0.10` is not 0.1."""
    for position in _VERSIONS:
        block: Any = blocks
        for key in position[:-1]:
            block = block.get(key) if isinstance(block, dict) else None
        written = sources.get(("workload", *position) if nested else position)
        if isinstance(block, dict) and type(block.get(position[-1])) in (int, float) and written is not None:
            block[position[-1]] = written


def _repaired(document: Document, name: str) -> list[Finding]:
    return [finding("repaired", _told(repair), repair.line, name) for repair in document.repairs]


def _told(repair: Repair) -> str:
    read = "left out" if repair.repaired is None else f"read as {shown(repair.repaired)}"
    return f"{repair.rule}: {shown(repair.text)} is {read}"
