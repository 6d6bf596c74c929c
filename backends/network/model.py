"""The network as the step simulator sees it: how long a collective takes, and how collectives slow each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from backends.network.algorithms import Stage
from backends.network.collective import Collective, CollectiveTiming
from backends.network.compiler import Compiled, compile_stages
from backends.network.packet_engine import PacketEngine
from backends.network.parameters import ChunkOrder, NetworkParameters
from backends.network.planning import chosen_algorithm, schedule, variants
from backends.network.steady import run
from backends.network.topology import Topology
from backends.network.train_engine import TrainEngine

_PIPELINED = ("double_binary_tree", "double_binary_tree_astra", "hierarchical")


class NetworkModel:
    """Times collectives on one topology with one set of parameters; every answer is kept."""

    def __init__(self, topology: Topology, parameters: NetworkParameters | None = None) -> None:
        self.topology = topology
        self.parameters = parameters or NetworkParameters()
        self._timings: dict[Collective, CollectiveTiming] = {}
        self._by_packets: set[Collective] = set()

    def time(self, collective: Collective) -> CollectiveTiming:
        """Seconds and bytes of `collective` alone on the network.

        Raises:
            BadInputError: a rank is no device, nothing joins two ranks, or the algorithm cannot serve the group.
        """
        collective = self._named(collective)
        if collective not in self._timings:
            self._timings[collective] = self._simulate(collective)
        return self._timings[collective]

    def _named(self, collective: Collective) -> Collective:
        return collective if collective.algorithm is not None else replace(collective, algorithm="auto")

    def sequence(self, steps: Sequence[Collective | float]) -> CollectiveTiming:
        """Collectives one after another, each rank going on once it has its own part; numbers are seconds of work.

        Unlike a sum of `time`, ranks that are served early start the next step while others still communicate. Where
        single collectives are simulated packet by packet and all of them at once are too many packets, it is the sum.
        """
        stages: list[Stage] = []
        lanes: list[list[int]] = [[]]
        pause, name = 0.0, ""
        for step in steps:
            if isinstance(step, Collective):
                name = self._append(step, pause, stages, lanes)
                pause = 0.0
            else:
                pause += step
        compiled = self._compiled(stages, lanes)
        if self.parameters.packet_budget and compiled and not (compiled.trains and compiled.trains.single):
            summed = self._one_by_one([self._named(step) for step in steps if isinstance(step, Collective)])
            if summed is not None:
                work = sum(step for step in steps if not isinstance(step, Collective))
                return replace(summed, seconds=summed.seconds + work)
        timing = self._run(compiled, name)
        return replace(timing, seconds=timing.seconds + pause)

    def _one_by_one(self, collectives: Sequence[Collective]) -> CollectiveTiming | None:
        """The sum of the collectives, where any of them is simulated packet by packet; else None."""
        timings = [self.time(collective) for collective in collectives]
        if self._by_packets.isdisjoint(collectives):
            return None
        carried: Counter[int] = Counter()
        for timing in timings:
            carried.update(timing.link_bytes)
        seconds = sum(timing.seconds for timing in timings)
        return CollectiveTiming(seconds, carried, self._fullest(carried), timings[-1].algorithm)

    def _simulate(self, collective: Collective) -> CollectiveTiming:
        stages: list[Stage] = []
        lanes: list[list[int]] = [[]]
        name = self._append(collective, 0.0, stages, lanes)
        compiled = self._compiled(stages, lanes)
        if compiled is not None and compiled.trains:
            self._by_packets.add(collective)
        return self._run(compiled, name)

    def _compiled(self, stages: list[Stage], lanes: list[list[int]]) -> Compiled | None:
        used = [lane for lane in lanes if lane]
        return compile_stages(stages, used, self.topology, self.parameters) if used else None

    def _run(self, compiled: Compiled | None, name: str) -> CollectiveTiming:
        if compiled is None:
            return CollectiveTiming(0.0, {}, -1, name)
        if compiled.trains:
            engine = PacketEngine if compiled.trains.single else TrainEngine
            seconds = engine(compiled.program, compiled.trains, self.parameters).run()
        else:
            seconds = run(compiled.program, compiled.rates)
        return CollectiveTiming(seconds, compiled.link_bytes, self._fullest(compiled.link_bytes), name)

    def _append(self, collective: Collective, pause: float, stages: list[Stage], lanes: list[list[int]]) -> str:
        """Add the chunks of `collective` to the lanes; the first stage of each chunk carries its software cost."""
        algorithm = chosen_algorithm(collective, self.topology)
        parts = self._parts(collective, algorithm)
        wide = parts if self.parameters.chunk_order is ChunkOrder.PIPELINED else self.parameters.active_chunks
        wide = min(parts, wide)
        lanes += [[] for _ in range(wide - len(lanes))]
        places: dict[tuple[int, float], list[int]] = {}
        for part in range(parts):
            key = part % variants(algorithm), pause if part < wide else 0.0
            if key not in places:
                chunk = schedule(collective, self.topology, algorithm, collective.nbytes / parts, key[0])
                chunk[:1] = self._launched(chunk[0], key[1]) if chunk else []
                places[key] = list(range(len(stages), len(stages) + len(chunk)))
                stages += chunk
            lanes[part % wide] += places[key]
        return algorithm

    def _launched(self, stage: Stage, pause: float) -> list[Stage]:
        """The first round of a chunk, delayed, and the rest of its stage."""
        first = replace(stage, repeat=1, delay=pause + self.parameters.launch_seconds)
        return [first, replace(stage, repeat=stage.repeat - 1)] if stage.repeat > 1 else [first]

    def _parts(self, collective: Collective, algorithm: str) -> int:
        if self.parameters.chunk_order is ChunkOrder.SERIAL:
            return self.parameters.chunks
        if algorithm not in _PIPELINED and collective.kind != "broadcast":
            return 1
        return max(1, min(self.parameters.chunks, ceil(collective.nbytes / self.parameters.chunk_bytes)))

    def _fullest(self, link_bytes: Mapping[int, float]) -> int:
        links = self.topology.links
        return max(link_bytes, key=lambda link: (link_bytes[link] / links[link].bandwidth, -link), default=-1)

    def rates(self, active: Sequence[Collective]) -> list[float]:
        """Relative progress, in (0, 1], of each of `active` while all of them run: 1.0 where no link is over-full.

        Each collective is taken as a fluid that loads every link by its mean share of it; progress is max-min fair
        over the collectives, so that no link carries more than it can.
        """
        loads = [self._mean_load(collective) for collective in active]
        used = sorted({link for load in loads for link in load})
        matrix = np.array([[load.get(link, 0.0) for link in used] for load in loads]).reshape(len(loads), len(used))
        rates = np.ones(len(loads))
        filling = np.ones(len(loads), dtype=bool)
        while filling.any() and used:
            load = filling @ matrix
            spent = np.where(filling, 0.0, rates) @ matrix
            with np.errstate(divide="ignore", invalid="ignore"):
                level = np.where(load > 0, np.maximum(1.0 - spent, 0.0) / load, np.inf)
            lowest = float(level.min())
            if lowest >= 1.0:
                break
            full = level <= lowest * (1 + 1e-9)
            stopped = filling & (matrix[:, full].max(axis=1) > 0)
            rates[stopped] = lowest
            filling &= ~stopped
        return [float(rate) for rate in rates]

    def _mean_load(self, collective: Collective) -> dict[int, float]:
        timing = self.time(collective)
        links = self.topology.links
        return {
            link: min(1.0, amount / links[link].bandwidth / timing.seconds)
            for link, amount in timing.link_bytes.items()
        }
