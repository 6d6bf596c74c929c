"""XLA profiles against values worked out by hand: steps, leaf ops, asynchronous collectives, copies, sizes, GPUs."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from metrics import compute
from metrics.facts import CardFacts
from metrics.traces.load import load
from metrics.traces.timeline import Op
from metrics.traces.xla import hlo
from runs.metric import MetricValue
from tests.metrics.build import ALLREDUCE, Xla

US = 1_000
MS = 1_000_000
GROUPS = "replica_groups=[2,4]<=[8], dimensions={0}"


def value(found: dict[str, MetricValue], name: str) -> float:
    assert found[name].value is not None, (name, found[name].reason)
    return found[name].value or 0.0


def profile(chips: int = 2) -> Xla:
    """Three executions of jit_step, 1 ms each with 0.1 ms between; in each a fusion 0-300 us, an asynchronous
    all-gather in flight 100-500 us around a second fusion 300-450 us, a reduce-scatter 500-600 us, a copy from the
    host 650-850 us."""
    out = Xla(chips)
    for chip in range(chips):
        out.module(chip, "jit_init", 0, 200 * US)
        for number in range(3):
            at = (number + 1) * 1100 * US
            out.module(chip, "jit_step", at, MS)
            out.add(chip, "Framework Ops", "dot", at, 900 * US)
            out.op(chip, "convolution fusion", at, 100 * US, model_flops=4_000_000)
            out.op(chip, "all-gather-start", at + 100 * US, 0, "all-gather-start.1", long_name=(
                "%all-gather-start.1 = (bf16[128,1024]{1,0}, bf16[512,1024]{1,0}) "
                f"all-gather-start(bf16[128,1024]{{1,0}} %p), {GROUPS}"
            ))  # fmt: skip
            out.op(chip, "convolution fusion", at + 100 * US, 200 * US, model_flops=6_000_000)
            out.op(chip, "loop fusion", at + 300 * US, 150 * US)
            out.op(chip, "all-gather-done", at + 450 * US, 50 * US, "all-gather-done.1", long_name=(
                "%all-gather-done.1 = bf16[512,1024]{1,0} "
                "all-gather-done((bf16[128,1024], bf16[512,1024]) %all-gather-start.1)"
            ))  # fmt: skip
            out.op(chip, "reduce-scatter", at + 500 * US, 100 * US, long_name=(
                f"%reduce-scatter = f32[256]{{0}} reduce-scatter(f32[1024]{{0}} %x), {GROUPS}, to_apply=%add"
            ))  # fmt: skip
            out.op(chip, "copy-start", at + 650 * US, 0, "copy-start.3", bytes_accessed=2_000_000, shape_with_layout=(
                "(f32[500]{0:T(8)}, f32[500]{0:T(8)S(5)}, u32[]{:S(2)})"
            ))  # fmt: skip
            out.op(chip, "copy-done", at + 650 * US, 200 * US, "copy-done.3")
    return out


def test_steps_and_communication(tmp_path: Path) -> None:
    profile().write(tmp_path / "host0.trace.json.gz")
    found = compute(tmp_path, facts=CardFacts(phase="training", peak_bf16_flops=1e12))
    assert value(found, "avg_step_time") == pytest.approx(1e-3)
    assert value(found, "mfu") == pytest.approx(100 * 1e7 / 1e-3 / 1e12)
    # in flight 100-500 and 500-600; ops 0-600 and 650-850 and the first module none: three times over
    assert value(found, "communication_fraction") == pytest.approx(100 * 500 / 800)
    assert value(found, "total_communication_time") == pytest.approx(150e-6)
    assert value(found, "compute_comm_overlap") == pytest.approx(100 * 350 / 500)
    assert value(found, "step_compute_time") == pytest.approx(100e-6)
    assert value(found, "step_overlapped_comm_time") == pytest.approx(350e-6)
    assert value(found, "step_exposed_comm_time") == pytest.approx(150e-6)
    assert value(found, "step_memory_time") == pytest.approx(200e-6)
    assert value(found, "step_idle_time") == pytest.approx(200e-6)
    assert value(found, "load_imbalance_ratio") == 1
    assert found["straggler"].reason == "Table 3 gives this metric for GPUs only"
    assert found["mean_sm_coverage"].reason == "not defined on a TPU: there are no streaming multiprocessors"


def test_sizes_from_hlo_text(tmp_path: Path) -> None:
    profile().write(tmp_path / "host0.trace.json")
    found = compute(tmp_path)
    assert value(found, "bw_allgather") == pytest.approx(3 / 4 * 512 * 1024 * 2 / 400e-6 / 1e9)
    assert value(found, "bw_reducescatter") == pytest.approx(3 / 4 * 1024 * 4 / 100e-6 / 1e9)
    assert value(found, "traffic_allgather_gb") == pytest.approx(512 * 1024 * 2 / 1e9)
    assert value(found, "traffic_allreduce_gb") == 0
    assert found["bw_alltoall"].reason == "no collective of this kind with message sizes in the trace"


def test_copies_last_until_the_end_of_done(tmp_path: Path) -> None:
    profile(1).write(tmp_path / "host0.trace.json")
    found = compute(tmp_path)
    assert value(found, "average_memory_bandwidth") == pytest.approx(2e6 / 200e-6 / 1e9)
    assert list((found["average_memory_bandwidth"].detail or {})["by_direction"]) == ["H2D"]
    # 3 x 200 us exposed, from the first op at 1.1 ms to the last at 3.3 + 0.85
    assert value(found, "memory_transfer_overhead") == pytest.approx(100 * 600 / 3050)
    assert value(found, "dominant_kernel_concentration") == pytest.approx(100 * 300 / 800)


def test_copies_pair_inside_one_execution(tmp_path: Path) -> None:
    out = Xla()
    out.module(0, "jit_step", 0, MS)
    out.module(0, "jit_step", 2 * MS, MS)
    out.op(0, "copy-start", 100 * US, 0, "copy-start.1", bytes_accessed=10)
    out.op(0, "copy-done", 2100 * US, 50 * US, "copy-done.1")
    out.op(0, "loop fusion", 200 * US, 50 * US)
    out.write(tmp_path / "t.trace.json")
    lane = load(tmp_path).lanes[0]
    assert (len(lane.copies), lane.facts["unpaired_copy_ops"]) == (0, 2)


def test_containers_are_not_counted_with_their_bodies(tmp_path: Path) -> None:
    out = Xla()
    out.module(0, "jit_step", 0, MS)
    out.op(0, "while", 0, 900 * US)
    out.op(
        0,
        "all-reduce",
        100 * US,
        300 * US,
        long_name="%a = f32[10] all-reduce(f32[10] %b), replica_groups={{0,1},{2,3}}",
    )
    out.op(0, "loop fusion", 400 * US, 100 * US)
    out.write(tmp_path / "t.trace.json")
    found = compute(tmp_path)
    assert value(found, "communication_fraction") == pytest.approx(75)
    assert value(found, "bw_allreduce") == pytest.approx(2 * 1 / 2 * 40 / 300e-6 / 1e9)


@pytest.mark.parametrize("marker", ["$core.py:331 step", "$core.py:402 step", "StepMarker"])
def test_step_markers_on_the_host(tmp_path: Path, marker: str) -> None:
    out = Xla(lanes=("XLA Ops",))
    for number, length in enumerate((5, 1, 2, 3, 5)):
        out.host(marker, number * 10 * MS, length * MS)
        out.op(0, "loop fusion", number * 10 * MS, 500 * US)
    out.host("$core.py:77 schedule", 0, 90 * MS)
    out.write(tmp_path / "t.trace.json")
    assert value(compute(tmp_path), "avg_step_time") == pytest.approx(2e-3)


def test_a_lane_of_steps(tmp_path: Path) -> None:
    out = Xla(lanes=("XLA Ops", "Steps"))
    out.add(0, "Steps", "17", 0, 3 * MS)
    out.op(0, "loop fusion", 0, MS)
    out.write(tmp_path / "t.trace.json")
    assert value(compute(tmp_path), "avg_step_time") == pytest.approx(3e-3)


def test_damage(tmp_path: Path) -> None:
    path = profile(1).write(tmp_path / "t.trace.json")
    text = path.read_text()
    path.write_text(text[: int(len(text) * 0.9)])
    found = load(tmp_path)
    assert len(found.lanes[0].kernels) > 10
    assert found.warnings == [
        "t.trace.json: incomplete, the file ends inside the event list; its whole events were used"
    ]
    path.write_text(text.replace('"reduce-scatter"', '"reduce\\-scatter"'))
    assert "repaired: an invalid escape" in load(tmp_path).warnings[0]


def test_gpus(tmp_path: Path) -> None:
    out = Xla(kind="GPU", lanes=("XLA Modules", "Stream #13(Compute)", "Stream #14(MemcpyH2D)", "XLA Ops"))
    out.module(0, "jit_step", 0, MS)
    out.add(0, "XLA Ops", "fusion.1", 0, 400 * US)
    out.add(
        0, "Stream #13(Compute)", "fusion_1", 0, 300 * US, {"kernel_details": "regs:32 grid:160,1,1 block:1024,1,1"}
    )
    out.add(0, "Stream #13(Compute)", ALLREDUCE, 300 * US, 100 * US)
    out.add(0, "Stream #14(MemcpyH2D)", "MemcpyH2D", 600 * US, 50 * US, {"memcpy_details": "size:1000 dest:4 async:0"})
    out.write(tmp_path / "t.trace.json")
    found = compute(tmp_path)
    assert value(found, "communication_fraction") == pytest.approx(25)
    assert value(found, "average_memory_bandwidth") == pytest.approx(1000 / 50e-6 / 1e9)
    assert value(found, "step_idle_time") == pytest.approx(550e-6)
    assert found["bw_allreduce"].reason == "XLA profiles of GPUs carry no message sizes"


def test_xplane_needs_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "host0.xplane.pb").write_bytes(b"\x0a\x00")
    monkeypatch.setitem(sys.modules, "xprof.convert.raw_to_tool_data", None)
    with pytest.raises(Exception, match=r"xplane\.pb needs the xprof package"):
        load(tmp_path)


def test_xplane_goes_through_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = profile(1).write(tmp_path / "x" / "t.trace.json").read_text()
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "host0.xplane.pb").write_bytes(b"\x0a\x00")
    module = types.ModuleType("xprof.convert.raw_to_tool_data")
    asked = []
    module.xspace_to_tool_data = lambda *args: asked.append(args) or (text, "application/json")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "xprof.convert.raw_to_tool_data", module)
    assert value(compute(tmp_path / "y"), "avg_step_time") == pytest.approx(1e-3)
    assert asked == [([str(tmp_path / "y" / "host0.xplane.pb")], "trace_viewer", {})]


def test_hlo_text() -> None:
    assert hlo.group_size("x replica_groups=[4,2]<=[2,4]T(1,0), y") == 2
    assert hlo.group_size("replica_groups={{0,1,2,3},{4,5,6,7}}") == 4
    assert hlo.group_size("no groups") is None
    assert hlo.all_shapes("(bf16[2,3]{1,0}, f32[], pred[8])") == [12, 4, 8]
    assert (
        hlo.operand("%copy-done.2 = f32[4]{0} copy-done((f32[4], f32[4]{0:S(5)}, u32[]) %copy-start.7)")
        == "copy-start.7"
    )
    assert hlo.copy_direction("(f32[4]{0:S(5)}, f32[4]{0}, u32[])") == "D2H"
    assert hlo.copy_direction("(f32[4]{0}, f32[4]{0}, u32[])") == "D2D"


def test_all_to_all(tmp_path: Path) -> None:
    out = Xla()
    out.module(0, "jit_step", 0, MS)
    text = "%all-to-all.1 = s8[64,32]{1,0} all-to-all(s8[64,32]{1,0} %x), channel_id=3, replica_groups={{0,1,2,3}}"
    out.op(0, "all-to-all", 0, 10 * US, "all-to-all.1", long_name=text)
    out.write(tmp_path / "t.trace.json")
    assert value(compute(tmp_path), "bw_alltoall") == pytest.approx(3 / 4 * 64 * 32 / 10e-6 / 1e9)
    assert load(tmp_path).lanes[0].collectives.op.tolist() == [Op.ALLTOALL]


def _steps_of(last: int, path: Path) -> Path:
    """A profile of ten steps of 1 ms with two ops each, as if its writer had stopped after `last` events."""
    profile = Xla()
    for step in range(10):
        profile.module(0, "jit_train", step * MS, MS - 1000)
        profile.op(0, "convolution fusion", step * MS + 1000, MS // 2)
        profile.op(0, "all-reduce", step * MS + 600_000, MS // 10)
    named = [event for event in profile.events if event["ph"] == "M"]
    spans = sorted((event for event in profile.events if event["ph"] == "X"), key=lambda event: event["ts"])
    profile.events = named + spans[:last]
    return profile.write(path)


@pytest.mark.parametrize(("full", "steps"), [(True, 6), (False, 7)])
def test_steps_after_a_full_file_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool, steps: int
) -> None:
    """The seventh step has lost its all-reduce: its module is whole, its ops are not."""
    monkeypatch.setattr("metrics.traces.xla.events.WRITTEN_AT_MOST", 20 if full else 1000)
    monkeypatch.setattr("metrics.traces.xla.events._TIES", 0)
    _steps_of(20, tmp_path / "t.trace.json.gz")
    found = load(tmp_path)

    assert len(found.lanes[0].steps) == steps
    told = [warning for warning in found.warnings if "leaves out events after the first" in warning]
    assert len(told) == full and all("TF_PROFILER_TRACE_VIEWER_MAX_EVENTS" in warning for warning in told)
