"""The script of a benchmark entry: it repeats the trial by a search of one trial, and carries what that needs.

Beside the script stands the policy; the card and the config space of the search are in it, so that it also works in
an entry that was published, exported or imported. The card is the search's, not the trial's: a policy may have read
from it how many devices there were. A target file is the site's own and lies beside the script as `target.yaml`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from ccl_search.constraints import Limit
    from ccl_search.problem import Problem
    from ccl_search.settings import SearchSettings
    from ccl_search.targets import Target
    from runs.objective import Objective

TARGET_FILE = "target.yaml"
_FOLDER = "repeat"
_END = "END_OF_FILE"


def target_yaml(target: Target) -> str | None:
    """The target file of an entry, None where the target needs none."""
    return _yaml(target.content) if target.content else None


def script(
    problem: Problem, settings: SearchSettings, target: Target, objective: Objective, limits: Sequence[Limit] = ()
) -> str:
    """The text of `script.sh`. `objective` has the baselines that are known, `limits` bound metrics."""
    from runs.card import to_yaml

    words = ["ccl-search", "run", "--card", f"{_FOLDER}/card.yaml", "--space", f"{_FOLDER}/space.yaml"]
    words += ["--policy", "policy.py", "--iterations", "0", *_how(settings), *_aim(objective, limits)]
    words += ["--target", TARGET_FILE if target.content else target.name, "--home", _FOLDER]
    return (
        "#!/usr/bin/env bash\n"
        "# Repeats this trial: its policy, on the card and the config space of its search, on the same target.\n"
        "set -euo pipefail\n"
        'cd "$(dirname "$0")"\n'
        f"{_wanting(TARGET_FILE) if target.content else ''}"
        f"mkdir -p {_FOLDER}\n"
        f"{_written('card.yaml', to_yaml(problem.card))}"
        f"{_written('space.yaml', _yaml(problem.space.as_dict()))}"
        f"{shlex.join(words)}\n"
    )


def _how(settings: SearchSettings) -> list[str]:
    words = ["--seed", str(settings.seed), "--sandbox", settings.sandbox, "--retries", str(settings.retries)]
    words += ["--unconfined"] if settings.unconfined else []
    words += ["--repeats", str(settings.repeats)] if settings.repeats > 1 else []
    words += ["--time-limit", f"{settings.time_limit_s:g}"] if settings.time_limit_s is not None else []
    return words + (["--within-allocation"] if settings.extras.get("within_allocation") else [])


def _aim(objective: Objective, limits: Sequence[Limit]) -> list[str]:
    words: list[str] = []
    for term in objective.terms:
        words += ["--objective", term.spec.name]
    if len(objective.terms) > 1:
        words += ["--weights", ",".join(repr(term.weight) for term in objective.terms)]
        for term in objective.terms:
            words += [] if term.baseline is None else ["--baseline", f"{term.spec.name}={term.baseline!r}"]
    for limit in limits:
        words += ["--constraint", f"{limit.spec.name} {limit.operator} {limit.bound!r}"]
    return words


def _wanting(name: str) -> str:
    told = f"{name} is missing: it describes a site and is not published; put the target file of your cluster here"
    return f"[ -f {name} ] || {{ echo {shlex.quote(told)} >&2; exit 2; }}\n"


def _written(name: str, text: str) -> str:
    return f"cat > {_FOLDER}/{name} <<'{_END}'\n{text.rstrip()}\n{_END}\n"


def _yaml(document: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    return text
