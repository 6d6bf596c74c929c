"""What the study is: models, partitions, networks and message sizes, from the bundled data file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

from backends.network import Algorithm, Collective
from runs import catalogue
from runs.errors import BadInputError

Groups = tuple[tuple[int, ...], ...]
MAPPINGS = ("tp-ep", "ep-tp")
"""Which axis of the rank grid is fastest: tensor-parallel groups contiguous, or expert-parallel ones."""


@dataclass(frozen=True)
class StudyModel:
    """A model as the study's traces see it: layers, communication width, experts a token, width of an expert."""

    key: str
    title: str
    workload: str
    layers: int
    width: int
    experts_per_token: int
    expert_width: int
    checkpoint_gb: float | None = None


@dataclass(frozen=True)
class Setting:
    """Everything of a run but its place in the matrix; each field replaces a definition of the data file.

    gbps, latency: factors on classes of cables, as pairs. network: parameters of `NetworkParameters`, as pairs. gpu:
    factor on the speed of the GPUs. all_reduce, all_to_all: factors on message sizes. mapping: see `MAPPINGS`.
    """

    gbps: tuple[tuple[str, float], ...] = ()
    latency: tuple[tuple[str, float], ...] = ()
    network: tuple[tuple[str, float], ...] = ()
    gpu: float = 1.0
    all_reduce: float = 1.0
    all_to_all: float = 1.0
    mapping: str = "tp-ep"


@dataclass(frozen=True)
class Study:
    """The whole experiment as plain data: `data` is the bundled file."""

    data: dict[str, Any] = field(repr=False)
    models: tuple[StudyModel, ...] = ()

    @property
    def partitions(self) -> tuple[tuple[int, int], ...]:
        """(tp, ep) of every split of the ranks."""
        return tuple((tp, ep) for tp, ep in self.data["partitions"])

    @property
    def topologies(self) -> tuple[int, ...]:
        """Numbers of the server topologies."""
        return tuple(self.data["topologies"])

    @property
    def modes(self) -> tuple[str, ...]:
        """Network modes, transport and congestion control."""
        return tuple(self.data["modes"])

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The pairs of algorithms in the matrix."""
        return tuple(self.data["algorithms"])

    def pair(self, algorithm: str) -> tuple[str, str]:
        """Tensor-parallel and expert-parallel algorithm that `algorithm` names."""
        tensor, expert = {**self.data["algorithms"], **self.data["more_algorithms"]}[algorithm]
        return tensor, expert

    def model(self, key: str) -> StudyModel:
        """The model called `key`, which may be its workload.

        Raises:
            BadInputError: the study has no such model.
        """
        for model in self.models:
            if key.lower() in (model.key, model.workload):
                return model
        raise BadInputError(
            f"the MoE study has no model {key!r}", f"models: {', '.join(model.key for model in self.models)}"
        )

    def only(self, keys: list[str]) -> Study:
        """The study with these models, in its own order; all of them where `keys` is empty."""
        wanted = {self.model(key).key for key in keys}
        return replace(self, models=tuple(m for m in self.models if m.key in wanted)) if wanted else self


@cache
def study() -> Study:
    """The bundled study with all its models."""
    data = catalogue.data("moe_study")
    return Study(data, tuple(_model(key, entry) for key, entry in data["models"].items()))


def published() -> dict[str, Any]:
    """The figures and findings that the study reports, as plain data."""
    return catalogue.data("moe_study_published")


def _model(key: str, entry: dict[str, Any]) -> StudyModel:
    found = catalogue.workload(entry["workload"]).model
    return StudyModel(
        key=key,
        title=entry["title"],
        workload=entry["workload"],
        layers=found.num_layers,
        width=found.moe_latent_size or found.hidden_size,
        experts_per_token=found.num_experts_per_tok,
        expert_width=found.moe_intermediate_size or 0,
        checkpoint_gb=entry.get("checkpoint_gb"),
    )


def gpu_seconds(model: StudyModel, tp: int, ep: int, setting: Setting) -> float:
    """Seconds of computation in one layer (the formula of the data file, at the peak)."""
    what = study().data
    tokens, width = what["tokens"], model.width
    attention = (16 * tokens * width**2 + 4 * tokens**2 * width) / tp
    experts = 4 * tokens * model.experts_per_token * width * model.expert_width / ep
    return float((attention + experts) / (what["gpu"]["peak_tflops"] * 1e12 * setting.gpu))


@cache
def groups(tp: int, ep: int, mapping: str) -> tuple[Groups, Groups]:
    """Tensor-parallel and expert-parallel groups of all ranks.

    Raises:
        BadInputError: there is no such mapping.
    """
    if mapping not in MAPPINGS:
        raise BadInputError(f"no rank mapping is called {mapping!r}", f"mappings: {', '.join(MAPPINGS)}")
    if mapping == "ep-tp":
        expert, tensor = _grid(ep, tp)
        return tensor, expert
    return _grid(tp, ep)


def _grid(fast: int, slow: int) -> tuple[Groups, Groups]:
    """Groups along the fast axis, contiguous, and along the slow one, strided."""
    rows = tuple(tuple(range(row * fast, (row + 1) * fast)) for row in range(slow))
    columns = tuple(tuple(row * fast + column for row in range(slow)) for column in range(fast))
    return rows, columns


def all_reduce(model: StudyModel, tp: int, ep: int, algorithm: str, setting: Setting) -> Collective:
    """One tensor-parallel all-reduce of a layer, by all groups at once."""
    what = study().data
    nbytes = what["tokens"] * model.width * what["element_bytes"] * setting.all_reduce
    return Collective("all_reduce", nbytes, groups(tp, ep, setting.mapping)[0], cast("Algorithm", algorithm))


def all_to_all(model: StudyModel, tp: int, ep: int, algorithm: str, setting: Setting) -> Collective:
    """One dispatch or combine of a layer, by all expert-parallel groups at once."""
    what = study().data
    routed = what["tokens"] / ep * model.experts_per_token
    nbytes = routed * model.width * what["element_bytes"] * setting.all_to_all
    return Collective("all_to_all", nbytes, groups(tp, ep, setting.mapping)[1], cast("Algorithm", algorithm))
