"""A container engine in the small: what it is asked to start really runs, and sees only what is mounted.

Installed under the name `docker` it takes `run`, `exec` and `kill`, as `apptainer` it takes `exec`. Paths of the inner
command and its working folder must lie below a mount whose source exists; they are translated to it. As with Docker,
the inner program belongs to a daemon: it outlives the client, and as the first process of its container it ignores a
polite end. Apptainer's are children of the client.

CONTAINER_STATE names the folder of the daemon: `images` holds a folder for each image (its root), `containers` one for
each container that `exec` may enter.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_STATE = Path(os.environ["CONTAINER_STATE"])
_VALUED = {"--name", "-v", "--volume", "-w", "--workdir", "--user", "--bind", "--pwd", "-e"}


def main() -> int:
    """Do what the client is asked to; its exit code."""
    engine, verb, *words = Path(sys.argv[0]).name, *sys.argv[1:]
    (_STATE / "calls").open("a").write(" ".join([engine, verb, *words]) + "\n")
    if verb == "kill":
        return _kill(words[0])
    options, rest = _options(words)
    mounts = [_mount(text) for name in ("-v", "--volume", "--bind") for text in options.get(name, [])]
    image, *inner = rest
    root = _STATE / ("images" if verb == "run" or engine == "apptainer" else "containers") / image
    if not root.is_dir():
        return _refuse(f"no such image or container: {image}")
    if verb == "exec" and engine == "docker":
        mounts = [_mount(line) for line in (root / "mounts").read_text().split()]
    folder = (options.get("-w") or options.get("--workdir") or options.get("--pwd") or ["/"])[0]
    cwd = _seen(folder, mounts, root)
    if not cwd.is_dir() or not os.access(cwd, os.W_OK):
        return _refuse(f"{folder} is not there or cannot be written")
    command = [word if not word.startswith("/") else str(_seen(word, mounts, root)) for word in inner]
    if "/" in command[0] and not Path(command[0]).is_file():
        return _refuse(f"{inner[0]}: no such file in the container", 127)
    return _start(command, cwd, engine, (options.get("--name") or [""])[0])


def _options(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    found: dict[str, list[str]] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        name, _, value = rest.pop(0).partition("=")
        if name in _VALUED:
            found.setdefault(name, []).append(value or rest.pop(0))
    return found, rest


def _mount(text: str) -> tuple[Path, str]:
    source, target, *_ = [*text.split(":"), text]
    if not Path(source).is_dir():
        raise SystemExit(_refuse(f"mount source {source} does not exist"))
    return Path(source), target


def _seen(path: str, mounts: list[tuple[Path, str]], root: Path) -> Path:
    """Where a path of the container is here: below its mount, else in the image."""
    for source, target in mounts:
        if path == target or path.startswith(target.rstrip("/") + "/"):
            return source / path[len(target) :].lstrip("/")
    return root / path.lstrip("/")


def _start(command: list[str], cwd: Path, engine: str, name: str) -> int:
    daemon = engine == "docker"
    ignoring = (lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN)) if daemon else None  # type: ignore[truthy-function]
    child = subprocess.Popen(command, cwd=cwd, start_new_session=daemon, preexec_fn=ignoring)
    running = _STATE / "running" / (name or f"unnamed-{child.pid}")
    running.parent.mkdir(exist_ok=True)
    running.write_text(str(child.pid))
    if daemon:
        signal.signal(signal.SIGTERM, lambda number, _frame: child.send_signal(number))
    code = child.wait()
    running.unlink(missing_ok=True)
    return code if code >= 0 else 128 - code


def _kill(name: str) -> int:
    running = _STATE / "running" / name
    if not running.is_file():
        return _refuse(f"no such container: {name}", 1)
    os.killpg(int(running.read_text()), signal.SIGKILL)
    for _ in range(100):
        if not running.is_file():
            break
        time.sleep(0.02)
    return 0


def _refuse(text: str, code: int = 125) -> int:
    sys.stderr.write(f"{Path(sys.argv[0]).name}: {text}\n")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
