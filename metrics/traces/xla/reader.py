"""XLA profiles become lanes: one for each chip, ops on the device's picosecond clock, steps on the host-aligned one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from metrics.traces.timeline import PS, Lane
from metrics.traces.xla import gpu, ops
from metrics.traces.xla.events import Device, Profile, profile_of, read_profile
from metrics.traces.xla.steps import NO_STEPS, find_steps

TPU_WHY = {
    "coverage": "not defined on a TPU: there are no streaming multiprocessors",
    "moe": "Table 3 gives this metric for GPUs only",
}  # fmt: skip


def read(path: Path, source: str) -> tuple[list[Lane], list[str]]:
    """The lanes of a trace.json(.gz) and the warnings about it."""
    return lanes(read_profile(path, source), source)


def read_xplane(path: Path, source: str) -> tuple[list[Lane], list[str]]:
    """The lanes of an *.xplane.pb, converted by the `xprof` package.

    Without the package there are no lanes, and the warning says how to get it.
    """
    try:
        convert = import_module("xprof.convert.raw_to_tool_data")
    except ImportError:
        return [], [f"{source}: left out, *.xplane.pb needs the xprof package (pip install 'ccl-search[xplane]')"]
    data, _ = convert.xspace_to_tool_data([str(path)], "trace_viewer", {})
    if not data:
        return [], [f"{source}: left out, xprof could not convert it"]
    text = data.encode() if isinstance(data, str) else bytes(data)
    return lanes(profile_of(text, source, []), source)


def lanes(profile: Profile, source: str) -> tuple[list[Lane], list[str]]:
    """One lane for each device of the profile."""
    out = []
    for number, device in enumerate(profile.devices):
        build = _tpu if "XLA Ops" in device.lanes and "TPU" in device.name else gpu.lane
        lane = build(device, profile)
        lane.source, lane.rank, lane.ranks, lane.device = source, number, (number,), device.name
        lane.facts["events"] = any(device.lanes.values())
        out.append(lane)
    return out, profile.problems


def _tpu(device: Device, profile: Profile) -> Lane:
    lane = Lane("xla", "", -1, device.name, tick_s=PS, launches=True, why=dict(TPU_WHY))
    modules = device.lanes.get("XLA Modules", [])
    lane.step_kind, lane.steps = find_steps(device, profile.host, profile.last)
    ops.fill(lane, device.lanes["XLA Ops"], modules)
    if not len(lane.steps):
        lane.why["step"] = NO_STEPS
    return lane
