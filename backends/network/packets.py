"""What a message costs on a route: packets, serialisation, propagation and the way back of its acknowledgements."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

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
