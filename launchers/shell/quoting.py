"""Text that becomes part of a shell script: always quoted, with `Slot`s turned into variables."""

from __future__ import annotations

import re
import shlex

from launchers.shell.command import Slot
from runs.errors import BadInputError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SLOT = re.compile("(" + "|".join(re.escape(slot.value) for slot in Slot) + ")")


def quote(text: str) -> str:
    """`text` as one word of a shell, every `Slot` in it replaced by its variable.

    Raises:
        BadInputError: the text has a NUL byte, which no argument can hold.
    """
    if "\0" in text:
        raise BadInputError(f"{text!r} has a NUL byte", "no program takes one as an argument; remove it")
    words = [_word(piece) for piece in _SLOT.split(text) if piece]
    return "".join(words) or "''"


def join(argv: tuple[str, ...] | list[str]) -> str:
    """A command line of quoted words."""
    return " ".join(quote(word) for word in argv)


def export(name: str, value: str) -> str:
    """An `export` line.

    Raises:
        BadInputError: `name` cannot be an environment variable.
    """
    if not _NAME.match(name):
        raise BadInputError(
            f"{name!r} cannot be an environment variable", "use letters, digits and _, not starting with a digit"
        )
    return f"export {name}={quote(value)}"


def here_document(variable: str, text: str, delimiter: str = "CCL_AGENT") -> str:
    """Lines that put `text` as it is into a shell variable."""
    while delimiter in text:
        delimiter += "_"
    return f"IFS= read -r -d '' {variable} <<'{delimiter}'\n{text.rstrip(chr(10))}\n{delimiter}\n"


def slurm_path(path: str) -> str:
    """`path` as Slurm's file name patterns want it, so that nothing in it is replaced.

    A backslash anywhere switches the patterns off and escapes one character; without one, `%%` is a percent sign.
    """
    return path.replace("\\", "\\\\") if "\\" in path else path.replace("%", "%%")


def _word(piece: str) -> str:
    return f'"${{{Slot(piece).variable}}}"' if _SLOT.fullmatch(piece) else shlex.quote(piece)
