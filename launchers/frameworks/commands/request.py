"""What a command line is made from, and what all frameworks share: shapes, steps, versions, collective libraries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from launchers.frameworks.commands.eras import Era, pick
from launchers.frameworks.commands.settings import FrameworkSettings, read_settings
from launchers.frameworks.deployment import Deployment
from launchers.shell.command import Command, Slot, shape
from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.workload import Workload

WARMUP_STEPS = 5
PROFILED_STEPS = 5
DECODE_STEPS = 128
"""What the protocol of CCL-Bench asks of a trace (its section 3): warm-up, steps, and decode steps of a serving run."""
TRAINING_STEPS = {"warmup_steps": WARMUP_STEPS, "recorded_steps": PROFILED_STEPS}
COLLECTIVE_KNOBS = ("collective_algorithm", "collective_protocol", "communication_library")
_ALGORITHMS = {
    "auto": None, "ring": "Ring", "tree": "Tree", "collnet_direct": "CollnetDirect", "collnet_chain": "CollnetChain",
    "nvls": "NVLS", "nvls_tree": "NVLSTree", "pat": "PAT",
}  # fmt: skip
_PROTOCOLS = {"auto": None, "ll": "LL", "ll128": "LL128", "simple": "Simple"}


@dataclass(frozen=True)
class Request:
    """One config of one framework on one environment. `version` is empty where nobody names one.

    `notes` collects what the user should know. Without `profiled` the same run is asked for with its profiler off.
    """

    config: Mapping[str, Any]
    plan: ParallelPlan
    workload: Workload
    environment: Environment
    settings: FrameworkSettings
    era: Era
    version: str
    notes: list[str] = field(default_factory=list)
    profiled: bool = True

    @property
    def shape(self) -> tuple[int, int]:
        """(nodes, devices used on each)."""
        return shape(self.plan.world_size, self.environment.xpus_per_node)

    @property
    def knobs(self) -> dict[str, Any]:
        """The knobs that the framework's own arguments carry: all but those of the collective library."""
        return {key: value for key, value in self.config.items() if key not in COLLECTIVE_KNOBS}

    @property
    def chooses_collectives(self) -> bool:
        """Whether the config chooses how the collective library works, or which one it is."""
        return any(str(self.config.get(key, "auto")).lower() not in ("auto", "nccl") for key in COLLECTIVE_KNOBS)

    def choice(self, table: Mapping[str, Any], key: str, value: str) -> Any:
        """`table[value]`.

        Raises:
            BadInputError: there is no such entry; the message names `key`.
        """
        if value not in table:
            raise BadInputError(
                f"{self.era.framework} ({self.era.name}) cannot run {key} {value}", f"it knows {', '.join(table)}"
            )
        return table[value]


def request_for(framework: str, deployment: Deployment, profiled: bool = True) -> Request:
    """The request for a config. The version is the target's, else the card's, else the era file's default.

    Raises:
        BadInputError: a setting is wrong, or the plan does not run the workload's global batch.
    """
    settings = read_settings(framework, deployment.settings)
    plan, workload, environment = deployment.plan, deployment.workload, deployment.environment
    if plan.global_batch != workload.batch_size:
        raise BadInputError(
            f"the plan runs {plan.global_batch} sequences a step, the workload has {workload.batch_size}",
            "the global batch is the workload's; choose dp and micro_batch_size that divide it",
        )
    named = settings.version or environment.framework_version
    era, warning = pick(framework, named)
    notes = [text for text in (warning, era.more.get("note")) if text]
    if not named and framework != "command":
        notes.append(f"no version of {framework} is named: arguments are those of {era.name}")
    return Request(deployment.config, plan, workload, environment, settings, era, named, notes, profiled)


