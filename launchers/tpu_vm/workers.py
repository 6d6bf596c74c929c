"""The data plane: plain OpenSSH to every worker at once, each with its own exit code and time limit."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from launchers.shell.runner import Completed, clean_environment, execute

_CONNECTION_FAILED = 255
_AT_ONCE = 32
_KNOWN_HOSTS = "~/.ssh/ccl_search_known_hosts"
_OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=10", "ServerAliveCountMax=3")
_ANSWER = re.compile(r"^CCL (\w+) ?(.*)$", re.MULTILINE)
T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """What a worker said: a word and what follows it. `word` is empty where it could not be reached or said nothing."""

    word: str
    rest: str = ""
    complaint: str = ""


@dataclass(frozen=True)
class Workers:
    """One ssh command line for every worker, to which the remote command is appended."""

    commands: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.commands)

    def ask(self, texts: Mapping[int, str], timeout_s: float) -> dict[int, Answer]:
        """Run a shell text on each worker named, all at once; what each answered."""
        return self._each(texts, lambda worker, text: read_answer(self._run(worker, text, timeout_s)))

    def fetch(self, texts: Mapping[int, str], targets: Mapping[int, Path], timeout_s: float) -> dict[int, str]:
        """Unpack into `targets` the tar that each text writes; an error text a worker, empty where it is well."""
        return self._each(texts, lambda worker, text: self._fetch(worker, text, targets[worker], timeout_s))

    def _each(self, texts: Mapping[int, str], call: Callable[[int, str], T]) -> dict[int, T]:
        if not texts:
            return {}
        with ThreadPoolExecutor(min(_AT_ONCE, len(texts))) as pool:
            calls = {worker: pool.submit(call, worker, text) for worker, text in texts.items()}
            return {worker: pending.result() for worker, pending in calls.items()}

    def command(self, worker: int) -> tuple[str, ...]:
        """The command line that runs a shell text, read from stdin, on a worker."""
        program, *words = self.commands[worker]
        flags = [word for option in _OPTIONS for word in ("-o", option)]
        return (program, *flags, *words, "bash -s")

    def _run(self, worker: int, text: str, timeout_s: float) -> Completed:
        return execute(self.command(worker), text, timeout_s, clean_environment(os.environ))

    def _fetch(self, worker: int, text: str, target: Path, timeout_s: float) -> str:
        with tempfile.TemporaryFile() as packed, tempfile.TemporaryFile() as complaints:
            try:
                done = subprocess.run(
                    self.command(worker),
                    input=text.encode(),
                    stdout=packed,
                    stderr=complaints,
                    timeout=timeout_s,
                    env=clean_environment(os.environ),
                )
            except (subprocess.TimeoutExpired, OSError) as error:
                return f"worker {worker}: {error}"
            if done.returncode:
                complaints.seek(0)
                return f"worker {worker}: {complaints.read().decode(errors='replace').strip()[-300:]}"
            packed.seek(0, 2)
            if packed.tell() == 0:
                return ""
            packed.seek(0)
            return _unpack(packed, target, worker)


def read_answer(done: Completed) -> Answer:
    """The last line of an answer that carries the mark: what a login script prints before does not count."""
    if done.code is None or done.code == _CONNECTION_FAILED:
        return Answer("", "", done.complaint)
    found = _ANSWER.findall(done.out)
    if not found:
        return Answer("", "", f"no answer: {done.complaint}")
    word, rest = found[-1]
    return Answer(word, rest)


def direct_commands(
    addresses: Sequence[str],
    user: str | None,
    key: str | None = None,
    port: int | None = None,
    options: Sequence[str] = (),
    alias: str = "",
) -> list[list[str]]:
    """`ssh ... --` for each address. `alias` is the name of a new slice: addresses are used again, host keys are not.

    Host keys of new slices are trusted at first sight and kept in a file of their own, by that name.
    """
    words = ["ssh", "-T", *options]
    words += ["-i", str(Path(key).expanduser())] if key else []
    words += ["-p", str(port)] if port else []
    words += ["-o", "StrictHostKeyChecking=accept-new"]
    words += ["-o", f"UserKnownHostsFile={_KNOWN_HOSTS}"] if alias else []
    commands = []
    for number, address in enumerate(addresses):
        own = ["-o", f"HostKeyAlias={alias}-{number}"] if alias else []
        commands.append([*words, *own, f"{user}@{address}" if user else address, "--"])
    return commands


def _unpack(packed: object, target: Path, worker: int) -> str:
    """Files and folders of a tar, nothing else: no links, no devices, nothing outside `target`."""
    try:
        with tarfile.open(fileobj=packed, mode="r:gz") as archive:  # type: ignore[call-overload]
            for member in archive:
                parts = PurePosixPath(member.name).parts
                if not member.isfile() or not parts or ".." in parts or member.name.startswith("/"):
                    continue
                _write(archive, member, target.joinpath(*parts))
    except (tarfile.TarError, EOFError, OSError) as error:
        return f"worker {worker}: its files cannot be unpacked: {error}"
    return ""


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = archive.extractfile(member)
    if source is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        while block := source.read(2**20):
            stream.write(block)
