"""The product's version, as installed."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The version of the installed distribution; `unknown` when run from an uninstalled checkout."""
    try:
        return metadata.version("ccl-search")
    except metadata.PackageNotFoundError:
        return "unknown"
