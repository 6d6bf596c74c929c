"""Target files: where configs run, as YAML that the user writes once for a cluster (docs/targets.md)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from launchers.slurm.settings import SlurmSettings
from runs.errors import BadInputError
from runs.yaml_file import read_yaml

if TYPE_CHECKING:
    from launchers.base import Launcher
    from launchers.shell.runner import Runner
    from launchers.shell.script import Site

Kind = Literal["dry-run", "local", "slurm", "tpu-vm"]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_MODULES = {"dry-run": "launchers.dry_run", "tpu-vm": "launchers.tpu_vm"}


class SshSettings(BaseModel):
    """A login node: `host` is anything `ssh` accepts, `options` words for `ssh`, `setup` runs before each command."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(pattern=r"^[^-\s][^\s]*$")
    options: tuple[str, ...] = ()
    setup: str = ""


class TargetSettings(BaseModel):
    """One target. `kind` says which launcher runs it; the section of that name holds what the launcher needs.

    `setup`, `env` and `launch_prefix` are the site's part of every job's script, `framework` what the framework
    adapters need to know (where it is installed, which version; for all, or one mapping for each framework),
    `environment` the bundled one it stands for, `calibration` the simulator's for a search that screens (a name or a
    file; a stored run has its content here).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    kind: Kind
    description: str = ""
    environment: str | None = Field(None, description="name of a bundled environment, e.g. perlmutter-a100-16")
    calibration: str | dict[str, Any] | None = None
    setup: str = Field("", description="shell lines of every job before the command; a failing one ends the job")
    env: dict[VariableName, str] = Field(default_factory=dict)
    launch_prefix: tuple[str, ...] = ()
    framework: dict[str, Any] = Field(default_factory=dict)
    time_limit_s: float | None = Field(None, gt=0)
    queue_limit_s: float | None = Field(None, gt=0, description="give up a job that has not started by then")
    parallel: int = Field(1, ge=1, description="jobs in flight at once")
    ssh: SshSettings | None = None
    slurm: SlurmSettings | None = None
    dry_run: dict[str, Any] | None = None
    tpu_vm: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _sections_match(self) -> TargetSettings:
        given = {section for section in ("slurm", "dry_run", "tpu_vm") if getattr(self, section) is not None}
        strange = given - {self.kind.replace("-", "_")}
        if strange:
            raise ValueError(f"a target of kind {self.kind} has no section {', '.join(sorted(strange))}")
        _check_framework(self.framework)
        if self.ssh is not None and self.kind != "slurm":
            raise ValueError(f"a target of kind {self.kind} has no section ssh")
        return self

    @property
    def site(self) -> Site:
        """What the target adds to every job's script."""
        from launchers.shell.script import Site

        return Site(self.setup, self.env, self.launch_prefix)

    def runner(self) -> Runner:
        """Where Slurm's commands run."""
        from launchers.shell.runner import LocalRunner
        from launchers.shell.ssh import SshRunner

        directory = self.slurm.bin_dir if self.slurm is not None else None
        if self.ssh is None:
            return LocalRunner(bin_dir=directory)
        return SshRunner(self.ssh.host, self.ssh.options, self.ssh.setup, directory)


def load_target(path: Path) -> TargetSettings:
    """Read a target file.

    Raises:
        BadInputError: it cannot be read, is no YAML mapping (`read_yaml`), or a field is unknown or wrong; the message
            names it.
    """
    data = read_yaml(path, "the target file", "see targets/ for examples")
    if not isinstance(data, dict):
        raise BadInputError(f"{path} is no mapping of fields", "see targets/ for examples")
    return parse_target(data, str(path))


def parse_target(data: dict[str, Any], where: str) -> TargetSettings:
    """Check the content of a target file; `where` names it in messages.

    Raises:
        BadInputError: see `load_target`.
    """
    try:
        return TargetSettings.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise BadInputError(f"{where}: {place}: {first['msg']}{more}", _hint(first["loc"])) from error


def build_launcher(target: TargetSettings, within_allocation: bool = False) -> Launcher:
    """The launcher of a target; `within_allocation` uses the Slurm allocation that this process runs in.

    Raises:
        BadInputError: a setting is wrong, or `within_allocation` with another kind than slurm.
        TargetUnavailableError: there is no allocation.
    """
    if within_allocation and target.kind != "slurm":
        raise BadInputError(f"--within-allocation needs a slurm target, {target.name} is {target.kind}", "leave it out")
    if target.kind == "slurm":
        return _slurm(target, within_allocation)
    if target.kind == "local":
        from launchers.local import LocalLauncher

        return LocalLauncher(target.site)
    settings = dict((target.dry_run if target.kind == "dry-run" else target.tpu_vm) or {})
    if target.kind == "tpu-vm":
        settings = {"setup": target.setup, "env": target.env, "launch_prefix": target.launch_prefix, **settings}
    launcher: Launcher = import_module(_MODULES[target.kind]).from_settings(settings)
    return launcher


def _slurm(target: TargetSettings, within_allocation: bool) -> Launcher:
    settings = target.slurm or SlurmSettings()
    if within_allocation:
        from launchers.slurm.allocation import AllocationLauncher

        return AllocationLauncher(settings, target.site)
    from launchers.slurm.launcher import SlurmLauncher

    return SlurmLauncher(settings, target.site, target.runner())


def _check_framework(section: dict[str, Any]) -> None:
    from launchers import frameworks
    from launchers.frameworks.commands.settings import read_settings

    named = [name for name in section if isinstance(section[name], dict) and name in frameworks.names()]
    for name in named or ["torchtitan"]:
        try:
            read_settings(name, section)
        except BadInputError as error:
            raise ValueError(f"{error.message} ({error.hint})") from error


def _hint(location: tuple[int | str, ...]) -> str:
    model: type[BaseModel] = SlurmSettings if location[:1] == ("slurm",) else TargetSettings
    return f"fields: {', '.join(model.model_fields)}; docs/targets.md explains them"
