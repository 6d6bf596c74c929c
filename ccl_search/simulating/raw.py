"""Traces in the files of ASTRA-sim on the built-in simulator, or on ASTRA-sim itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ccl_search.simulating import DEFAULT_USE, ProgramUse
from runs.errors import BadInputError

if TYPE_CHECKING:
    from backends.exchange.inputs import AstraInputs
    from backends.exchange.raw import RawResult
    from backends.network.parameters import CongestionControl

RAW_BACKENDS = ("flow", "astra-sim", "astra-sim-ns3")


@dataclass(frozen=True)
class RawFiles:
    """The files that describe a run: traces `PREFIX.RANK.et`, the system, and one of the two kinds of network."""

    et: Path | None = None
    system: Path | None = None
    network: Path | None = None
    physical: Path | None = None
    groups: Path | None = None
    memory: Path | None = None
    logical: Path | None = None
    ns3_config: Path | None = None

    @property
    def given(self) -> bool:
        """Whether any of them is named."""
        return any(path is not None for path in vars(self).values())

    def load(self) -> AstraInputs:
        """Read them.

        Raises:
            BadInputError: one that is needed is not named, or a file is missing or malformed.
        """
        from backends.exchange.inputs import load_inputs

        if self.et is None or self.system is None:
            raise BadInputError(
                f"{'--et' if self.et is None else '--system'} is missing", "name the traces and the system file"
            )
        return load_inputs(
            self.et,
            self.system,
            network=self.network,
            physical=self.physical,
            comm_group=self.groups,
            remote_memory=self.memory,
            logical=self.logical,
            ns3_config=self.ns3_config,
        )


def simulate_raw(
    files: RawFiles, control: str | None = None, backend: str = RAW_BACKENDS[0], program: ProgramUse = DEFAULT_USE,
) -> RawResult:  # fmt: skip
    """Run the traces; `control` (none, dcqcn, hpcc, timely, dctcp) overrides the NS-3 configuration.

    Raises:
        CostError: ns-3 would take longer than the limit of `program`.
        BadInputError: the inputs cannot be run (one line with file, node and reason), the backend or the congestion
            control is unknown, or the latter is asked of the analytical network, which has none.
        TargetUnavailableError: nothing names ASTRA-sim's program.
        CclSearchError: the run took no time, or ASTRA-sim did not end it.
    """
    from backends.exchange.raw import run

    if backend not in RAW_BACKENDS:
        raise BadInputError(f"no backend for traces is called {backend!r}", f"choose one of {', '.join(RAW_BACKENDS)}")
    chosen = _control(control)
    if control is not None and files.network is not None:
        raise BadInputError("--cc goes with --physical-topology; network.yml has no congestion control", "leave it out")
    program.check(backend)
    if backend != RAW_BACKENDS[0]:
        return _astra(files, chosen, backend, program)
    return run(files.load(), chosen)


def _astra(
    files: RawFiles, control: CongestionControl | None, backend: str, program: ProgramUse
) -> RawResult:  # fmt: skip
    """The traces on the user's own ASTRA-sim."""
    from backends.astra.dry_run import read_settings
    from backends.astra.simulate import InputPaths, simulate_inputs
    from backends.network.parameters import CongestionControl

    if control is not None and files.ns3_config is not None:
        raise BadInputError("--cc and --ns3-config both name a congestion control", "give one of them")
    inputs, settings = files.load(), read_settings(backend, program.settings)
    assert files.et is not None
    assert files.system is not None
    paths = InputPaths(
        files.et, files.system, files.network, files.physical, files.groups, files.memory, files.logical,
        files.ns3_config, control or CongestionControl.NONE,
    )  # fmt: skip
    found = simulate_inputs(
        inputs, paths, settings.program, engine=settings.engine, limits=settings.limits, announce=program.announce
    )
    return found.raw()


def _control(name: str | None) -> CongestionControl | None:
    from backends.network.parameters import CongestionControl

    if name is None:
        return None
    try:
        return CongestionControl(name)
    except ValueError as error:
        known = ", ".join(each.value for each in CongestionControl)
        raise BadInputError(f"no congestion control is called {name!r}", f"choose one of {known}") from error


def write_raw_traces(result: RawResult, folder: Path) -> tuple[Path, ...]:
    """Write the run as Kineto trace files into `folder`, one for each class of ranks with the same timeline.

    Raises:
        BadInputError: `folder` is a file or holds traces already.
        OSError: it cannot be written.
    """
    from backends.exchange.timeline import write_traces
    from ccl_search.simulating import check_trace_folder

    check_trace_folder(folder)
    return write_traces(result, folder)
