"""A policy as a program text: loading it, its hash, and what the sandboxed dialect lets it use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from policies.runner import PolicyLimits
from runs.digests import text_sha256
from runs.errors import BadInputError

# Modules a policy may import in the monty sandbox; a test imports each one there.
DIALECT_MODULES = (
    *("math", "itertools", "functools", "collections", "dataclasses", "typing", "re", "json"),
    *("random", "datetime", "copy", "bisect", "decimal", "hashlib"),
)
# Modules and constructs policies of other projects use and the dialect lacks; a test meets an error for each.
DIALECT_MISSING_MODULES = ("heapq", "operator", "statistics", "enum", "fractions", "string")
DIALECT_MISSING_SYNTAX = {
    "classes with base classes": "class A(dict):\n    pass",
    "`yield`": "def f():\n    yield 1",
    "`del`": "a = [1]\ndel a[0]",
}


@dataclass(frozen=True)
class Policy:
    """The source of a `generate_config(workload, environment)` program."""

    source: str

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the source in UTF-8, as 64 hexadecimal digits: the policy's identity."""
        return text_sha256(self.source)


def load_policy(path: Path, max_bytes: int = PolicyLimits.source_bytes) -> Policy:
    """Read a policy from a file; it is not run or parsed.

    Raises:
        BadInputError: the file cannot be read, is larger than `max_bytes`, is empty, or is no UTF-8 text.
    """
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise BadInputError(f"cannot read the policy {path}: {error.strerror}", "check the path") from error
    if len(data) > max_bytes:
        raise BadInputError(f"the policy {path} is larger than {max_bytes} bytes", "shorten it")
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"the policy {path} is no UTF-8 text: {error}", "save it as UTF-8") from error
    if not source.strip():
        raise BadInputError(f"the policy {path} is empty", "write a function generate_config(workload, environment)")
    return Policy(source.replace("\r\n", "\n"))


def dialect() -> str:
    """One paragraph for the prompt of a language model: what a policy may use in the monty sandbox."""
    return (
        "The policy runs in a sandboxed subset of Python. Write plain functions (nested functions, lambdas, "
        "comprehensions, f-strings, `match`, `try`, keyword and default arguments are fine) and simple loops. Only "
        f"these modules can be imported: {', '.join(DIALECT_MODULES)}. Not available: "
        f"{', '.join(DIALECT_MISSING_SYNTAX)}, decorators on methods, the modules "
        f"{', '.join(DIALECT_MISSING_MODULES)}, files, network, environment variables and the clock (it stands "
        "still). Generator expressions are evaluated at once, so never iterate an unbounded one. The function must "
        "return the same dict whenever it is given the same inputs."
    )
