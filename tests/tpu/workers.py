"""Workers of a slice on this machine: real OpenSSH servers, each in namespaces of its own, like a slice's VMs."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

PORT = 22
_SSHD = "/usr/sbin/sshd"
# Own host name, processes, /tmp and home: nothing that the test's machine shares, and nothing between workers.
_BOOT = """set -e
hostname "t1v-n-$1-w-$2"
mount --bind "$3/tmp" /tmp
mount --bind "$3/home" /root
mkdir -p /run/sshd
while :; do
    [ -e "$3/off" ] || "$4" -D -f "$3/sshd_config" -E "$3/sshd.log" || true
    sleep 0.1
done
"""
_CONFIG = """ListenAddress {address}
Port {port}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {keys}
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 200
Subsystem sftp internal-sftp
SetEnv TPU_WORKER_ID={number}
"""


def hindrance() -> str:
    """Why workers cannot be started on this machine; empty where they can."""
    if os.geteuid() != 0:
        return "workers need root (namespaces, port 22)"
    missing = [name for name in (_SSHD, "ssh", "ssh-keygen", "unshare") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: openssh-server openssh-client util-linux)"
    probe = subprocess.run(["unshare", "--uts", "--mount", "--pid", "--fork", "true"], capture_output=True)
    return "" if probe.returncode == 0 else "namespaces are not allowed here"


@dataclass
class Worker:
    """One worker: its number, address and folder. It dies with everything it runs, as a preempted VM does."""

    number: int
    address: str
    folder: Path
    keys: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Boot it; what is on its disk stays."""
        for name in ("tmp", "home"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "tmp").chmod(0o1777)
        key = self.folder / "host_key"
        if not key.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        config = _CONFIG.format(address=self.address, port=PORT, folder=self.folder, keys=self.keys, number=self.number)
        (self.folder / "sshd_config").write_text(config)
        unshare = ["unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
        boot = ["bash", "-c", _BOOT, "boot", "test", str(self.number), str(self.folder), _SSHD]
        self.process = subprocess.Popen(
            [*unshare, *boot], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        """Switch it off: every process of it is gone at once."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def close_port(self) -> None:
        """Let nobody in for a while; jobs go on."""
        (self.folder / "off").touch()
        for pid in self.processes(f"{_SSHD} -D"):
            os.kill(pid, signal.SIGKILL)

    def open_port(self) -> None:
        """Undo `close_port`."""
        (self.folder / "off").unlink(missing_ok=True)
        self.ensure()

    def kill_process(self, pid: int) -> None:
        """Kill one of its processes, as the kernel does when memory runs out."""
        assert pid in self.processes("")
        os.kill(pid, signal.SIGKILL)

    def answers(self) -> bool:
        """Whether its ssh port is open."""
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((self.address, PORT)) == 0

    def ensure(self) -> None:
        """Boot it if it is off, and wait until it answers."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        deadline = time.monotonic() + 90
        while not self.answers():
            if time.monotonic() > deadline:
                raise RuntimeError(f"worker {self.number} does not come up: {self.log()}")
            time.sleep(0.05)

    def log(self) -> str:
        """What its ssh server wrote."""
        path = self.folder / "sshd.log"
        return path.read_text()[-2000:] if path.exists() else ""

    def processes(self, text: str) -> list[int]:
        """Pids (as this machine counts them) of its processes whose command line holds `text`."""
        if self.process is None:
            return []
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                same = (folder / "ns/uts").readlink() == self._uts()
            except (OSError, IndexError):  # ended meanwhile, or the worker is only just booting
                continue
            if same and text in command:
                found.append(int(folder.name))
        return found

    def _uts(self) -> Path:
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return Path(f"/proc/{children[0]}/ns/uts").readlink()


class Workers:
    """Several workers on addresses of their own (127.A.B.1, .2, ...), drawn from the folder's name."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.keys = folder / "authorized_keys"
        self.key = folder / "key"
        net = f"127.{10 + os.getpid() % 200}.{os.getpid() // 200 % 250}"
        folder.mkdir(parents=True, exist_ok=True)
        if not self.key.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
        self.allow(Path(f"{self.key}.pub").read_text())
        self.all = [Worker(i, f"{net}.{i + 1}", folder / f"w{i}", self.keys) for i in range(count)]

    @property
    def addresses(self) -> list[str]:
        """One address a worker."""
        return [worker.address for worker in self.all]

    def allow(self, public_key: str) -> None:
        """Let the owner of a key in."""
        with self.keys.open("a") as stream:
            stream.write(public_key.strip() + "\n")

    def ensure(self) -> None:
        """All are on and answer."""
        for worker in self.all:
            if worker.process is None:
                worker.start()
        for worker in self.all:
            worker.ensure()

    def stop(self) -> None:
        """All off, and their files gone."""
        for worker in self.all:
            worker.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def wipe(self) -> None:
        """What jobs left on the workers' disks is gone."""
        for worker in self.all:
            for name in ("home", "tmp"):
                for path in (worker.folder / name).glob("*"):
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
