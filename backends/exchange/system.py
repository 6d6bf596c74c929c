"""ASTRA-sim's system file: algorithms, chunks, delays and the roofline of a rank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from backends.exchange.settings import is_number, is_whole, read_json, shown, write_json
from backends.network.collective import Algorithm
from runs.errors import BadInputError

IMPLEMENTATIONS = {
    "all_reduce": "all-reduce-implementation",
    "all_gather": "all-gather-implementation",
    "reduce_scatter": "reduce-scatter-implementation",
    "all_to_all": "all-to-all-implementation",
}
_WHOLE = {
    "preferred-dataset-splits": 1,
    "active-chunks-per-dimension": 1,
    "endpoint-delay": 0,
    "local-reduction-delay": 0,
}
_MOST = {"preferred-dataset-splits": 1024, "endpoint-delay": 10**12, "local-reduction-delay": 10**12}
"""Beyond these a run would take for ever, or its times no 64 bits."""
_FIGURES = ("local-mem-bw", "peak-perf")
_LEAST_FIGURE, _MOST_FIGURE = 1e-6, 1e9
_SWITCHES = ("roofline-enabled", "trace-enabled", "replay-only", "track-local-mem", "model-shared-bus")
_TEXTS = {
    "scheduling-policy": ("LIFO", "FIFO", "EXPLICIT"),
    "collective-optimization": ("baseline", "localBWAware"),
}
_CUSTOM = tuple(f"{key}-custom" for key in IMPLEMENTATIONS.values())
_OTHERS = ("per-node-custom-implementation", "local-mem-trace-filename", "L", "o", "g", "G")
KNOWN = (*_WHOLE, *_FIGURES, *_SWITCHES, *_TEXTS, *IMPLEMENTATIONS.values(), *_CUSTOM, *_OTHERS)
IGNORED = ("boost-mode", "intra-dimension-scheduling", "inter-dimension-scheduling")
"""Keys of older versions that many files still have and the binaries do not read."""
_DEFAULT_DELAY = 10


@dataclass(frozen=True)
class Implementation:
    """One entry of an implementation list.

    `flat`: all dimensions as one (`one…`). `window`: how many peers `direct` sends to at a time, 0 for all.
    """

    algorithm: Algorithm
    flat: bool = False
    window: int = 0

    @property
    def needs_power_of_two(self) -> bool:
        return self.algorithm in ("halving_doubling", "double_binary_tree_astra")


_ALGORITHMS: dict[str, Algorithm] = {
    "ring": "ring",
    "direct": "direct",
    "halvingDoubling": "halving_doubling",
    "doubleBinaryTree": "double_binary_tree_astra",
}
_SPELLINGS = re.compile(r"(ring|direct|halvingDoubling|doubleBinaryTree)(\d*)")


def parse_implementation(name: str) -> Implementation | None:
    """The meaning of a name such as `ring`, `oneDirect4`; None if there is no such algorithm."""
    flat = name.startswith("one")
    plain = name[3:4].lower() + name[4:] if flat else name
    found = _SPELLINGS.fullmatch(plain)
    if not found or (found[2] and found[1] != "direct") or (flat and found[1] == "doubleBinaryTree"):
        return None
    return Implementation(_ALGORITHMS[found[1]], flat, int(found[2] or 0))


@dataclass(frozen=True)
class SystemConfig:
    """The content of a system file. Properties give the figures with the defaults of the binaries."""

    content: Mapping[str, Any] = field(default_factory=dict)
    where: str = "system.json"

    @property
    def splits(self) -> int:
        """Chunks of a collective."""
        return int(self.content.get("preferred-dataset-splits", 0))

    @property
    def active_chunks(self) -> int:
        """Chunks of a collective that run at a time, in each dimension."""
        return int(self.content.get("active-chunks-per-dimension", 1))

    @property
    def endpoint_delay(self) -> int:
        """ns before a message leaves."""
        return int(self.content.get("endpoint-delay", _DEFAULT_DELAY))

    @property
    def local_bandwidth(self) -> float:
        """Bytes/s of local memory; 0 where the file does not say."""
        return 1e9 * float(self.content.get("local-mem-bw", 0.0))

    @property
    def peak(self) -> float:
        """FLOP/s; 0 where the file does not say."""
        return 1e12 * float(self.content.get("peak-perf", 0.0))

    @property
    def roofline(self) -> bool:
        """Whether computations last as FLOPs and bytes say, not as their duration does."""
        return bool(self.content.get("roofline-enabled", False))

    @property
    def local_bandwidth_aware(self) -> bool:
        """Whether a multi-dimensional all-reduce scatters and gathers, instead of reducing all of it in each."""
        return bool(self.content.get("collective-optimization") == "localBWAware")

    def implementations(self, kind: str) -> tuple[Implementation, ...]:
        """What runs a collective of `kind`, one entry a dimension; empty where the file does not say.

        Raises:
            BadInputError: a name that no algorithm has.
        """
        names = self.content.get(IMPLEMENTATIONS.get(kind, ""), ())
        found = [parse_implementation(name) for name in names]
        for name, one in zip(names, found, strict=True):
            if one is None:
                raise BadInputError(
                    f"{self.where}: {IMPLEMENTATIONS[kind]}: no algorithm is called {shown(name)}",
                    "choose ring, direct, halvingDoubling or doubleBinaryTree, after `one` for all dimensions at once",
                )
        return tuple(one for one in found if one is not None)


def read_system(path: Path) -> SystemConfig:
    """A system file.

    Raises:
        BadInputError: the file is malformed or a figure has a type or value that no binary takes.
    """
    return checked_system(read_json(path), str(path))


def checked_system(content: Mapping[str, Any], where: str) -> SystemConfig:
    """A system of the given content.

    Raises:
        BadInputError: as for `read_system`.
    """
    for key, reason, hint in _mistakes(content):
        raise BadInputError(f"{where}: {key} is {shown(content[key])}, {reason}", hint)
    config = SystemConfig(content, where)
    for kind in IMPLEMENTATIONS:
        config.implementations(kind)
    return config


def _mistakes(content: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    yield from _wrong_figures(content)
    for key in _SWITCHES:
        if key in content and content[key] not in (0, 1):
            yield key, "neither 0 nor 1", "give 0 or 1"
    for key, values in _TEXTS.items():
        if key in content and content[key] not in values:
            yield key, "unknown", f"choose one of {', '.join(values)}"
    for key in IMPLEMENTATIONS.values():
        names = content.get(key, [""])
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            yield key, "not a list of names", "give a list, one algorithm for each network dimension"


def _wrong_figures(content: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for key, least in _WHOLE.items():
        if key in content and not is_whole(content[key], least):
            yield key, f"not a whole number of at least {least}", "give such a number"
        elif content.get(key, 0) > _MOST.get(key, inf):
            yield key, f"more than {_MOST[key]}", "give a number within reason"
    for key in _FIGURES:
        if key in content and not (is_number(content[key]) and content[key] > 0):
            yield key, "not a number above zero", "give it in GB/s (local-mem-bw) or TFLOP/s (peak-perf)"
        elif key in content and not _LEAST_FIGURE <= content[key] <= _MOST_FIGURE:
            yield key, "out of range", f"give GB/s or TFLOP/s between {_LEAST_FIGURE:g} and {_MOST_FIGURE:g}"


def write_system(path: Path, system: SystemConfig) -> None:
    """Write a system file."""
    write_json(path, system.content)
