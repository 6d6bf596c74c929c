"""A login node for launcher tests: a real sshd on loopback."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchers.shell import ssh as ssh_module
from launchers.shell.ssh import SshRunner

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def _unavailable(reason: str) -> None:
    if os.environ.get("CCL_SEARCH_REQUIRE_SLURM"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def login() -> Iterator[SshRunner]:
    """A real sshd on loopback with keys of its own."""
    if SSHD is None or shutil.which("ssh-keygen") is None:
        _unavailable("the server of OpenSSH is not installed (Debian: openssh-server)")
    if os.getuid() != 0:
        pytest.skip("sshd runs as root here")
    assert SSHD is not None
    folder = Path(tempfile.mkdtemp(prefix="ccl-ssh-test-"))
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    Path("/run/sshd").mkdir(exist_ok=True)
    config = [f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {folder}/host", f"PidFile {folder}/pid"]
    config += [f"AuthorizedKeysFile {folder}/user.pub", "StrictModes no", "PermitRootLogin yes", "UsePAM no"]
    (folder / "sshd_config").write_text("\n".join(config) + "\n")
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=subprocess.DEVNULL)
    options = ["-F", "none", "-p", str(port), "-i", str(folder / "user"), "-o", "StrictHostKeyChecking=no"]
    options += ["-o", f"UserKnownHostsFile={folder}/known", "-o", "LogLevel=ERROR"]
    runner = SshRunner(f"{getpass.getuser()}@127.0.0.1", tuple(options))
    deadline = time.monotonic() + 20
    while not runner.run(("true",)).ok:
        assert time.monotonic() < deadline, "sshd does not answer"
        time.sleep(0.1)
    yield runner
    subprocess.run(["ssh", *options, "-o", f"ControlPath={ssh_module.control_folder()}/%C", "-O", "exit", runner.host])
    server.terminate()
    server.wait()
    shutil.rmtree(folder)