def finish(
    made: Request,
    argv: list[str],
    env: Mapping[str, str],
    traces: int | None,
    files: Mapping[str, str] | None = None,
    per_node: bool = True,
    collective: Mapping[str, str] | None = None,
    steps: Mapping[str, int] | None = None,
) -> Command:
    """The command of a request: the user's extra words at the end, the user's variables over the framework's own.

    Variables of the config (`collective`, by default `collective_env`) stand over both, so that what a trial is named
    after is what it runs. `steps` are those of training unless given.
    """
    nodes, xpus = made.shape
    collective = collective_env(made) if collective is None else collective
    command = Command(
        argv=(*argv, *made.settings.extra),
        env={**made.era.env, **env, **made.settings.env, **collective},
        trace_globs=made.era.traces,
        trace_count=traces,
        per_node=per_node,
        nodes=nodes,
        xpus_per_node=xpus,
        working_dir=made.settings.path,
        files=dict(files or {}),
        framework_version=" ".join(filter(None, (made.era.framework, made.version, f"({made.era.name})"))),
        notes=tuple(made.notes),
        steps=dict(TRAINING_STEPS if steps is None else steps),
    )
    return command if made.profiled else _without_profiler(command, made.era)


def _without_profiler(command: Command, era: Era) -> Command:
    """The command without the words, or the program lines, that switch the profiler on; it leaves no traces."""
    switches = set(era.profiler)
    files = {
        name: "".join(line for line in text.splitlines(keepends=True) if line.strip() not in switches)
        for name, text in command.files.items()
    }
    argv = tuple(word for word in command.argv if word not in switches)
    return replace(command, argv=argv, files=files, trace_globs=(), trace_count=None)


def torchrun(made: Request, *program: str) -> list[str]:
    """The words that start one process a device on every node; `program` is `-m MODULE` or a script.

    On one node the processes meet at a port of their own choosing; on several at the job's first node.
    """
    nodes, xpus = made.shape
    words = [*made.settings.torchrun, f"--nnodes={nodes}", f"--nproc-per-node={xpus}"]
    if nodes == 1:
        return [*words, "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", *program]
    words += [f"--node-rank={Slot.NODE_RANK}", f"--master-addr={Slot.MASTER_ADDR}", f"--master-port={Slot.MASTER_PORT}"]
    return [*words, *program]


def collective_env(made: Request) -> dict[str, str]:
    """Variables of the collective library: its algorithm, protocol, and the library that stands in for NCCL.

    Raises:
        BadInputError: a value is unknown, the target does not say where the library is, or there is no NCCL.
    """
    config = {key: made.config[key] for key in COLLECTIVE_KNOBS if made.config.get(key, "auto") != "auto"}
    if config and made.environment.device.xpu_type != "GPU":
        raise BadInputError(
            f"{', '.join(config)} cannot be chosen on a {made.environment.device.xpu_type}", "only NCCL takes it"
        )
    found: dict[str, str] = {}
    if "collective_algorithm" in config:
        found["NCCL_ALGO"] = made.choice(_ALGORITHMS, "collective_algorithm", str(config["collective_algorithm"]))
    if "collective_protocol" in config:
        found["NCCL_PROTO"] = made.choice(_PROTOCOLS, "collective_protocol", str(config["collective_protocol"]))
    return found | _library(made, str(config.get("communication_library", "nccl")).lower())


def known_collectives(made: Request) -> dict[str, str]:
    """As `collective_env` for a program that may take other values too: those that NCCL knows, without refusals."""
    tables = {"collective_algorithm": ("NCCL_ALGO", _ALGORITHMS), "collective_protocol": ("NCCL_PROTO", _PROTOCOLS)}
    if made.environment.device.xpu_type != "GPU":
        return {}
    found = {name: table.get(str(made.config.get(key))) for key, (name, table) in tables.items()}
    return {name: value for name, value in found.items() if value is not None}


def _library(made: Request, name: str) -> dict[str, str]:
    if name == "nccl":
        return {}
    path = made.settings.libraries.get(name)
    if path is None:
        raise BadInputError(
            f"communication_library={name!r}: the target does not say where it is",
            f"add `libraries: {{{name}: /path/to/its/libnccl.so}}` to the framework's section of the target file",
        )
    variable = str(made.era.more.get("library_variable", "LD_PRELOAD"))
    return {variable: path}
