"""What a rule sees: the card, and where each of its fields stands in the file."""

from __future__ import annotations

from dataclasses import dataclass, field

from runs.card.card import WorkloadCard
from runs.card.findings import Finding, finding
from runs.card.reading import Position


@dataclass(frozen=True)
class Context:
    """A card with the lines of its fields. `nested`: the block Model-executor stands inside `workload`."""

    card: WorkloadCard
    lines: dict[Position, int] = field(default_factory=dict)
    file: str = ""
    nested: bool = False

    def at(self, code: str, message: str, *position: str | int) -> Finding:
        """A finding at the line of `position`, or of the nearest block around it if the field is missing."""
        return finding(code, message, self.line(*position), self.file)

    def line(self, *position: str | int) -> int:
        """Line of a field, counted from 1; of the block around it if it is missing; 1 if that is missing too."""
        at = ("workload", *position) if self.nested and position[:1] == ("Model-executor",) else position
        prefixes = (at[:length] for length in range(len(at), 0, -1))
        return next((self.lines[prefix] for prefix in prefixes if prefix in self.lines), 1)
