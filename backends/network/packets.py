"""What a message costs on a route: packets, serialisation, propagation and the way back of its acknowledgements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor

from backends.network.parameters import NetworkParameters
from backends.network.topology import Link


def packets(nbytes: float, parameters: NetworkParameters) -> float:
    """A message in units of full packets; the last, partial one counts by its wire bytes."""
    full = floor(nbytes / parameters.payload_bytes)
    rest = nbytes - full * parameters.payload_bytes
    wire = parameters.payload_bytes + parameters.header_bytes
    return full + ((rest + parameters.header_bytes) / wire if rest > 0 else 0.0)


def on_the_wire(nbytes: float, parameters: NetworkParameters) -> float:
    """Payload plus headers, bytes."""
    return packets(nbytes, parameters) * (parameters.payload_bytes + parameters.header_bytes)


def serialisation(nbytes: float, link: Link, parameters: NetworkParameters) -> float:
    """Seconds that `nbytes` keep `link` busy, rounded to the clock of the reference where it has one."""
    seconds = nbytes / link.bandwidth
    return max(round(seconds / parameters.tick), 1) * parameters.tick if parameters.tick else seconds


def packet_time(link: Link, parameters: NetworkParameters) -> float:
    """Seconds a full packet keeps `link` busy."""
    return serialisation(parameters.payload_bytes + parameters.header_bytes, link, parameters)


def acknowledgement_time(link: Link, parameters: NetworkParameters) -> float:
    """Seconds one acknowledgement keeps `link` busy; 0 where there are none."""
    return serialisation(parameters.ack_bytes, link, parameters) if parameters.ack_bytes else 0.0


def tail(nbytes: float, route: Sequence[Link], back: Sequence[Link], parameters: NetworkParameters) -> float:
    """Seconds from the moment a message has passed its slowest hop to its delivery.

    Store and forward of the last packet over the other hops and propagation; with `wait_for_ack` also the way back.
    """
    wire = min(packets(nbytes, parameters), 1.0) * (parameters.payload_bytes + parameters.header_bytes)
    hops = [serialisation(wire, link, parameters) for link in route]
    seconds = sum(hops) - max(hops) + sum(link.latency for link in route)
    if parameters.wait_for_ack:
        seconds += sum(link.latency + acknowledgement_time(link, parameters) for link in back)
    return seconds


def window(route: Sequence[Link], back: Sequence[Link], parameters: NetworkParameters) -> tuple[float, float, float]:
    """Window of a pair in packets, its unloaded round trip, and the packet time of its slowest hop, in seconds.

    The window is bandwidth times (propagation both ways plus one payload a hop), rounded up to whole packets, because
    a sender may send as long as less than the window is on the way.
    """
    base = 2 * sum(link.latency for link in route) + sum(parameters.payload_bytes / link.bandwidth for link in route)
    product = min(link.bandwidth for link in route) * base
    times = [packet_time(link, parameters) for link in route]
    trip = sum(link.latency for link in (*route, *back)) + sum(times)
    trip += sum(acknowledgement_time(link, parameters) for link in back)
    return float(max(ceil(product / parameters.payload_bytes - 1e-9), 1)), trip, max(times)


def residual(route: Sequence[Link], parameters: NetworkParameters) -> float:
    """What is left, as a share, of the packet in service at the receiver's own port when a packet arrives there.

    Both ends of a step start together, so it is the phase of the one-way time in the receiver's own packet stream.
    """
    time = packet_time(route[-1], parameters)
    return 1.0 - (sum(link.latency + packet_time(link, parameters) for link in route) / time) % 1.0


def opposing_burst(route: Sequence[Link], back: Sequence[Link], window: float, parameters: NetworkParameters) -> float:
    """Seconds the first acknowledgement waits behind the window that the receiver has sent the other way.

    Both hosts send a window at once; where a port on the way back is slower than the host, the window stands before
    it, and the acknowledgement, which comes after the one-way time, waits for what is left.
    """
    here = sum(link.latency + packet_time(link, parameters) for link in route)
    there, slowest, waited = 0.0, packet_time(back[0], parameters), 0.0
    for before, link in pairwise(back):
        time = packet_time(link, parameters)
        here += before.latency + acknowledgement_time(before, parameters)
        there += before.latency + packet_time(before, parameters)
        if time > slowest:
            waited += max(0.0, there + window * time - here - waited)
            slowest = time
    return waited
