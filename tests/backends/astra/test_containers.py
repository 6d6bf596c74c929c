"""ASTRA-sim in a container: the command of the page starts it, mounts hold, hangs end, exit codes come through."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from backends.astra.driver import AstraRunError
from backends.astra.process import Limits
from backends.astra.programs import ANALYTICAL, NS3, Program, find, from_variable
from backends.astra.simulate import simulate_files
from tests.backends.astra import traces as make

_HERE = Path(__file__).parent
_DOCKER = "docker run --rm --user 1000 -v {cwd}:/run -w /run astra /app/AstraSim_Analytical_Congestion_{congestion}"
_NAMED = _DOCKER.replace("--rm", "--rm --name {name}")
_APPTAINER = "apptainer exec --bind {cwd}:/run --pwd /run astra /app/AstraSim_Analytical_Congestion_{congestion}"
_LIMITS = Limits(wall_s=60.0, linger_s=20.0, grace_s=0.2)
_HASTY = Limits(wall_s=2.0, linger_s=0.2, grace_s=0.2)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the daemon, with an image that has the programs; `docker` and `apptainer` are on the path."""
    state, programs = tmp_path / "daemon", tmp_path / "bin"
    programs.mkdir()
    for name in ("docker", "apptainer"):
        _script(programs / name, (_HERE / "container.py").read_text(encoding="utf-8"))
    for word in ("Aware", "Unaware"):
        _image(
            state, f"AstraSim_Analytical_Congestion_{word}", f'exec {sys.executable} {_HERE}/small_simulator.py "$@"'
        )
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CONTAINER_STATE", str(state))
    monkeypatch.setenv("PYTHONPATH", str(_HERE.parents[2]))
    return state


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
    path.chmod(0o755)


def _image(state: Path, name: str, text: str, folder: str = "images") -> None:
    path = state / folder / "astra/app" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def _program(command: str) -> Program:
    found = from_variable(ANALYTICAL, {"ASTRA_SIM_ANALYTICAL": command})
    assert found is not None
    return found


def _run(folder: Path, program: Program, limits: Limits = _LIMITS) -> Any:
    place = folder / "in"
    place.mkdir()
    return simulate_files(
        make.write(place, [[make.work(1, 7), make.collective(2, 4096, (1,))]] * 2), program, limits=limits
    )


def _left(state: Path) -> list[str]:
    """What still runs in containers."""
    found = sorted((state / "running").glob("*")) if (state / "running").is_dir() else []
    return [path.name for path in found if Path(f"/proc/{path.read_text()}").exists()]


@pytest.mark.parametrize("command", [_DOCKER, _NAMED, _APPTAINER])
def test_the_program_runs_on_what_is_mounted(command: str, engine: Path, tmp_path: Path) -> None:
    found = _run(tmp_path, _program(command))
    assert found.run.wall_ns == 8000  # 7 µs of work, a collective of a microsecond
    assert found.run.ended.code == 0
    assert found.missing == 0
    assert _left(engine) == []


@pytest.mark.parametrize("command", [_DOCKER, _NAMED, _APPTAINER])
def test_a_hang_is_ended_inside_the_container(command: str, engine: Path, tmp_path: Path) -> None:
    """Signals end the client only, and the first process of a container ignores a polite one."""
    _image(engine, "AstraSim_Analytical_Congestion_Aware", "while true; do sleep 0.1; done")
    with pytest.raises(AstraRunError, match="so it was ended") as refused:
        _run(tmp_path, _program(command), _HASTY)
    assert refused.value.timed_out
    for _ in range(50):
        if not _left(engine):
            break
        time.sleep(0.1)
    assert _left(engine) == []


def test_a_running_container_is_entered_and_its_program_ended_by_the_stop_command(engine: Path, tmp_path: Path) -> None:
    """The settings of the page: the program leaves its number in the run folder, which the container shares."""
    shared = tmp_path / "runs"
    shared.mkdir()
    _image(engine, "sim", "while true; do sleep 0.1; done", "containers")
    (engine / "containers/astra/mounts").write_text(f"{shared}:/runs\n")
    inner = 'echo $$ > pid; exec "$@"'
    program = find(
        ANALYTICAL,
        {
            "command": ["docker", "exec", "-w", "{cwd}", "astra", "sh", "-c", inner, "sh", "/app/sim"],
            "stop": ["docker", "exec", "-w", "{cwd}", "astra", "sh", "-c", "kill -9 $(cat pid)"],
            "paths": {str(shared): "/runs"},
        },
    )
    place = tmp_path / "in"
    place.mkdir()
    paths = make.write(place, [[make.collective(1, 4096)]] * 2)
    with pytest.raises(AstraRunError, match="so it was ended"):
        simulate_files(paths, program, limits=_HASTY, keep=shared / "one")
    number = (shared / "one/pid").read_text().strip()
    assert not Path(f"/proc/{number}").exists()


@pytest.mark.parametrize(("inner", "said"), [("exit 3", "exit code 3"), ("kill -ABRT $$", "SIGABRT")])
@pytest.mark.parametrize("command", [_DOCKER, _APPTAINER])
def test_exit_codes_come_through(command: str, inner: str, said: str, engine: Path, tmp_path: Path) -> None:
    _image(engine, "AstraSim_Analytical_Congestion_Aware", inner)
    with pytest.raises(AstraRunError, match=f"0 of 2 ranks finished \\({said}\\)"):
        _run(tmp_path, _program(command))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (_DOCKER.replace("-w /run", "-w /elsewhere"), "/elsewhere is not there"),
        (_DOCKER.replace(" astra ", " nothing "), "no such image"),
        (_DOCKER.replace("/app/", "/opt/"), "no such file in the container"),
        (_DOCKER.replace("{cwd}:", "/nowhere-at-all:"), "mount source /nowhere-at-all does not exist"),
    ],
)
@pytest.mark.usefixtures("engine")
def test_what_the_engine_complains_of_is_told(command: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(AstraRunError, match=said):
        _run(tmp_path, _program(command))


def test_a_name_is_given_once_and_the_stop_follows_from_it(engine: Path, tmp_path: Path) -> None:
    _run(tmp_path, _program(_DOCKER))
    started = next(line for line in (engine / "calls").read_text().splitlines() if " run " in line)
    words = shlex.split(started)
    assert words.count("--name") == 1
    program = _program(_DOCKER)
    assert program.stop_line("aware", tmp_path, "x") == ["docker", "kill", "x"]
    assert _program(_NAMED).line("aware", tmp_path, "x").count("--name") == 1
    assert _program("docker run --name mine astra /app/x").stop_line("aware", tmp_path, "x") == [
        "docker",
        "kill",
        "mine",
    ]
    assert _program("apptainer exec astra /app/x").stop_line("aware", tmp_path, "x") == []


def test_a_chosen_stop_stays(tmp_path: Path) -> None:
    chosen = find(NS3, {"command": ["docker", "run", "image"], "stop": ["docker", "stop", "{name}"]})
    assert chosen.stop_line("ns3", tmp_path, "x") == ["docker", "stop", "x"]
