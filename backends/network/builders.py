"""Topologies from a few numbers: switch, ring, torus, full mesh, clusters, rails, leaf/spine, servers of cables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from backends.network.topology import Link, Topology
from runs.errors import BadInputError

Cable = tuple[int, int, float, float]
Ends = tuple[int | str, int | str, str]


def both_ways(cables: Iterable[Cable]) -> tuple[Link, ...]:
    """Two links for each cable (end, end, bytes/s, seconds)."""
    return tuple(
        link
        for first, second, bandwidth, latency in cables
        for link in (Link(first, second, bandwidth, latency), Link(second, first, bandwidth, latency))
    )


def _positive(name: str, **counts: int) -> None:
    for what, count in counts.items():
        if count < 1:
            raise BadInputError(f"{name}: {what} is {count}", "give a count of at least 1")


def switch(devices: int, bandwidth: float, latency: float) -> Topology:
    """`devices` on one non-blocking switch; `latency` in seconds for each of the two hops."""
    _positive("switch", devices=devices)
    cables = [(device, devices, bandwidth, latency) for device in range(devices)]
    return Topology(f"switch-{devices}", devices, both_ways(cables))


def fully_connected(devices: int, bandwidth: float, latency: float) -> Topology:
    """A cable of `bandwidth` bytes/s between every two devices."""
    _positive("fully connected", devices=devices)
    cables = [(a, b, bandwidth, latency) for a in range(devices) for b in range(a + 1, devices)]
    return Topology(f"mesh-{devices}", devices, both_ways(cables))


def torus(shape: Sequence[int], bandwidth: float, latency: float) -> Topology:
    """A torus of any dimension (1 = ring), first dimension fastest; `bandwidth` of one direction of one cable."""
    _positive("torus", **{f"dimension {axis}": size for axis, size in enumerate(shape)})
    devices, cables, stride = prod(shape), [], 1
    for size in shape:
        for node in range(devices):
            here = node // stride % size
            if size > 2 or (size == 2 and here == 0):
                cables.append((node, node + ((here + 1) % size - here) * stride, bandwidth, latency))
        stride *= size
    name = "torus-" + "x".join(map(str, shape))
    return Topology(name, devices, both_ways(cables), devices_forward=True, shape=tuple(shape))


def ring(devices: int, bandwidth: float, latency: float) -> Topology:
    """A bidirectional ring: the torus of one dimension."""
    return torus((devices,), bandwidth, latency)


def _scale_up(nodes: int, per_node: int, first_switch: int, mesh: bool, rate: float, delay: float) -> list[Cable]:
    """The cables inside nodes: a full mesh that splits a device's `rate` over its peers, or a switch a node."""
    cables: list[Cable] = []
    for node in range(nodes):
        members = range(node * per_node, (node + 1) * per_node)
        if mesh:
            share = rate / max(1, per_node - 1)
            cables += [(a, b, share, delay) for a in members for b in members if a < b]
        elif per_node > 1:
            cables += [(device, first_switch + node, rate, delay / 2) for device in members]
    return cables


