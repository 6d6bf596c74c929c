"""`WorkloadCard`: one CCL-Bench card in memory, and what a search reads from it."""

from __future__ import annotations

from typing import Any

from runs.card.facts import environment_from, workload_from
from runs.card.normal import architecture_value, bandwidths, data_parallel, framework_name, framework_version
from runs.card.schema import (
    CardBlock,
    CommunicationLibrary,
    Data,
    Executor,
    Framework,
    Hardware,
    MetricSource,
    Model,
    NetworkTopology,
    Parallelization,
    WorkloadBlock,
    XpuSpec,
)
from runs.card.values import family, text, whole
from runs.environment import Environment
from runs.workload import Workload


class WorkloadCard(CardBlock):
    """A workload card. The properties give its blocks; one that the card lacks is an empty block."""

    @property
    def block(self) -> WorkloadBlock:
        """`workload`."""
        return self.workload_block or WorkloadBlock()

    @property
    def model(self) -> Model:
        """`workload.model`."""
        return self.block.model or Model()

    @property
    def data(self) -> Data:
        """`workload.data`."""
        return self.block.data or Data()

    @property
    def hardware(self) -> Hardware:
        """`workload.hardware`."""
        return self.block.hardware or Hardware()

    @property
    def network(self) -> NetworkTopology:
        """`workload.hardware.network_topo`."""
        return self.hardware.network_topo or NetworkTopology()

    @property
    def xpu(self) -> XpuSpec:
        """`workload.hardware.xpu_spec`."""
        return self.hardware.xpu_spec or XpuSpec()

    @property
    def executor(self) -> Executor:
        """`Model-executor`."""
        return self.executor_block or Executor()

    @property
    def framework(self) -> Framework:
        """`Model-executor.framework`."""
        return self.executor.framework or Framework()

    @property
    def plan(self) -> Parallelization:
        """`Model-executor.model_plan_parallelization`."""
        return self.executor.model_plan_parallelization or Parallelization()

    @property
    def library(self) -> CommunicationLibrary:
        """`Model-executor.communication_library`."""
        return self.executor.communication_library or CommunicationLibrary()

    @property
    def metrics(self) -> MetricSource:
        """`metric_source`."""
        return self.metric_source or MetricSource()

    def normalised(self) -> dict[str, Any]:
        """Nineteen values in one spelling and type (docs/cards.md), None where the card has no usable value."""
        scale_out, scale_up = bandwidths(self.network)
        return {
            "model_family": family(self.model.model_family),
            "phase": self.model.phase if isinstance(self.model.phase, str) else None,
            "batch_size": whole(self.data.batch_size),
            "seq_len": whole(self.data.seq_len),
            "xpu_model": self.xpu.model if isinstance(self.xpu.model, str) else None,
            "total_count": whole(self.xpu.total_count),
            "count_per_node": whole(self.xpu.count_per_node),
            "tp": whole(self.plan.tp),
            "dp": data_parallel(self.plan),
            "pp": whole(self.plan.pp),
            "cp": whole(self.plan.cp),
            "ep": whole(self.plan.ep),
            "framework_name": framework_name(self.framework),
            "framework_version": framework_version(self.framework),
            "scale_out_gbps": scale_out,
            "scale_up_gbps": scale_up,
            "num_params": whole(architecture_value(self.model, "num_params")),
            "num_layers": whole(architecture_value(self.model, "num_layers")),
            "num_heads": whole(architecture_value(self.model, "num_heads")),
        }

    def raw(self) -> dict[str, Any]:
        """What the card wrote where normalising changed it: the spelling of the family, a list of batches."""
        written = {"model_family": text(self.model.model_family)}
        differing = {key: value for key, value in written.items() if value and value != family(value)}
        batches = self.data.batch_size
        return differing | ({"batch_size": batches} if isinstance(batches, list) else {})

    def workload(self) -> Workload:
        """The workload, with the card's architecture numbers first and the catalogue's for the rest.

        `workload().model.source` says which number came from where.

        Raises:
            BadInputError: a fact a run needs is missing or unusable; the message names the field.
        """
        return workload_from(self.block)

    def environment(self) -> Environment:
        """The cluster slice and framework; bandwidths the card does not give as numbers above zero are None.

        Raises:
            BadInputError: the device is unknown, or a count is missing; the message names the field.
        """
        return environment_from(self.hardware, self.framework)
