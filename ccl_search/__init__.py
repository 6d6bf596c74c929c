"""The search: loop, proposers, stoppers, feasibility, reports and the command line.

`from ccl_search import Search, create, reopen` gives the ask/tell API; it is loaded when first named, so that
importing the package costs nothing.
"""

from __future__ import annotations

from typing import Any

__all__ = ["ProblemSource", "Search", "SearchSettings", "create", "open_store", "reopen"]
_HOMES = {
    "Search": "ccl_search.loop.search",
    "create": "ccl_search.assembly",
    "open_store": "ccl_search.assembly",
    "reopen": "ccl_search.assembly",
    "ProblemSource": "ccl_search.problem",
    "SearchSettings": "ccl_search.settings",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
