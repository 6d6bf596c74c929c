"""A login node over OpenSSH: the user's own configuration and jump hosts apply, one connection is shared."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launchers.shell.quoting import export
from launchers.shell.runner import Completed, execute

_CONNECTION_FAILED = 255
_FETCH_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class SshRunner:
    """Runs commands on `host` (anything `ssh` accepts: an alias of the user's configuration, user@host).

    `setup` is shell text run before every command (`module load slurm`), `bin_dir` is searched for programs first,
    `options` are words for `ssh` itself. Passwords and second factors are never asked for: open the shared
    connection by hand once (docs/targets.md), or use a key.
    """

    host: str
    options: tuple[str, ...] = ()
    setup: str = ""
    bin_dir: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The host, for messages."""
        return self.host

    def command(self, remote: str) -> tuple[str, ...]:
        """The `ssh` command line that runs a shell text on the host."""
        socket = f"ControlPath={control_folder()}/%C"
        flags = ["BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=15", "ServerAliveCountMax=3"]
        flags += ["ControlMaster=auto", "ControlPersist=600", socket]
        chosen = [word for flag in flags for word in ("-o", flag)]
        return ("ssh", "-T", *self.options, *chosen, "--", self.host, remote)

    def run(self, argv: Sequence[str], stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """See `Runner`. A connection that cannot be made counts as no answer (`code` None)."""
        done = execute(self.command(self._text(argv)), stdin, timeout_s, dict(os.environ))
        code, err = done.code, done.err
        if code == _CONNECTION_FAILED:
            code, err = None, f"ssh {self.host}: {done.complaint}"
        return Completed(tuple(argv), code, done.out, err, done.seconds)

    def write(self, path: str, text: str) -> Completed:
        """See `Runner`."""
        text_of_shell = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1.tmp" && mv -f -- "$1.tmp" "$1"'
        return self.run(("sh", "-c", text_of_shell, "sh", path), stdin=text)

    def read(self, path: str) -> str | None:
        """See `Runner`."""
        done = self.run(("cat", "--", path))
        return done.out if done.ok else None

    def fetch(self, source: str, target: Path) -> Completed:
        """See `Runner`: one tar stream through the shared connection."""
        started = time.monotonic()
        target.mkdir(parents=True, exist_ok=True)
        packing = self.command(self._text(("tar", "-C", source, "-czf", "-", ".")))
        with tempfile.TemporaryFile() as complaints:
            sender = subprocess.Popen(
                packing, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, start_new_session=True
            )
            unpacking = ["tar", "-C", str(target), "-xzf", "-"]
            try:
                done = subprocess.run(
                    unpacking, stdin=sender.stdout, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S
                )
                code: int | None = sender.wait(timeout=30) or done.returncode
            except subprocess.TimeoutExpired:
                sender.kill()
                code = None
            complaints.seek(0)
            err = complaints.read().decode("utf-8", errors="replace")
        return Completed(("fetch", source), code, "", err, time.monotonic() - started)

    def _text(self, argv: Sequence[str]) -> str:
        lines = [self.setup.strip()] if self.setup.strip() else []
        lines += ["export LC_ALL=C SLURM_TIME_FORMAT=standard", "unset SQUEUE_FORMAT SACCT_FORMAT SINFO_FORMAT"]
        lines += [export(name, value) for name, value in self.environment.items()]
        if self.bin_dir:
            lines.append(f'PATH={shlex.quote(self.bin_dir)}:"$PATH"')
        return "\n".join([*lines, "exec " + shlex.join(argv)])


def control_folder() -> Path:
    """Where the sockets of shared connections live; short, because socket paths may have about 100 characters."""
    folder = Path(tempfile.gettempdir()) / f"ccl-ssh-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
