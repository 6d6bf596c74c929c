"""Where the user's ASTRA-sim programs are, how they are started, and what is known of their version."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from runs.digests import file_sha256, text_sha256
from runs.errors import BadInputError, TargetUnavailableError

Engine = Literal["unaware", "aware", "ns3"]
ANALYTICAL, NS3 = "astra-sim", "astra-sim-ns3"
BACKENDS = (ANALYTICAL, NS3)
VARIABLES = {ANALYTICAL: "ASTRA_SIM_ANALYTICAL", NS3: "ASTRA_SIM_NS3"}

_FILES: dict[Engine, str] = {
    "unaware": "AstraSim_Analytical_Congestion_Unaware",
    "aware": "AstraSim_Analytical_Congestion_Aware",
    "ns3": "*AstraSimNetwork*",
}
_WORDS: dict[Engine, str] = {"unaware": "Unaware", "aware": "Aware", "ns3": ""}
_ENGINES = ("docker", "podman", "nerdctl")
_DIGEST = 12


@dataclass(frozen=True)
class Program:
    """One way to start ASTRA-sim.

    `words` is the command before the flags. In every word `{cwd}` becomes the folder of the run as the program sees it,
    `{name}` a name that no other run has, `{congestion}` `Aware` or `Unaware`. `stop` is the command that ends a run
    which signals do not reach (a container), with the same replacements; `docker run` needs none. `paths` maps
    folders here to where the program sees them; the longest match counts. `source` says who named the program.
    """

    backend: str
    words: tuple[str, ...]
    stop: tuple[str, ...] = ()
    paths: tuple[tuple[str, str], ...] = ()
    source: str = ""

    @property
    def is_container(self) -> bool:
        """Whether the program is started through another command, such as `docker run`."""
        return len(self.words) > 1

    def engine(self, preferred: Engine) -> Engine:
        """What runs when `preferred` is asked for: a program whose name says which it is can be nothing else."""
        if self.backend == NS3:
            return "ns3"
        if any("{congestion}" in word for word in self.words) or self._folder is not None:
            return preferred
        last = Path(self.words[-1]).name
        if "Unaware" in last:
            return self._sibling(preferred) or "unaware"
        return self._sibling(preferred) or "aware" if "Aware" in last else preferred

    def line(self, engine: Engine, cwd: Path, name: str) -> list[str]:
        """The words that start `engine` in the run folder `cwd` under `name`.

        Raises:
            TargetUnavailableError: the program is not there.
        """
        words = [_filled(word, self.seen(cwd), name, engine) for word in self._named]
        if not self.is_container:
            words[0] = str(self._file(engine))
        elif shutil.which(words[0]) is None:
            raise TargetUnavailableError(f"{words[0]} of {self.source} cannot be started", "install it, or correct it")
        return words

    def stop_line(self, engine: Engine, cwd: Path, name: str) -> list[str]:
        """The words that end the run; empty where signals are enough.

        They are not where an engine's daemon runs the program: without a `stop` it is killed by its name.
        """
        stop = self.stop
        if not stop and self._is_daemons:
            stop = (self.words[0], "kill", _container_name(self._named))
        return [_filled(word, self.seen(cwd), name, engine) for word in stop]

    @property
    def _is_daemons(self) -> bool:
        """Whether `docker run` or the like starts the program, which then outlives its client."""
        return self.is_container and Path(self.words[0]).name in _ENGINES and self.words[1] == "run"

    @property
    def _named(self) -> tuple[str, ...]:
        """The words, with a name for the container where it would have none."""
        if not self._is_daemons or _container_name(self.words):
            return self.words
        return (*self.words[:2], "--name", "{name}", *self.words[2:])

    def seen(self, path: Path) -> str:
        """`path` as the program sees it."""
        text = str(path)
        found = [(here, there) for here, there in self.paths if text == here or text.startswith(here.rstrip("/") + "/")]
        if not found:
            return text
        here, there = max(found, key=lambda pair: len(pair[0]))
        return there.rstrip("/") + text[len(here.rstrip("/")) :]

    def version(self, engine: Engine) -> str:
        """What is known of the program: engine, digest of its file, ns-3 release, commit of the checkout it lies in.

        For a container it is a digest of the command, which names the image. Raises what `line` raises.
        """
        if self.is_container:
            digest = text_sha256("\0".join(self.words))[:_DIGEST]
            return f"{_label(engine)} command:{digest}"
        path = self._file(engine)
        stat = path.stat()
        parts = [_label(engine, path.name), f"sha256:{_file_digest(path, stat.st_size, stat.st_mtime_ns)}"]
        commit = _commit(path)
        return " ".join([*parts, f"commit:{commit}"] if commit else parts)

    @property
    def _folder(self) -> Path | None:
        path = Path(self.words[0])
        return path if not self.is_container and path.is_dir() else None

    def _sibling(self, engine: Engine) -> Engine | None:
        """`engine` where its file lies beside the named one."""
        beside = not self.is_container and (Path(self.words[0]).parent / _FILES[engine]).is_file()
        return engine if beside else None

    def _file(self, engine: Engine) -> Path:
        named = Path(self.words[0])
        if self._folder is not None:
            found = [path for path in named.rglob(_FILES[engine]) if os.access(path, os.X_OK) and path.is_file()]
            found.sort(key=lambda path: (not path.name.endswith("-default"), path))  # optimized ones were seen to crash
            if not found:
                raise TargetUnavailableError(
                    f"{named} of {self.source} has no program {_FILES[engine]}", "build ASTRA-sim, or name the file"
                )
            return found[0].resolve()
        path = named.parent / _FILES[engine] if self._sibling(engine) and engine != "ns3" else named
        if not path.is_file() or not os.access(path, os.X_OK):
            raise TargetUnavailableError(
                f"{path} of {self.source} is no program", f"name {_FILES[engine]} or its folder"
            )
        return path.resolve()


def _container_name(words: tuple[str, ...]) -> str:
    """What follows `--name`; empty where nothing does."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--name":
            return following
        if word.startswith("--name="):
            return word.removeprefix("--name=")
    return ""


