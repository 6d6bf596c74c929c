"""The built-in simulator as the model that is fitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccl_search.calibrating.parameters import Point, calibration

if TYPE_CHECKING:
    from backends.graph import ExecutionGraph
    from ccl_search.calibrating.measurements import Measurement
    from ccl_search.calibrating.parameters import Vector


class SimulatedSteps:
    """Simulated step times of measured configs. Graphs do not depend on a calibration and are kept."""

    def __init__(self, measurements: Sequence[Measurement]) -> None:
        self._measurements = measurements
        self._graphs: dict[int, ExecutionGraph] = {}

    def seconds(self, index: int, costs: Vector, /) -> float:
        """See `fitting.Model`."""
        from backends.compute import System
        from backends.dry_run import network_for
        from backends.flow.simulate import simulate

        one = self._measurements[index]
        fitted = calibration("fit", Point(costs))
        system = System.of(one.environment, one.plan, one.workload.precision, fitted)
        return simulate(self._graph(index), system, network_for(one.environment, fitted, one.plan)).wall_s

    def _graph(self, index: int) -> ExecutionGraph:
        from backends.dry_run import execution_graph

        if index not in self._graphs:
            one = self._measurements[index]
            self._graphs[index] = execution_graph(one.workload, one.plan)
        return self._graphs[index]
