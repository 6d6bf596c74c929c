"""`verify`: a published folder against its own evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ccl_search.cli.output import JsonFlag, console, print_json

if TYPE_CHECKING:
    from ccl_search.publishing.verifying import Verification


def verify(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="A published folder, an archive of one, or the name of a bundled one.")
    ],
    as_json: JsonFlag = False,
) -> None:
    """Compute every metric and score of a published search again from its traces, and run every policy again.

    Exit code 0: all of it holds. 1: a value is not what the evidence gives. 5: nothing is wrong, but something has no
    evidence (a trace is missing, or only its hash was published). 2: this is no published folder, or a hostile one.

    For example
    `ccl-search verify wl4`
    """
    from ccl_search.publishing.verifying import verify as check
    from policies.reading import open_published, require

    with open_published(require(folder)) as published:
        found = check(published)
    if as_json:
        print_json(found.as_dict())
    else:
        _show(found)
    found.require()


def _show(found: Verification) -> None:
    out = console()
    for finding in found.findings:
        out.print(str(finding), soft_wrap=True, markup=False)
    out.print(
        f"{found.status}: {found.files} files, {found.trials} trials, {found.metrics} metric values and "
        f"{found.policies} policies of run {found.run_id} checked, {len(found.findings)} findings",
        soft_wrap=True,
        markup=False,
    )
