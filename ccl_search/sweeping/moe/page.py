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
        BadInputError: the file has no marks, or cannot be read or written.
    """
    before, after = around(path, found.study.data["title"])
    try:
        path.write_text(f"{before}{BEGIN}\n\n{body(found)}\n{END}{after}", encoding="utf-8")
    except OSError as error:
        raise _unusable(path, error) from error


def around(path: Path, title: str = "") -> tuple[str, str]:
    """What stands before and after the tables in `path`; a heading where there is no such file yet.

    Raises:
        BadInputError: the file has no marks, cannot be read, or its folder is not there.
    """
    try:
        if not path.exists() and path.parent.is_dir():
            return f"# {title}\n\n", "\n"
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise _unusable(path, error) from error
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise BadInputError(f"{path} has no part to be replaced", f"mark it with {BEGIN} and {END}, or name a new file")
    return before, after


def _unusable(path: Path, error: OSError) -> BadInputError:
    return BadInputError(f"cannot write {path}: {error.strerror}", "check the path given to --write")


def body(found: Experiment) -> str:
    """What is computed: a line on the run, the verdicts counted, and every table."""
    cells, count = len(found.results.matrix.cells), len(found.results.models)
    models = f"{count} model{'' if count == 1 else 's'}"
    verdicts = Counter(each.verdict for each in found.findings)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    variants = f", {len(found.variants)} variants of what the text leaves open" if found.variants else ""
    here = Counter(each.here for each in found.findings)
    alone = f" Under the definitions alone {here[True]} hold and {here[False]} fail." if found.variants else ""
    lines = [
        f"{cells} configurations of {models}{variants}; rank mapping {found.mapping}.",
        f"Of {len(found.findings)} findings: {counted}.{alone}",
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
