"""`CardFacts`: what metrics need to know of the workload and the machines. Every fact is optional; a tool says what
it lacks."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.workload import Workload

if TYPE_CHECKING:
    from runs.card import WorkloadCard


@dataclass(frozen=True)
class CardFacts:
    """Facts of a workload card. Counts of parameters are elements; `batch_size` is the global batch in sequences.

    `peak_bf16_flops` is the dense BF16 peak of one device in FLOP/s. `total_xpus` is how many devices the job used.
    """

    phase: str | None = None
    moe: bool | None = None
    batch_size: int | None = None
    seq_len: int | None = None
    input_len: int | None = None
    output_len: int | None = None
    num_params: int | None = None
    num_active_params: int | None = None
    num_params_embedding: int | None = None
    num_layers: int | None = None
    num_heads: int | None = None
    head_dim: int | None = None
    device: str | None = None
    peak_bf16_flops: float | None = None
    total_xpus: int | None = None
    dp: int | None = None
    pp: int | None = None
    framework: str | None = None

    @classmethod
    def of(
        cls,
        workload: Workload | None = None,
        environment: Environment | None = None,
        plan: ParallelPlan | None = None,
    ) -> CardFacts:
        """Facts from the product's own types; the plan's world size is the number of devices used."""
        facts = cls()
        if workload is not None:
            facts = replace(facts, **_workload_facts(workload))
        if environment is not None:
            facts = replace(facts, **_environment_facts(environment))
        if plan is not None:
            facts = replace(facts, total_xpus=plan.world_size, dp=plan.dp, pp=plan.pp, framework=plan.framework)
        return facts

    @classmethod
    def from_card(cls, card: WorkloadCard) -> CardFacts:
        """Facts of a workload card. A card that gives its architecture in part is completed with the bundled model it
        names; one that gives none stays without, so that no value rests on numbers nobody wrote down."""
        facts = cls(**_card_facts(card))
        if facts.num_layers is None or (facts.num_params or facts.num_active_params) is None:
            return facts
        try:
            known = _workload_facts(card.workload())
        except BadInputError:
            return facts
        gaps = {name: value for name, value in known.items() if getattr(facts, name) is None}
        return replace(facts, **gaps)

    @classmethod
    def from_card_yaml(cls, path: Path) -> CardFacts:
        """Facts of a workload card file; what neither the card nor the catalogue says stays None.

        Raises:
            BadInputError: the file cannot be read, or is no workload card.
        """
        from runs.card import load_card

        return cls.from_card(load_card(path).card)

    def lacking(self, *names: str) -> list[str]:
        """Which of these facts are unknown."""
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        return [name for name in names if known[name] is None]


def _workload_facts(workload: Workload) -> dict[str, Any]:
    model = workload.model
    return {
        "phase": workload.phase, "moe": model.moe, "batch_size": workload.batch_size, "seq_len": workload.seq_len,
        "input_len": workload.input_len, "output_len": workload.output_len, "num_params": model.num_params,
        "num_active_params": model.num_active_params, "num_layers": model.num_layers, "num_heads": model.num_heads,
        "num_params_embedding": model.num_params_embedding or _embedding(model.vocab_size, model.hidden_size),
        "head_dim": model.head_dim,
    }  # fmt: skip


def _embedding(vocab: int | None, hidden: int | None) -> int | None:
    return vocab * hidden if vocab and hidden else None


def _environment_facts(environment: Environment) -> dict[str, Any]:
    name = environment.device.name
    return {
        "device": name, "total_xpus": environment.total_xpus, "framework": environment.framework or None,
        "peak_bf16_flops": bf16_peak(name) or environment.device.peak_flops("bf16"),
    }  # fmt: skip


def bf16_peak(device: str) -> float | None:
    """Dense BF16 FLOP/s of a device by its catalogue name or a card's spelling; None for a device that is not known."""
    from runs import catalogue

    try:
        found = catalogue.device(device)
    except BadInputError:
        return None
    return found.peak_flops("bf16")


_ARCHITECTURE = ("num_active_params", "num_params_embedding", "head_dim")


def _card_facts(card: WorkloadCard) -> dict[str, Any]:
    from runs.card.normal import architecture_value

    known = card.normalised()
    device = known["xpu_model"]
    return {
        **{name: known[name] for name in ("phase", "batch_size", "seq_len", "num_params", "num_layers", "num_heads")},
        **{name: _count(architecture_value(card.model, name)) for name in _ARCHITECTURE},
        "moe": card.model.moe if isinstance(card.model.moe, bool) else None,
        "input_len": _count(card.data.input_len), "output_len": _count(card.data.output_len),
        "device": device, "peak_bf16_flops": bf16_peak(device) if device else None,
        "total_xpus": known["total_count"], "dp": known["dp"], "pp": known["pp"], "framework": known["framework_name"],
    }  # fmt: skip


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
