"""Values of a card that can be compared with those of any other card: one spelling, one type, None for no value."""

from __future__ import annotations

import math
from typing import Any

from runs.card.schema import Framework, Model, NetworkTopology, Parallelization
from runs.card.values import entries, number, split_version, text, whole


def architecture_value(model: Model, key: str) -> Any:
    """What the card says of an architecture number: `model_arch` first, then `workload.model` itself."""
    inner = getattr(model.model_arch, key, None) if model.model_arch is not None else None
    return model.extra.get(key) if inner is None else inner


def data_parallel(plan: Parallelization) -> int | None:
    """`dp_replicate` times `dp_shard`, where a missing one counts as 1; the flat `dp` if both are missing."""
    given = [value for value in (whole(plan.dp_replicate), whole(plan.dp_shard)) if value is not None]
    return math.prod(given) if given else whole(plan.dp)


def framework_name(framework: Framework) -> str | None:
    """The name without a version at its end."""
    name = text(framework.name)
    return None if name is None else split_version(name)[0]


def framework_version(framework: Framework) -> str | None:
    """`framework.version` as text, else the version at the end of the name."""
    own = framework.version
    if own is not None and not isinstance(own, (bool, list, dict)) and str(own).strip():
        return str(own).strip()
    name = text(framework.name)
    return None if name is None else split_version(name)[1]


def bandwidths(network: NetworkTopology) -> tuple[int | float | None, int | float | None]:
    """Scale-out and scale-up bandwidth in Gb/s as written; both None for a list of one, which says neither."""
    values = entries(network.bandwidth_gbps)
    if len(values) < 2:
        return None, None
    return number(values[0]), number(values[1])
