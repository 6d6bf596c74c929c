"""Seed policies: for each framework the program a search starts from, a conservative first guess."""

from __future__ import annotations

from importlib import resources

from runs.errors import BadInputError


def names() -> tuple[str, ...]:
    """Frameworks that have a seed policy."""
    files = resources.files("policies.seeds").iterdir()
    stems = (file.name.removesuffix(".py") for file in files if file.name.endswith(".py"))
    return tuple(sorted(stem.replace("_", "-") for stem in stems if stem != "__init__"))


def seed_policy(framework: str) -> str:
    """The source of the seed policy of `framework` (its canonical name, such as `megatron-lm`).

    Raises:
        BadInputError: there is none; the hint lists those there are.
    """
    if framework not in names():
        raise BadInputError(f"there is no seed policy for {framework!r}", f"seeds: {', '.join(names())}; or --policy")
    file = resources.files("policies.seeds").joinpath(f"{framework.replace('-', '_')}.py")
    return file.read_text(encoding="utf-8")
