"""The window model of each class of messages, from its first message and the first link of each class."""

from __future__ import annotations

import numpy as np

from backends.network.folding import Classes, Integers, Traffic, firsts
from backends.network.messages import Messages, link_times
from backends.network.packets import opposing_burst, packet_time, packets, residual, window
from backends.network.parameters import NetworkParameters
from backends.network.sharing import Floats
from backends.network.topology import Topology
from backends.network.windows import Windows


def windows_of(
    flat: Messages, traffic: Traffic, classes: Classes, topology: Topology, parameters: NetworkParameters
) -> Windows:
    """What `Windows` needs of each class."""
    first, heads = firsts(classes.message), firsts(classes.link)
    shape = (len(heads), len(first))
    load, queues, crossed, waits = (np.zeros(shape) for _ in range(4))
    times = link_times(topology, flat.links, packet_time, parameters)
    class_of = np.zeros(len(topology.links), dtype=np.int64)
    class_of[flat.links] = classes.link
    figures, left = _figures(flat, first, topology, parameters)
    ways, backs = flat.ways.some(first), flat.backs.some(first)
    behind, answered = ways.hop > 0, backs.hop > 0
    at, flow = class_of[ways.links], ways.flow
    np.add.at(queues, (at[behind], flow[behind]), 1.0)
    np.maximum.at(crossed, (at[behind], flow[behind]), 1.0 / ways.hop[behind])
    at, flow = class_of[backs.links], backs.flow
    np.add.at(queues, (at[answered], flow[answered]), 1.0)
    full = np.zeros(len(topology.links))
    full[flat.links] = times
    np.add.at(waits, (at, flow), np.where(answered, 1.0, left[flow]) * full[backs.links])
    is_head = np.zeros(len(flat.links), dtype=bool)
    is_head[heads] = True
    entries = is_head[traffic.link]
    at, flow = classes.link[traffic.link[entries]], classes.message[traffic.message[entries]]
    np.add.at(load, (at, flow), times[traffic.link[entries]])
    opposite = _opposites(flat, classes, first)
    size, span, trip, slowest, burst = figures
    return Windows(size, span, trip, slowest, load, queues, crossed, waits, times[heads], burst, opposite)


def _figures(
    flat: Messages, first: Integers, topology: Topology, parameters: NetworkParameters
) -> tuple[Floats, Floats]:
    """Packets, `packets.window` and `packets.opposing_burst` of each class, and `packets.residual`.

    Messages of one size on links that look alike have the same.
    """
    known: dict[tuple[object, ...], tuple[float, ...]] = {}
    figures = np.zeros((6, len(first)))
    for column, at in enumerate(first.tolist()):
        route, back, nbytes = flat.ways.way(at), flat.backs.way(at), float(flat.nbytes[at])
        key = nbytes, topology.looks[list(route)].tobytes(), topology.looks[list(back)].tobytes()
        if key not in known:
            forth, answers = topology.cables(route), topology.cables(back)
            span = window(forth, answers, parameters)
            burst = opposing_burst(forth, answers, span[0], parameters)
            known[key] = packets(nbytes, parameters), *span, burst, residual(forth, parameters)
        figures[:, column] = known[key]
    return figures[:5], figures[5]


def _opposites(flat: Messages, classes: Classes, first: Integers) -> Integers:
    """For each class the one that holds the message the other way in the same stage; -1 where there is none."""
    rows = zip(flat.stage.tolist(), flat.source.tolist(), flat.target.tolist(), strict=True)
    known = dict(zip(rows, classes.message.tolist(), strict=True))
    keys = zip(flat.stage[first].tolist(), flat.target[first].tolist(), flat.source[first].tolist(), strict=True)
    return np.array([known.get(key, -1) for key in keys], dtype=np.int64)
