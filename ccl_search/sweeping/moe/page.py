"""docs/moe_study.md: the whole result of a run of the study, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ccl_search.sweeping.moe.experiment import Experiment
from ccl_search.sweeping.moe.tables import Table, all_tables
from runs.errors import BadInputError

BEGIN, END = "<!-- generated -->", "<!-- end of generated -->"


def write(found: Experiment, path: Path) -> None:
    """Write the tables into `path`, between its marks where it has them; the text around them is kept.

    Raises:
        BadInputError: the file has no marks, or cannot be written.
    """
    try:
        text = (
            path.read_text(encoding="utf-8") if path.exists() else f"# {found.study.data['title']}\n\n{BEGIN}\n{END}\n"
        )
        head, begun, rest = text.partition(BEGIN)
        _, ended, tail = rest.partition(END)
        if not begun or not ended:
            raise BadInputError(
                f"{path} has no part to be replaced", f"mark it with {BEGIN} and {END}, or name a new file"
            )
        path.write_text(f"{head}{BEGIN}\n\n{body(found)}\n{END}{tail}", encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror}", "check the path given to --write") from error


def body(found: Experiment) -> str:
    """What is computed: a line on the run, the verdicts counted, and every table."""
    cells = len(found.results.matrix.cells)
    verdicts = Counter(each.verdict for each in found.findings)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    variants = f", {len(found.variants)} variants of what the text leaves open" if found.variants else ""
    lines = [
        f"{cells} configurations of {len(found.results.models)} models{variants}; rank mapping {found.mapping}.",
        f"Of {len(found.findings)} findings: {counted}.",
        *([f"Variants: {'; '.join(found.variants)}."] if found.variants else []),
        "",
        *(line for table in all_tables(found) for line in section(table)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def section(table: Table) -> Iterator[str]:
    """The lines of one table under its title."""
    yield f"### {table.title[:1].upper()}{table.title[1:]}"
    yield ""
    yield _row([head.lstrip(">") for head in table.heads])
    yield _row(["---:" if head.startswith(">") else "---" for head in table.heads])
    yield from (_row(row) for row in table.rows)
    yield ""
    if table.note:
        yield table.note
        yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
