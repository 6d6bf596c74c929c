"""Every bundled tool keeps the contract; the registry, third-party tools, retractions, and the example of the docs."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import types
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from metrics import compute, registry
from metrics.facts import CardFacts
from metrics.retraction import Retraction, retracted, retractions
from metrics.testing import MetricToolContract, sample_trace
from metrics.tool import MetricTool, Options
from metrics.traces.timeline import Timeline
from runs.errors import BadInputError
from runs.metric import Direction, MetricSpec, MetricValue
from tests.metrics.build import Kineto

ROOT = Path(__file__).resolve().parents[2]
TABLE_3 = {
    "avg_step_time": ("s", "minimize"), "mfu": ("%", "maximize"), "ttft": ("s", "minimize"), "tpot": ("s", "minimize"),
    "mean_sm_coverage": ("%", "maximize"), "dominant_kernel_concentration": ("%", "minimize"),
    "compute_bound_fraction": ("%", "maximize"), "memory_bound_fraction": ("%", "minimize"),
    "moe_fraction": ("%", "minimize"),
    "average_memory_bandwidth": ("GB/s", "maximize"), "memory_transfer_overhead": ("%", "minimize"),
    "communication_fraction": ("%", "minimize"), "total_communication_time": ("s", "minimize"),
    "compute_comm_overlap": ("%", "maximize"), "load_imbalance_ratio": ("ratio", "minimize"),
    "straggler": ("ratio", "minimize"),
    "bw_allgather": ("GB/s", "maximize"), "bw_allreduce": ("GB/s", "maximize"),
    "bw_reducescatter": ("GB/s", "maximize"),
    "bw_alltoall": ("GB/s", "maximize"), "bw_peertopeer": ("%", "maximize"), "scale_up_bw_utility": ("%", "maximize"),
}  # fmt: skip


@pytest.mark.parametrize("name", registry.BUNDLED)
class TestBundledTools(MetricToolContract):
    """The contract suite, once for each bundled tool."""

    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        type(self).tool = registry.tool(name)

    def test_is_named_as_it_is_registered(self, name: str) -> None:
        assert self.tool.SPEC.name == name

    def test_variants_do_not_break_it(self, name: str) -> None:
        for variant in registry.variants(name):
            self.check(self.answer(sample_trace(), Options("sound", variant)))


# the class-level parametrize hands `name` to every inherited test
for _test in [t for t in dir(MetricToolContract) if t.startswith("test_")]:

    def _bind(inherited: Any) -> Any:
        def run(self: Any, name: str) -> None:
            inherited(self)

        run.__doc__ = inherited.__doc__
        return run

    setattr(TestBundledTools, _test, _bind(getattr(MetricToolContract, _test)))


def test_the_catalogue_of_the_paper() -> None:
    for name, (unit, direction) in TABLE_3.items():
        spec = registry.spec(name)
        assert (spec.unit, spec.direction.value) == (unit, direction), name
    assert set(TABLE_3) <= set(registry.BUNDLED)
    assert len(set(registry.BUNDLED)) == len(registry.BUNDLED)


def test_aliases() -> None:
    declared = {alias: spec.name for spec in map(registry.spec, registry.BUNDLED) for alias in spec.aliases}
    assert declared == dict(registry.ALIASES)
    assert registry.tool("step_time") is registry.tool("avg_step_time")


def test_unknown_names() -> None:
    with pytest.raises(BadInputError, match="no metric is called 'nonsense'"):
        registry.tool("nonsense")
    with pytest.raises(BadInputError, match="there is no rule"):
        compute("/nowhere", rule="odd")  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="no metric asked for has a variant 'odd'"):
        compute("/nowhere", variant="odd")


def test_the_registry_is_cheap() -> None:
    code = "import sys, metrics.registry; assert metrics.registry.BUNDLED; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"


# --- third parties ----------------------------------------------------------------------------------------------------


def install(monkeypatch: pytest.MonkeyPatch, **modules: Any) -> None:
    """Pretend that a package offers these tools."""
    points = {}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"third_party_{name}", module)
        points[name] = EntryPoint(name, f"third_party_{name}", registry.GROUP)
    monkeypatch.setattr(registry, "plugins", lambda: points)


def module(**members: Any) -> types.ModuleType:
    made = types.ModuleType("third_party")
    vars(made).update(members)
    return made


def trace(folder: Path) -> Path:
    made = Kineto()
    made.step(0, 0, 2_000_000)
    made.kernel("gemm", 0, 1_000_000, launch=1)
    made.write(folder / "rank0.json")
    return folder


def test_a_failing_tool_does_not_cost_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> MetricValue:
        raise ZeroDivisionError("oh")

    install(monkeypatch, broken=module(SPEC=MetricSpec("broken", "1.0.0", "s", Direction.MINIMIZE), compute=fail))
    found = compute(trace(tmp_path))
    assert found["broken"].reason == "the tool failed: ZeroDivisionError: oh"
    assert found["avg_step_time"].value == pytest.approx(2e-3)


def test_what_is_no_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, odd=module())
    with pytest.raises(BadInputError, match=r"the metric odd .* has no SPEC and compute"):
        registry.tool("odd")
    other = MetricSpec("another", "1.0.0", "s", Direction.MINIMIZE)
    install(monkeypatch, odd=module(SPEC=other, compute=lambda *_: None))
    with pytest.raises(BadInputError, match=r"the metric odd .* calls itself another"):
        registry.tool("odd")
    install(monkeypatch, gone=None)
    with pytest.raises(BadInputError, match=r"the metric gone .* cannot be loaded"):
        registry.tool("gone")


def test_a_tool_that_cannot_be_loaded_does_not_cost_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, gone=None)
    found = compute(trace(tmp_path))
    assert "the metric gone (third_party_gone) cannot be loaded" in (found["gone"].reason or "")
    assert found["avg_step_time"].value == pytest.approx(2e-3)


def docs_example() -> str:
    """The Python block of the docs that defines a metric tool."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return next(block for block in blocks if "SPEC = MetricSpec" in block)


