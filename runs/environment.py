"""The machines as typed facts (`Device`, `Environment`) and as the dict a policy receives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Device:
    """One accelerator. `peak_tflops` maps a precision to dense TFLOP/s; bandwidths are GB/s (1e9 bytes)."""

    name: str
    xpu_type: Literal["GPU", "TPU"]
    peak_tflops: dict[str, float]
    memory_gb: float
    memory_bandwidth_gb_s: float
    source: str = ""

    def peak_flops(self, precision: str) -> float:
        """Dense FLOP/s at `precision`; the bf16 figure where the precision has none of its own."""
        return 1e12 * self.peak_tflops.get(precision, self.peak_tflops["bf16"])


@dataclass(frozen=True)
class Environment:
    """A cluster slice and the framework on it.

    `intra_node_gbps`: scale-up bandwidth of one device, one direction, Gb/s. `inter_node_gbps`: scale-out bandwidth
    of one NIC, Gb/s; `nics_per_node` of them per node. Latencies in microseconds, one hop. `topology` is a name in
    the catalogue of network topologies, or free text from a card.
    """

    name: str
    device: Device
    total_xpus: int
    xpus_per_node: int
    intra_node_gbps: float | None
    inter_node_gbps: float | None
    nics_per_node: int = 1
    intra_node_latency_us: float = 1.0
    inter_node_latency_us: float = 3.0
    topology: str = ""
    framework: str = ""
    framework_version: str = ""
    driver_version: str = ""
    memory_gb: float | None = None
    source: str = ""
    extras: dict[str, Any] = field(default_factory=dict)

    @property
    def device_memory_gb(self) -> float:
        """Nominal memory of one device, in the GiB that vendors label GB: the card's figure, else the device's."""
        return self.memory_gb if self.memory_gb is not None else self.device.memory_gb

    @property
    def num_nodes(self) -> int:
        """Nodes needed for all devices."""
        return -(-self.total_xpus // self.xpus_per_node)

    def policy_input(self) -> dict[str, Any]:
        """The `environment` dict of a policy; unset facts are absent, never None."""
        facts: dict[str, Any] = {
            "gpu_model": self.device.name,
            "gpu_memory_gb": self.device_memory_gb,
            "total_gpus": self.total_xpus,
            "gpus_per_node": self.xpus_per_node,
            "intra_node_bandwidth_gbps": self.intra_node_gbps,
            "inter_node_bandwidth_gbps": self.inter_node_gbps,
            "network_topology": self.topology or None,
            "framework": self.framework or None,
            "framework_version": self.framework_version or None,
            "xpu_type": self.device.xpu_type,
        }
        return {key: value for key, value in facts.items() if value is not None}
