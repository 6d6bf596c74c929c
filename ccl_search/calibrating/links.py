"""Bandwidth and latency of links, fitted to the times of collectives that nccl-tests measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ccl_search.calibrating import nccl_tests, validation
from ccl_search.calibrating.calibrate import fitted
from ccl_search.calibrating.files import CalibrationFile, check_name
from ccl_search.calibrating.measurements import LEAST, Spread
from ccl_search.calibrating.parameters import LINKS, Point, calibration
from runs import catalogue
from runs.digests import file_sha256
from runs.environment import Environment
from runs.errors import BadInputError

if TYPE_CHECKING:
    from backends.network.collective import Collective
    from ccl_search.calibrating.nccl_tests import NcclTest, Rank, SizeRow
    from ccl_search.calibrating.parameters import Vector

OF = "collective times"


@dataclass(frozen=True)
class TimedCollective:
    """One size of one test as the simulator runs it, with the seconds it was measured at."""

    collective: Collective
    environment: Environment
    row: SizeRow
    test: NcclTest


class SimulatedCollectives:
    """Simulated times of measured collectives; only the costs of links matter, so that answers are kept by those."""

    def __init__(self, measured: Sequence[TimedCollective]) -> None:
        self._measured = measured
        self._known: dict[tuple[Any, ...], float] = {}

    def seconds(self, index: int, costs: Vector, /) -> float:
        """See `fitting.Model`."""
        from backends.dry_run import network_for

        key = (index, *(float(costs[place]) for place in LINKS))
        if key not in self._known:
            one = self._measured[index]
            network = network_for(one.environment, calibration("links", Point(costs)))
            self._known[key] = network.time(one.collective).seconds
        return self._known[key]


def read_files(paths: Sequence[Path]) -> list[NcclTest]:
    """The tests of all files, in their order.

    Raises:
        BadInputError: a file cannot be read, or see `nccl_tests.read_text`.
    """
    found: list[NcclTest] = []
    for path in paths:
        try:
            found += nccl_tests.read_text(path.read_text(encoding="utf-8", errors="replace"), path.name)
        except OSError as error:
            raise BadInputError(f"{path} cannot be read: {error}", "name files that nccl-tests printed") from error
    return found


def collectives(tests: Sequence[NcclTest], environment: str | None) -> list[TimedCollective]:
    """Every size of every test that a step may run, on the bundled `environment` (with its count or without).

    Raises:
        BadInputError: no environment is named or known, or a host has more ranks than a node devices.
    """
    if environment is None:
        raise BadInputError(
            "nccl-tests output does not say what its links are", "name the bundled cluster: --environment h100-16"
        )
    base = _environment(environment)
    return [found for test in tests if test.kind for found in _collectives(test, base)]


def _environment(named: str) -> Environment:
    sizes = [name for name in catalogue.environment_names() if name.rpartition("-")[0] == named]
    return catalogue.environment(sizes[0] if sizes else named)


def _collectives(test: NcclTest, base: Environment) -> list[TimedCollective]:
    from backends.network.collective import Collective

    assert test.kind is not None
    place = replace(base, total_xpus=base.xpus_per_node * len(test.hosts))
    devices = _devices(test, base)
    groups = tuple(tuple(devices[rank] for rank in group) for group in test.groups)
    if test.kind == "send_recv":
        groups = tuple(pair for group in groups for pair in zip(group, (*group[1:], group[0]), strict=True))
    return [
        TimedCollective(Collective(test.kind, float(row.nbytes), groups), place, row, test)  # type: ignore[arg-type]
        for row in test.rows
    ]


def _devices(test: NcclTest, base: Environment) -> dict[Rank, int]:
    """The device of each rank: hosts become nodes in order, and ranks of a host its devices by device number."""
    found: dict[Rank, int] = {}
    for node, host in enumerate(test.hosts):
        there = sorted((rank for rank in test.ranks if rank.host == host), key=lambda rank: (rank.device, rank.number))
        if len(there) > base.xpus_per_node:
            raise BadInputError(
                f"{test.source}:{test.line}: host {host} runs {len(there)} ranks, a node of {base.name} has "
                f"{base.xpus_per_node} devices",
                "name the environment that the test ran on",
            )
        numbers = [rank.device for rank in there]
        exact = len(set(numbers)) == len(numbers) and max(numbers) < base.xpus_per_node
        for place, rank in enumerate(there):
            found[rank] = node * base.xpus_per_node + (rank.device if exact else place)
    return found


def calibrate_links(
    paths: Sequence[Path],
    environment: str | None,
    name: str,
    repeats: int = validation.REPEATS,
    seed: int = 0,
    notice: Callable[[str], None] = lambda _: None,
) -> CalibrationFile:
    """Fit bandwidth and latency of links to what nccl-tests measured, as a calibration called `name`.

    Compute speed, launches and the overhead of a step stay as they are: collectives say nothing of them. `notice` hears
    of what the tests cannot show.

    Raises:
        BadInputError: the name is unusable, a file is wrong, or there are too few sizes.
    """
    check_name(name)
    tests = read_files(paths)
    measured = collectives(tests, environment)
    if len(measured) < LEAST:
        raise BadInputError(
            f"{len(measured)} sizes were measured, a calibration needs {LEAST}", "test more sizes: -b 1M -e 1G -f 2"
        )
    _doubts(tests, measured, notice)
    times = np.array([one.row.median for one in measured])
    found = fitted(SimulatedCollectives(measured), times, repeats, seed, overhead=False)
    fit = found.as_dict()
    fit["held_out_collectives"] = fit.pop("held_out")
    fit["of"] = OF
    fit["replicate_spread"] = vars(_spread(measured))
    source = ", ".join(path.name for path in paths)
    return CalibrationFile(calibration(name, found.point, source), _provenance(paths, tests, measured, seed), fit)


def _doubts(tests: Sequence[NcclTest], measured: Sequence[TimedCollective], notice: Callable[[str], None]) -> None:
    for test in tests:
        if test.kind is None:
            notice(f"{test.source}:{test.line}: {test.name} is left out, no simulated step runs it")
    used = [one.test for one in measured]
    if all(len(test.hosts) == 1 for test in used):
        notice("no test spans hosts: links between nodes stay nominal")
    elif all(len(test.hosts) == len(test.ranks) for test in used):
        notice("no host has two ranks: links within nodes stay nominal")
    device = measured[0].environment.device.name
    strange = {rank.model for test in used for rank in test.ranks if rank.model and not _same(rank.model, device)}
    if strange:
        notice(f"the tests ran on {', '.join(sorted(strange))}, {measured[0].environment.name} has {device}")


def _same(model: str, device: str) -> bool:
    """Whether a device as nvidia-smi names it (`NVIDIA A100-SXM4-40GB`) may be that of the catalogue."""
    words = [word for word in device.lower().split("_") if word not in ("nvidia", "amd") and not word.endswith("gb")]
    return all(word in model.lower() for word in words)


def _spread(measured: Sequence[TimedCollective]) -> Spread:
    """Out of place against in place, which moves the same bytes."""
    ratios = [max(one.row.seconds) / min(one.row.seconds) - 1 for one in measured if len(one.row.seconds) > 1]
    return Spread(len(ratios), float(np.median(ratios)) if ratios else None, max(ratios, default=None))


def _provenance(
    paths: Sequence[Path], tests: Sequence[NcclTest], measured: Sequence[TimedCollective], seed: int
) -> dict[str, Any]:
    from backends.flow.simulate import BACKEND, VERSION
    from ccl_search.version import version

    left_out = [test for test in tests if test.kind is None]
    return {
        "source": ", ".join(path.name for path in paths),
        "sha256": {path.name: file_sha256(path) for path in paths},
        "date": None,
        "environments": sorted({one.environment.name for one in measured}),
        "tests": [test.describe() for test in tests],
        "versions": sorted({test.version for test in tests if test.version}),
        "configs": len(measured),
        "rows_used": [f"{one.test.source}:{one.row.line}" for one in measured],
        "rows_dropped": {
            f"{test.name} is no collective of a step": [f"{test.source}:{test.line}"] for test in left_out
        },
        "product_version": version(),
        "backend": BACKEND,
        "backend_version": VERSION,
        "seed": seed,
    }
