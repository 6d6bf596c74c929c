"""How many devices the job used."""

from __future__ import annotations

from metrics.facts import CardFacts
from metrics.traces.timeline import Timeline


def count(facts: CardFacts, trace: Timeline) -> tuple[int, str]:
    """The number of devices and where it comes from: the plan or card, else the trace's world size, else its lanes.

    The card comes first because one serving engine's trace knows only its own tensor-parallel group.
    """
    if facts.total_xpus:
        return facts.total_xpus, "card"
    worlds = {lane.world_size for lane in trace.lanes if lane.world_size}
    if worlds:
        return max(worlds), "world size in the trace"
    return sum(lane.weight for lane in trace.device_lanes), "devices in the trace"
