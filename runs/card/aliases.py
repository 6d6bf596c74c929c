"""What the names in cards mean in the catalogue: `runs/catalogue/data/aliases.yaml`."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import yaml

from runs import catalogue
from runs.environment import Environment
from runs.workload import ModelArchitecture


@cache
def _table() -> dict[str, dict[str, Any]]:
    text = resources.files("runs.catalogue").joinpath("data", "aliases.yaml").read_text(encoding="utf-8")
    table: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return table


def bundled_model(family: str) -> ModelArchitecture | None:
    """The bundled model a normalised family means, or None: a family that can mean several models means none."""
    name = _table()["families"].get(family, family)
    return catalogue.model(name) if name in catalogue.model_names() else None


def bundled_cluster(topology: str, device: str) -> Environment | None:
    """The bundled cluster (one node of it) that a card's topology means for `device`, or None."""
    spelling = topology.lower().replace("_", "-")
    base = _table()["topologies"].get(spelling, {}).get(device)
    if base is None:
        return None
    smallest = next(name for name in catalogue.environment_names() if name.rpartition("-")[0] == base)
    return catalogue.environment(smallest)
