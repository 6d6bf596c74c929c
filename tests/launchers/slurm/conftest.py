"""A real Slurm for the tests of this folder, started once for the session."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchers.shell.runner import LocalRunner
from launchers.slurm.launcher import SlurmLauncher
from launchers.slurm.settings import Polling, SlurmSettings
from tests.cluster.config import Layout, cgroups_usable
from tests.cluster.slurm import Cluster, ClusterError, missing_programs

REQUIRED = "CCL_SEARCH_REQUIRE_SLURM"
QUICK = Polling(first_s=0.2, longest_s=1.0, accounting_s=20.0, never_starts_s=0.5, absence_s=300.0)


def unavailable(reason: str) -> None:
    """Skip, or fail where Slurm must be there."""
    if os.environ.get(REQUIRED):
        pytest.fail(f"{REQUIRED} is set, but {reason}")
    pytest.skip(reason)


def _start(layout: Layout) -> Cluster:
    missing = missing_programs()
    if missing:
        unavailable(f"Slurm is not installed ({', '.join(missing)} not found): python -m tests.cluster install")
    cluster = Cluster(layout)
    try:
        cluster.start()
    except (ClusterError, OSError) as error:
        cluster.remove()
        unavailable(f"Slurm does not start here: {error}")
    return cluster


def _ports() -> int:
    """Ports of this process's own: several sessions may run on one machine."""
    return 17000 + os.getpid() % 400 * 40


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Four nodes of four GPUs with accounting; the one that `CCL_SEARCH_SLURM` names, if it is set."""
    running = os.environ.get("CCL_SEARCH_SLURM")
    if running:
        from tests.cluster.__main__ import DEFAULT_PORT

        yield _start(Layout(Path(running), DEFAULT_PORT, cgroups=cgroups_usable()))
        return
    directory = Path(tempfile.mkdtemp(prefix="ccl-slurm-"))
    directory.chmod(0o755)
    started = _start(Layout(directory, _ports(), cgroups=cgroups_usable()))
    yield started
    started.remove()


@pytest.fixture(scope="session")
def bare_cluster() -> Iterator[Cluster]:
    """Two nodes, no accounting, no cgroups."""
    directory = Path(tempfile.mkdtemp(prefix="ccl-bare-"))
    directory.chmod(0o755)
    started = _start(Layout(directory, _ports() + 20, accounting=False, nodes=2))
    yield started
    started.remove()
    shutil.rmtree(directory, ignore_errors=True)


class Site:
    """Launchers on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.runner = LocalRunner(cluster.environment)

    def launcher(self, **fields: object) -> SlurmLauncher:
        """A launcher as a new process would have it; quick polls."""
        return SlurmLauncher(SlurmSettings(polling=QUICK, **fields), runner=self.runner)  # type: ignore[arg-type]

    def on(self, *numbers: int) -> tuple[str, ...]:
        """sbatch options that choose nodes."""
        return (f"--nodelist={','.join(self.cluster.layout.node(number) for number in numbers)}",)


@pytest.fixture
def site(cluster: Cluster) -> Site:
    return Site(cluster)


@pytest.fixture
def bare_site(bare_cluster: Cluster) -> Site:
    return Site(bare_cluster)
