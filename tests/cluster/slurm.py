"""A real Slurm on this machine: `python -m tests.cluster start|stop|env|status|install` (Debian or Ubuntu packages)."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.cluster import config
from tests.cluster.config import Layout

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurmdbd", "munge", "mariadb-server", "openssh-server")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "slurmdbd", "munged", "mariadbd")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class ClusterError(RuntimeError):
    """The cluster cannot do what was asked; the message ends with the logs."""


def missing_programs() -> list[str]:
    """Programs of a Slurm installation that this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]


def install() -> None:
    """Install the Debian packages; nothing is started by their scripts."""
    if not missing_programs() and shutil.which("sshd", path=PATH):
        return
    policy = Path("/usr/sbin/policy-rc.d")
    made = not policy.exists()
    if made:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES]
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    finally:
        if made:
            policy.unlink()


class Cluster:
    """One controller and several node daemons, with or without accounting. Everything lies under its directory."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """What clients need in their environment."""
        return {"SLURM_CONF": str(self.layout.slurm_conf)}

    # --- the whole --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start what does not run yet and wait until every node can take a job."""
        self._write()
        self._start_munge()
        if self.layout.accounting:
            self._start_database()
            self._start_accounting()
        self.start_controller()
        for number in range(1, self.layout.nodes + 1):
            self._start_daemon(self.layout.node(number), ["slurmd", "-D", "-N", self.layout.node(number)])
        self._await(180, self._nodes_ready, "the nodes do not come up")

    def stop(self) -> None:
        """End every job and every daemon."""
        if self._alive("slurmctld"):
            self.client("scancel", "--quiet", "-u", getpass.getuser(), check=False)
            self._await(60, lambda: not self.client("squeue", "-h", "-t", "R,CG", check=False), None)
        nodes = [self.layout.node(number) for number in range(1, self.layout.nodes + 1)]
        for name in nodes:
            self._kill(name, signal.SIGTERM)
        for number in range(1, self.layout.nodes + 1):
            self._kill_steps(number)
        for name in ("slurmctld", "slurmdbd", "mariadbd", "munged"):
            self._kill(name, signal.SIGTERM)
        for name in nodes:
            self._remove_cgroups(name)

    def remove(self) -> None:
        """Stop, and delete every file."""
        self.stop()
        shutil.rmtree(self.layout.directory, ignore_errors=True)

    # --- faults -----------------------------------------------------------------------------------------------------

    def stop_controller(self) -> None:
        self._kill("slurmctld", signal.SIGTERM)

    def start_controller(self) -> None:
        """A controller that starts again does not know at once whether its nodes are there."""
        self._start_daemon("slurmctld", ["slurmctld", "-D", "-i"])
        self._await(120, lambda: "UP" in self.client("scontrol", "ping", check=False), "slurmctld does not answer")
        if all(self._alive(self.layout.node(number)) for number in range(1, self.layout.nodes + 1)):
            self._await(180, self._nodes_ready, "the nodes do not come back")

    def down_node(self, number: int) -> None:
        """Kill a node with all it runs, and let the controller know at once."""
        self._kill(self.layout.node(number), signal.SIGKILL)
        self._kill_steps(number)
        name = f"nodename={self.layout.node(number)}"
        self.client("scontrol", "update", name, "state=down", "reason=killed by a test")

    def start_node(self, number: int) -> None:
        name = self.layout.node(number)
        self._start_daemon(name, ["slurmd", "-D", "-N", name])
        if not self._await(5, lambda: self._ready(name), None):
            self.client("scontrol", "update", f"nodename={name}", "state=resume", check=False)
        self._await(180, lambda: self._ready(name), f"{name} does not come up")

    # --- clients ----------------------------------------------------------------------------------------------------

    def client(self, *argv: str, check: bool = True, text: str | None = None) -> str:
        """The output of a Slurm command."""
        environment = {**os.environ, **self.environment, "PATH": PATH, "LC_ALL": "C"}
        done = subprocess.run(argv, input=text, capture_output=True, text=True, env=environment, timeout=60)
        if check and done.returncode:
            raise ClusterError(f"{argv}: exit code {done.returncode}: {done.stderr}")
        return done.stdout.strip()

    def _ready(self, node: str) -> bool:
        state = self.client("sinfo", "-h", "-p", "main", "-n", node, "-o", "%T", check=False)
        return state in ("idle", "mixed", "allocated")

    def _nodes_ready(self) -> bool:
        states = self.client("sinfo", "-h", "-N", "-p", "main", "-o", "%T", check=False).split()
        return len([state for state in states if state in ("idle", "mixed", "allocated")]) == self.layout.nodes

    # --- pieces -----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        d = self.layout.directory
        for name in ("etc", "run", "log", "state", "spool", "dev"):
            (d / name).mkdir(parents=True, exist_ok=True)
        for number in range(1, self.layout.nodes + 1):
            (d / "spool" / self.layout.node(number)).mkdir(exist_ok=True)
        for number in range(self.layout.gpus):
            link = d / "dev" / f"nvidia{number}"
            if not link.is_symlink():
                link.symlink_to("/dev/null")
        key = d / "etc" / "munge.key"
        if not key.exists():
            key.write_bytes(secrets.token_bytes(128))
            key.chmod(0o600)
        (d / "etc" / "gres.conf").write_text(config.gres_conf(self.layout))
        if self.layout.cgroups:
            (d / "etc" / "cgroup.conf").write_text(config.CGROUP_CONF)
        dbd = d / "etc" / "slurmdbd.conf"
        dbd.write_text(config.slurmdbd_conf(self.layout))
        dbd.chmod(0o600)
        self.layout.slurm_conf.write_text(config.slurm_conf(self.layout))

    def _start_munge(self) -> None:
        d = self.layout.directory
        flags = {"key-file": d / "etc" / "munge.key", "socket": self.layout.munge_socket}
        flags |= {"pid-file": d / "run" / "munged.own-pid", "log-file": d / "log" / "munged.log"}
        flags |= {"seed-file": d / "run" / "munged.seed"}
        argv = ["munged", "--foreground", "--force", "--num-threads=2", *(f"--{k}={v}" for k, v in flags.items())]
        self._start_daemon("munged", argv)
        self._await(60, self.layout.munge_socket.exists, "munged does not open its socket")

    def _sql(self, text: str) -> bool:
        argv = ["mariadb", "--no-defaults", f"--socket={self.layout.database_socket}", "-u", getpass.getuser()]
        done = subprocess.run([*argv, "-e", text], capture_output=True, env={**os.environ, "PATH": PATH})
        return done.returncode == 0

    def _start_database(self) -> None:
        d, user = self.layout.directory, getpass.getuser()
        if not (d / "db" / "mysql").is_dir():
            argv = ["mariadb-install-db", "--no-defaults", f"--datadir={d}/db", f"--user={user}", "--skip-test-db"]
            argv += ["--auth-root-authentication-method=socket", f"--auth-root-socket-user={user}"]
            argv += ["--skip-name-resolve", "--innodb-log-file-size=8M"]
            subprocess.run(argv, check=True, capture_output=True, env={**os.environ, "PATH": PATH})
        argv = ["mariadbd", "--no-defaults", f"--user={user}", f"--datadir={d}/db"]
        argv += [f"--socket={self.layout.database_socket}", f"--pid-file={d}/run/db.own-pid"]
        argv += ["--bind-address=127.0.0.1", f"--port={self.layout.database_port}", "--skip-name-resolve"]
        argv += ["--skip-log-bin", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=8M"]
        argv += ["--innodb-flush-log-at-trx-commit=0", "--performance-schema=OFF", "--innodb-lock-wait-timeout=900"]
        self._start_daemon("mariadbd", argv)
        self._await(120, lambda: self._sql("select 1"), "mariadbd does not answer")
        self._sql(
            "create database if not exists slurm_acct; create user if not exists slurm@'127.0.0.1' "
            "identified by 'slurm'; grant all on slurm_acct.* to slurm@'127.0.0.1';"
        )

    def _start_accounting(self) -> None:
        self._start_daemon("slurmdbd", ["slurmdbd", "-D"])
        self._await(120, self._accounting_answers, "slurmdbd does not answer")
        done = self.layout.directory / "run" / "accounts-made"
        if done.exists():
            return
        for arguments in config.accounts(self.layout):
            self.client("sacctmgr", "-i", *arguments, check=False)
        if "urgent" not in self.client("sacctmgr", "-nP", "show", "assoc", "format=user,qos"):
            raise ClusterError("sacctmgr did not make the accounts")
        done.touch()

    def _accounting_answers(self) -> bool:
        environment = {**os.environ, **self.environment, "PATH": PATH}
        argv = ["sacctmgr", "-n", "list", "cluster"]
        return subprocess.run(argv, capture_output=True, env=environment, timeout=30).returncode == 0

    # --- processes --------------------------------------------------------------------------------------------------

    def _pid(self, name: str) -> int | None:
        path = self.layout.directory / "run" / f"{name}.pid"
        return int(path.read_text()) if path.exists() else None

    def _alive(self, name: str) -> bool:
        """A pid counts only while it belongs to a program of this cluster: pids are used again."""
        pid = self._pid(name)
        if pid is None:
            return False
        if pid in self._children:
            return self._children[pid].poll() is None
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] != "Z" and str(self.layout.slurm_conf).encode() in environment

    def _start_daemon(self, name: str, argv: list[str]) -> None:
        if self._alive(name):
            return
        log = self.layout.directory / "log" / f"{name}.out"
        environment = {**os.environ, **self.environment, "PATH": PATH}
        with log.open("ab") as stream:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=environment, start_new_session=True
            )
        self._children[child.pid] = child
        (self.layout.directory / "run" / f"{name}.pid").write_text(str(child.pid))

    def _kill(self, name: str, with_signal: signal.Signals) -> None:
        pid = self._pid(name)
        if pid is None or not self._alive(name):
            return
        os.kill(pid, with_signal)
        if not self._await(15, lambda: not self._alive(name), None):
            os.kill(pid, signal.SIGKILL)
            self._await(5, lambda: not self._alive(name), None)

    def _kill_steps(self, number: int) -> None:
        """Kill what job steps a node runs: step daemons outlive a killed node daemon, a dead node's do not.

        All are stopped before the first is killed: on a node that dies, no process lives to see another one end.
        """
        processes = [pid for daemon in self._step_daemons(number) for pid in stop_tree(daemon)]
        for pid in processes:
            _signal(pid, signal.SIGKILL)

    def _step_daemons(self, number: int) -> Iterator[int]:
        log = str(self.layout.directory / "log" / f"{self.layout.node(number)}.log")
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if (process / "comm").read_text().strip() != "slurmstepd":
                    continue
                opened = {str(link.readlink()) for link in (process / "fd").iterdir()}
            except OSError:
                continue
            if log in opened:
                yield int(process.name)

    def _remove_cgroups(self, node: str) -> None:
        for top in Path("/sys/fs/cgroup").glob(f"*/slurm_{node}"):
            folders = sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True)
            for folder in [*folders, top]:
                try:
                    folder.rmdir()
                except OSError:
                    return

    def _await(self, seconds: float, condition: Callable[[], bool], failure: str | None) -> bool:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                if failure is None:
                    return False
                raise ClusterError(f"{failure}\n{self._logs()}")
            time.sleep(0.1)
        return True

    def _logs(self) -> str:
        parts = []
        for path in sorted((self.layout.directory / "log").iterdir()):
            lines = path.read_text(errors="replace").splitlines()[-8:]
            parts.append("\n".join([f"--- {path.name}", *lines]))
        return "\n".join(parts)


def stop_tree(pid: int) -> list[int]:
    """SIGSTOP a process and everything below it, from the top down; all of them."""
    _signal(pid, signal.SIGSTOP)
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    return [pid, *(below for child in children for below in stop_tree(int(child)))]


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
