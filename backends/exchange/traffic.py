"""Transfers of a run on the network model: alike collectives that begin together are one, the others share links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from math import inf

from backends.exchange.inputs import AstraInputs
from backends.exchange.ns3_config import Ns3Config
from backends.exchange.operations import CollectiveCall, MessageCall
from backends.exchange.phases import Phase, phases
from backends.network.collective import Collective
from backends.network.model import NetworkModel
from backends.network.parameters import DETAILED, CongestionControl, NetworkParameters

Call = CollectiveCall | MessageCall
_DONE = 1e-6
_NS = 1e9


def parameters_of(inputs: AstraInputs, control: CongestionControl | None = None) -> NetworkParameters:
    """Packets, windows and chunks of a run, as the binary that the inputs are for has them.

    `control` overrides what the NS-3 configuration says; without a configuration it is the stock one.
    """
    base = NetworkParameters.analytical()
    if inputs.is_ns3:
        base = _ns3(inputs.ns3 or Ns3Config({"HAS_WIN": "1"}), control)
    delay = inputs.system.endpoint_delay * 1e-9
    return replace(
        base,
        chunks=max(1, inputs.system.splits),
        active_chunks=inputs.system.active_chunks,
        reduce_bandwidth=inputs.system.local_bandwidth or inf,
        launch_seconds=delay,
        step_seconds=delay,
    )


def _ns3(config: Ns3Config, control: CongestionControl | None) -> NetworkParameters:
    base = NetworkParameters.ns3(control or config.congestion_control, config.payload_bytes, DETAILED)
    base = replace(base, window=config.has_window)
    lows, highs, chances = (config.thresholds(name) for name in ("KMIN_MAP", "KMAX_MAP", "PMAX_MAP"))
    if not lows or max(lows) not in highs or max(lows) not in chances:
        return base
    rate = max(lows)
    low, high = (float(table[rate]) * 8e3 / rate for table in (lows, highs))
    return replace(base, ecn_min=low, ecn_max=high, ecn_probability=float(chances[rate]))


@dataclass
class _Bundle:
    """Transfers that run as one: the steps that are left, each with its seconds alone on the network."""

    tokens: list[Hashable]
    steps: list[tuple[Collective, float]]
    left: float
    rate: float = 1.0


class NetworkTransport:
    """Moves data over a network model.

    Alike transfers that begin at the same moment are timed together, groups contending; those of different moments or
    kinds slow each other by the mean load they put on the links they share.
    """

    def __init__(self, inputs: AstraInputs, control: CongestionControl | None = None) -> None:
        parameters = parameters_of(inputs, control)
        self._inputs = inputs
        self.model = NetworkModel(inputs.topology, parameters)
        bare = replace(parameters, launch_seconds=0.0, step_seconds=0.0, chunks=1, active_chunks=1)
        self._messages = NetworkModel(inputs.topology, bare)
        self._bundles: list[_Bundle] = []
        self._since = 0.0
        self._rates: dict[tuple[Collective, ...], list[float]] = {}
        self._phases: dict[CollectiveCall, list[Phase]] = {}
        self.link_bytes: dict[int, float] = defaultdict(float)

    def start(self, now: int, batch: list[tuple[Hashable, Call]]) -> None:
        """Transfers that begin at `now`."""
        self._advance(float(now))
        alike: dict[Hashable, list[tuple[Hashable, Call]]] = defaultdict(list)
        for token, call in batch:
            alike[_alike(call)].append((token, call))
        for members in alike.values():
            for part in _disjoint(members):
                self._bundles.append(self._bundle(part))
        self._share()

    def next_end(self) -> float:
        """When the next step of a transfer ends, whole ns; inf where none is under way."""
        return min((self._end_of(bundle) for bundle in self._bundles), default=inf)

    def finish(self, now: int) -> list[Hashable]:
        """Transfers that end by `now`; those that have another step go on with it."""
        if not any(self._end_of(bundle) <= now for bundle in self._bundles):
            return []
        done: list[Hashable] = []
        ending = [bundle for bundle in self._bundles if self._end_of(bundle) <= now]
        self._advance(float(now))
        for bundle in ending:
            bundle.steps.pop(0)
            if bundle.steps:
                bundle.left = bundle.steps[0][1] * _NS
            else:
                done += bundle.tokens
        self._bundles = [bundle for bundle in self._bundles if bundle.steps]
        self._share()
        return done

    def _end_of(self, bundle: _Bundle) -> float:
        return float(round(self._since + max(0.0, bundle.left) / bundle.rate))

    def _advance(self, now: float) -> None:
        for bundle in self._bundles:
            bundle.left -= (now - self._since) * bundle.rate
        self._since = now

    def _share(self) -> None:
        active = tuple(bundle.steps[0][0] for bundle in self._bundles)
        if len(active) < 2:
            rates = [1.0] * len(active)
        else:
            if active not in self._rates:
                self._rates[active] = self.model.rates(active)
            rates = self._rates[active]
        for bundle, rate in zip(self._bundles, rates, strict=True):
            bundle.rate = rate

    def _bundle(self, members: list[tuple[Hashable, Call]]) -> _Bundle:
        tokens, calls = [token for token, _ in members], [call for _, call in members]
        first = calls[0]
        if isinstance(first, MessageCall):
            pairs = tuple((call.source, call.target) for call in calls if isinstance(call, MessageCall))
            steps = [(Collective("send_recv", max(1, first.size), pairs), 1.0)]
        else:
            steps = self._collective([call for call in calls if isinstance(call, CollectiveCall)])
        timed = [(step, share * self._seconds(step, share)) for step, share in steps]
        return _Bundle(tokens, timed, timed[0][1] * _NS)

    def _seconds(self, step: Collective, share: float) -> float:
        model = self._messages if step.kind == "send_recv" else self.model
        timing = model.time(step)
        for link, amount in timing.link_bytes.items():
            self.link_bytes[link] += amount
        return timing.seconds

    def _collective(self, calls: list[CollectiveCall]) -> list[tuple[Collective, float]]:
        """The steps of alike calls, groups side by side.

        Chunks go through the dimensions as through a pipeline: the slowest one is passed by all chunks, the others by
        one more each.
        """
        plans = [self._plan(call) for call in calls]
        merged = [
            Collective(
                step.kind, step.nbytes, tuple(group for plan in plans for group in plan[at].groups), step.algorithm
            )
            for at, step in enumerate(plans[0])
        ]
        alone = [self.model.time(step).seconds for step in merged]
        slowest = alone.index(max(alone))
        splits = max(1, self._inputs.system.splits)
        return [(step, 1.0 if at == slowest else 1.0 / splits) for at, step in enumerate(merged)]

    def _plan(self, call: CollectiveCall) -> list[Phase]:
        if call not in self._phases:
            self._phases[call] = phases(self._inputs, call)
        return self._phases[call]


def _alike(call: Call) -> Hashable:
    if isinstance(call, MessageCall):
        return "message", call.size
    return call.kind, call.size, len(call.members), call.dims


def _disjoint(members: list[tuple[Hashable, Call]]) -> list[list[tuple[Hashable, Call]]]:
    """Calls in parts in which no rank has two; messages stay together."""
    if isinstance(members[0][1], MessageCall):
        return [members]
    parts: list[tuple[set[int], list[tuple[Hashable, Call]]]] = []
    for token, call in members:
        assert isinstance(call, CollectiveCall)
        for taken, part in parts:
            if taken.isdisjoint(call.members):
                taken.update(call.members)
                part.append((token, call))
                break
        else:
            parts.append((set(call.members), [(token, call)]))
    return [part for _, part in parts]