def _filled(word: str, cwd: str, name: str, engine: Engine) -> str:
    return word.replace("{cwd}", cwd).replace("{name}", name).replace("{congestion}", _WORDS[engine])


def _label(engine: Engine, name: str = "") -> str:
    if engine != "ns3":
        return f"analytical congestion-{engine}"
    release = re.match(r"ns(3[.\d]*\d)-.*-(\w+)$", name)
    return f"ns-{release[1]} {release[2]}" if release else "ns-3"


@lru_cache(maxsize=16)
def _file_digest(path: Path, _size: int, _changed: int) -> str:
    return file_sha256(path)[:_DIGEST]


def _commit(path: Path) -> str | None:
    """The commit that the checkout around `path` is at, if there is one and it says."""
    for folder in path.parents:
        head = folder / ".git" / "HEAD"
        if not head.is_file():
            continue
        text = head.read_text(encoding="utf-8", errors="replace").strip()
        reference = folder / ".git" / text.removeprefix("ref: ")
        if text.startswith("ref: "):
            text = reference.read_text(encoding="utf-8").strip() if reference.is_file() else ""
        return text[:_DIGEST] if re.fullmatch(r"[0-9a-f]{40,64}", text) else None
    return None


def from_variable(backend: str, environ: Mapping[str, str] | None = None) -> Program | None:
    """The program that the environment variable of `backend` names, None where it is unset.

    The variable is a file, a folder in which the programs lie, or a whole command with what `Program` replaces.

    Raises:
        BadInputError: it is a command that cannot be split into words.
    """
    variable = VARIABLES[backend]
    text = (os.environ if environ is None else environ).get(variable, "").strip()
    if not text:
        return None
    if Path(text).expanduser().exists():
        return Program(backend, (str(Path(text).expanduser()),), source=variable)
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise BadInputError(f"{variable} is no command: {error}", "quote its words as a shell needs them") from error
    return Program(backend, words, source=variable)


def find(
    backend: str, settings: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
) -> Program:
    """The program of `backend`: what `settings` (`command`, `stop`, `paths` of a target file) say, else the variable.

    Raises:
        BadInputError: a setting has the wrong form.
        TargetUnavailableError: nothing names a program.
    """
    command = (settings or {}).get("command")
    if command is not None:
        return _from_settings(backend, settings or {})
    found = from_variable(backend, environ)
    if found is None:
        raise TargetUnavailableError(
            f"the backend {backend} needs ASTRA-sim's own program, and nothing names one",
            f"set {VARIABLES[backend]} to its file, folder or container command, or use --backend flow "
            "(docs/astra_sim.md)",
        )
    return found


def _from_settings(backend: str, settings: Mapping[str, object]) -> Program:
    command = settings["command"]
    words = (command,) if isinstance(command, str) else command
    stop, paths = settings.get("stop", ()), settings.get("paths", {})
    if not _is_words(words) or not words or not _is_words(stop) or not isinstance(paths, Mapping):
        raise BadInputError(
            f"{backend}: command and stop are lists of words, paths maps folders to folders", "see docs/astra_sim.md"
        )
    mapped = tuple((str(Path(str(here)).expanduser()), str(there)) for here, there in paths.items())
    return Program(backend, tuple(words), tuple(stop), mapped, "the target file")  # type: ignore[arg-type]


def _is_words(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(word, str) and word for word in value)