def clustered(
    nodes: int,
    per_node: int,
    scale_up: tuple[float, float],
    scale_out: tuple[float, float],
    *,
    nics: int = 1,
    mesh: bool = False,
) -> Topology:
    """Nodes of `per_node` devices joined by `nics` NICs a node and one non-blocking core switch.

    `scale_up` and `scale_out` are (bytes/s, seconds): of one device within its node, and of one NIC; the seconds are
    from device to device. With a NIC a device, device i owns NIC i; otherwise devices reach all NICs of their node
    through its host bridge, spread by flow hash. `mesh` joins the devices of a node directly, else a switch does.
    """
    _positive("cluster", nodes=nodes, devices=per_node, nics=nics)
    devices = nodes * per_node
    core = devices + nodes
    cables = _scale_up(nodes, per_node, devices, mesh, *scale_up)
    if nodes > 1 and nics == per_node:
        cables += _own_nics(devices, core, scale_out)
    elif nodes > 1:
        cables += _shared_nics(nodes, per_node, nics, core, scale_out)
    name = f"cluster-{nodes}x{per_node}"
    tier = tuple(device // per_node for device in range(devices))
    return Topology(name, devices, both_ways(cables), tiers=(tier,) if per_node > 1 else ())


def _own_nics(devices: int, core: int, scale_out: tuple[float, float]) -> list[Cable]:
    rate, delay = scale_out[0], scale_out[1] / 4
    nics = [(device, core + 1 + device) for device in range(devices)]
    return [cable for device, nic in nics for cable in ((device, nic, rate, delay), (nic, core, rate, delay))]


def _shared_nics(nodes: int, per_node: int, nics: int, core: int, scale_out: tuple[float, float]) -> list[Cable]:
    """Device, its port, the bridge of the node, a NIC, the core: longer than any way inside the node."""
    rate, delay = scale_out[0], scale_out[1] / 8
    inlet = max(rate, rate * nics / per_node)
    cables: list[Cable] = []
    free = core + 1
    for node in range(nodes):
        bridge, ports = free, free + 1
        for index in range(per_node):
            device = node * per_node + index
            cables += [(device, ports + index, inlet, delay), (ports + index, bridge, inlet, delay)]
        first = ports + per_node
        for nic in range(first, first + nics):
            cables += [(bridge, nic, rate, delay), (nic, core, rate, delay)]
        free = first + nics
    return cables


def rails(
    nodes: int, per_node: int, scale_up: tuple[float, float], scale_out: tuple[float, float], spines: int = 1
) -> Topology:
    """Switched nodes whose device i has its own NIC on leaf switch i; `spines` join the leaves without blocking.

    Figures as for `clustered`; the seconds of `scale_out` are for two devices on one rail, a spine adds as much again.
    """
    _positive("rails", nodes=nodes, devices=per_node, spines=spines)
    devices = nodes * per_node
    leaf, spine = devices + nodes, devices + nodes + per_node
    rate, delay = scale_out[0], scale_out[1] / 2
    cables = _scale_up(nodes, per_node, devices, False, *scale_up)
    if nodes > 1:
        cables += [(device, leaf + device % per_node, rate, delay) for device in range(devices)]
        uplink = rate * nodes / spines
        cables += [(leaf + i, spine + j, uplink, delay) for i in range(per_node) for j in range(spines)]
    tier = tuple(device // per_node for device in range(devices))
    return Topology(f"rails-{nodes}x{per_node}", devices, both_ways(cables), tiers=(tier,) if per_node > 1 else ())


def leaf_spine(
    devices: int, per_leaf: int, spines: int, bandwidth: float, latency: float, uplink: float | None = None
) -> Topology:
    """Devices on leaf switches, every leaf joined to every spine; `uplink` bytes/s a cable, non-blocking by default."""
    _positive("leaf/spine", devices=devices, per_leaf=per_leaf, spines=spines)
    leaves = -(-devices // per_leaf)
    rate = uplink if uplink is not None else bandwidth * per_leaf / spines
    cables = [(device, devices + device // per_leaf, bandwidth, latency) for device in range(devices)]
    first = devices + leaves
    cables += [(devices + i, first + j, rate, latency) for i in range(leaves) for j in range(spines)]
    return Topology(f"leaf-spine-{devices}", devices, both_ways(cables))


def servers(
    name: str,
    count: int,
    per_server: int,
    cables: Sequence[Ends],
    classes: Mapping[str, tuple[float, float]],
    mesh: str = "",
) -> Topology:
    """`count` equal servers drawn as cables (end, end, class), for PCIe trees, sockets and NICs.

    An end is a device number within the server, the name of a switch of the server, or a name starting with `core`,
    of which there is one for all servers. `classes` gives each class of cable its bytes/s and seconds. `mesh` names the
    switch of each server that a cable of class `mesh` joins with those of all other servers.

    Raises:
        BadInputError: a cable has a class without figures, or an end that is no device of the server.
    """
    _positive(name, servers=count, devices=per_server)
    names = [end for first, second, _ in cables for end in (first, second) if isinstance(end, str)]
    inner = list(dict.fromkeys(end for end in names if not end.startswith("core")))
    outer = list(dict.fromkeys(end for end in names if end.startswith("core")))
    devices = count * per_server
    labels = {devices + index: end for index, end in enumerate(outer)}
    base = devices + len(outer)
    for server in range(count):
        labels |= {base + server * len(inner) + index: f"{end} of server {server}" for index, end in enumerate(inner)}

    def place(end: int | str, server: int) -> int:
        if isinstance(end, str):
            return devices + outer.index(end) if end in outer else base + server * len(inner) + inner.index(end)
        if not 0 <= end < per_server:
            raise BadInputError(f"{name}: a cable ends at device {end} of a server of {per_server}", "correct the end")
        return server * per_server + end

    drawn = [
        (place(first, server), place(second, server), *_figures(name, kind, classes))
        for server in range(count)
        for first, second, kind in cables
    ]
    if mesh:
        pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
        drawn += [(place(mesh, a), place(mesh, b), *_figures(name, "mesh", classes)) for a, b in pairs]
    tier = tuple(device // per_server for device in range(devices))
    tiers = (tier,) if 1 < per_server < devices else ()
    return Topology(name, devices, both_ways(drawn), labels=labels, tiers=tiers)


def _figures(name: str, kind: str, classes: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    if kind not in classes:
        raise BadInputError(f"{name}: no rate is given for cables of class {kind!r}", f"known: {', '.join(classes)}")
    return classes[kind]