def test_the_example_of_the_docs_is_a_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = types.ModuleType("third_party_longest_kernel")
    exec(compile(docs_example(), "docs/metrics.md", "exec"), vars(example))
    install(monkeypatch, longest_kernel=example)
    assert compute(trace(tmp_path), metrics=["longest_kernel"])["longest_kernel"].value == pytest.approx(1e-3)

    class TestExample(MetricToolContract):
        tool = example  # type: ignore[assignment]

    for name in [t for t in dir(TestExample) if t.startswith("test_")]:
        getattr(TestExample(), name)()


def test_the_contract_catches_broken_tools() -> None:
    """A suite that nothing fails is worth nothing: each of these breaks one rule."""
    spec = MetricSpec("bad", "1.0.0", "s", Direction.MINIMIZE)

    def suite(compute_it: Any, doc: str = "A metric.") -> MetricToolContract:
        made = MetricToolContract()
        made.tool = module(SPEC=spec, compute=compute_it, __doc__=doc)  # type: ignore[misc,assignment]
        return made

    def first_start(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
        starts = [int(lane.kernels.start.min()) for lane in trace.lanes if len(lane.kernels)]
        return MetricValue.of(spec, min(starts)) if starts else MetricValue.none(spec, "none")

    def mutating(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
        for lane in trace.lanes:
            lane.kernels.start = lane.kernels.start * 0
        return MetricValue.of(spec, 1.0)

    def crashing(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
        return MetricValue.of(spec, trace.lanes[0].kernels.start[0])

    def other_unit(facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
        return MetricValue("bad", "1.0.0", "ms", 1.0)

    with pytest.raises(AssertionError):
        suite(first_start).test_clock_origin_is_irrelevant()
    with pytest.raises(AssertionError, match=r"kernels\.start changed"):
        suite(mutating).test_leaves_the_trace_alone()
    with pytest.raises(IndexError):
        suite(crashing).test_answers_traces_without_content()
    with pytest.raises(AssertionError):
        suite(other_unit).test_value_or_reason()
    with pytest.raises(AssertionError, match="docstring"):
        suite(first_start, "").test_documents_itself()


# --- retractions ------------------------------------------------------------------------------------------------------


def test_a_retraction_covers_its_versions_alone() -> None:
    table = (Retraction("tpot", ("0.9.0", "1.0.0"), "the last step was left out", "1.0.1"),)
    assert retracted("tpot", "1.0.0", table) is table[0]
    assert retracted("tpot", "1.0.1", table) is None
    assert retracted("ttft", "1.0.0", table) is None
    assert retracted("anything", "2.0", (Retraction("*", ("2.0",), "reader"),)) is not None


def test_no_present_version_is_retracted() -> None:
    assert [name for name in registry.BUNDLED if retracted(name, registry.spec(name).version)] == []
    assert isinstance(retractions(), tuple)


def test_third_parties_can_retract(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = MetricSpec("theirs", "2.0.0", "s", Direction.MINIMIZE)
    gone = Retraction("theirs", ("1.0.0",), "wrong unit")
    install(monkeypatch, theirs=module(SPEC=spec, compute=lambda *_: None, RETRACTED=(gone,)))
    retractions.cache_clear()
    try:
        assert retracted("theirs", "1.0.0") is gone
    finally:
        retractions.cache_clear()


def test_the_docs_name_every_metric_and_variant() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    for name in registry.BUNDLED:
        assert f"`{name}`" in text, name
        assert all(f"`{variant}`" in text for variant in registry.variants(name)), name


def test_tools_are_tools() -> None:
    assert all(isinstance(registry.tool(name), MetricTool) for name in registry.BUNDLED)
    assert textwrap.dedent(registry.tool("mfu").__doc__ or "").startswith("Model FLOPs utilization")
