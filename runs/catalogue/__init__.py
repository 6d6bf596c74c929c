"""Bundled models, devices, workloads and environments: data files beside this module, loaded on demand."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from importlib import resources
from typing import Any

import yaml

from runs.environment import Device, Environment
from runs.errors import BadInputError
from runs.workload import ModelArchitecture, Workload


@cache
def _table(name: str) -> dict[str, dict[str, Any]]:
    text = resources.files("runs.catalogue").joinpath("data", f"{name}.yaml").read_text(encoding="utf-8")
    table: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return table


def data(name: str) -> dict[str, Any]:
    """The bundled data file `name` (without its ending) as plain data; not to be changed."""
    return _table(name)


def _entry(table: str, kind: str, name: str) -> dict[str, Any]:
    entries = _table(table)
    if name not in entries:
        raise BadInputError(f"no bundled {kind} is called {name!r}", f"bundled: {', '.join(entries)}")
    return dict(entries[name])


def model_names() -> tuple[str, ...]:
    """Names of the bundled models."""
    return tuple(_table("models"))


def model(name: str) -> ModelArchitecture:
    """The bundled model `name`.

    Raises:
        BadInputError: there is none of that name; the hint lists those there are.
    """
    return ModelArchitecture(model_family=name, **_entry("models", "model", name))


def workload_names() -> tuple[str, ...]:
    """Names of the bundled workloads."""
    return tuple(_table("workloads"))


def workload(name: str) -> Workload:
    """The bundled workload `name` (as `model`, for workloads)."""
    entry = _entry("workloads", "workload", name.lower())
    architecture = model(entry.pop("model"))
    lengths = (entry.get("input_len") or 0) + (entry.get("output_len") or 0)
    return Workload(**{"name": name.lower(), "model": architecture, "seq_len": lengths, **entry})


def device(name: str) -> Device:
    """The bundled device `name`, which may be one of the spellings that workload cards use."""
    for key, entry in _table("devices").items():
        if name.lower() in (key, *entry.get("cards", ())):
            known = {f.name for f in fields(Device)}
            return Device(name=key, **{k: v for k, v in entry.items() if k in known})
    raise BadInputError(f"no bundled device is called {name!r}", f"bundled: {', '.join(_table('devices'))}")


def environment_names() -> tuple[str, ...]:
    """Names of the bundled environments, one for each size."""
    return tuple(f"{name}-{count}" for name, entry in _table("environments").items() for count in entry["counts"])


def environment(name: str) -> Environment:
    """The bundled environment `name` (`perlmutter-a100-16`); any whole number of nodes works as the count."""
    base, _, count = name.lower().rpartition("-")
    entries = _table("environments")
    if base not in entries or not count.isdigit() or int(count) < 1:
        raise BadInputError(f"no bundled environment is called {name!r}", f"bundled: {', '.join(environment_names())}")
    entry = _for_size(entries[base], int(count))
    if int(count) > entry["xpus_per_node"] and int(count) % entry["xpus_per_node"]:
        raise BadInputError(
            f"{name}: {count} devices are no whole number of nodes", f"{base} has {entry['xpus_per_node']} a node"
        )
    del entry["counts"]
    return Environment(name=name.lower(), total_xpus=int(count), device=device(entry.pop("device")), **entry)


def _for_size(entry: dict[str, Any], count: int) -> dict[str, Any]:
    """`entry` as it is for `count` devices: a small cluster may be one node with more devices and NICs than others."""
    found = {key: value for key, value in entry.items() if key != "single_node"}
    per_node, single = entry["xpus_per_node"], entry.get("single_node", 0)
    if count > single:
        return found
    return {**found, "xpus_per_node": single, "nics_per_node": entry["nics_per_node"] * single // per_node}


def with_framework(where: Environment, framework: str, version: str = "") -> Environment:
    """`where` with the framework that runs on it."""
    return replace(where, framework=framework, framework_version=version)
