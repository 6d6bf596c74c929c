"""Which program is started, with which words, and what is said of its version."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from backends.astra.programs import ANALYTICAL, NS3, Program, find, from_variable
from backends.astra.simulate import simulate_files
from runs.errors import BadInputError, TargetUnavailableError
from tests.backends.astra import traces as make

AWARE, UNAWARE = "AstraSim_Analytical_Congestion_Aware", "AstraSim_Analytical_Congestion_Unaware"


def _program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def _named(path: Path, backend: str = ANALYTICAL) -> Program:
    variable = "ASTRA_SIM_ANALYTICAL" if backend == ANALYTICAL else "ASTRA_SIM_NS3"
    found = from_variable(backend, {variable: str(path)})
    assert found is not None
    return found


def test_a_folder_serves_both_analytical_programs(tmp_path: Path) -> None:
    for name in (AWARE, UNAWARE):
        _program(tmp_path / "build/bin" / name)
    found = _named(tmp_path)
    assert found.engine("aware") == "aware"
    assert found.line("aware", tmp_path, "n") == [str(tmp_path / "build/bin" / AWARE)]
    assert found.line("unaware", tmp_path, "n") == [str(tmp_path / "build/bin" / UNAWARE)]


def test_a_file_stands_for_its_sibling_too(tmp_path: Path) -> None:
    _program(tmp_path / UNAWARE)
    alone = _named(tmp_path / UNAWARE)
    assert alone.engine("aware") == "unaware"
    _program(tmp_path / AWARE)
    assert alone.engine("aware") == "aware"
    assert alone.line("aware", tmp_path, "n") == [str(tmp_path / AWARE)]


def test_a_container_command_is_filled_in(tmp_path: Path) -> None:
    text = "docker run --rm --name {name} -v {cwd}:/run -w /run img /bin/AstraSim_Analytical_Congestion_{congestion}"
    found = from_variable(ANALYTICAL, {"ASTRA_SIM_ANALYTICAL": text})
    assert found is not None
    assert found.is_container
    own = Program(ANALYTICAL, (sys.executable, *found.words[1:]), source="test")
    words = own.line("unaware", Path("/scratch/a b"), "run-7")
    assert words[1:] == [
        "run", "--rm", "--name", "run-7", "-v", "/scratch/a b:/run", "-w", "/run", "img",
        "/bin/AstraSim_Analytical_Congestion_Unaware",
    ]  # fmt: skip


def test_paths_are_mapped_by_the_longest_folder() -> None:
    paths = (("/data", "/mnt"), ("/data/scratch", "/fast"))
    found = Program(NS3, (sys.executable, "-w", "{cwd}"), ("stop", "{name}"), paths, "test")
    assert found.line("ns3", Path("/data/scratch/run"), "n")[-1] == "/fast/run"
    assert found.line("ns3", Path("/data/run"), "n")[-1] == "/mnt/run"
    assert found.line("ns3", Path("/database/run"), "n")[-1] == "/database/run"
    assert found.stop_line("ns3", Path("/data/run"), "x") == ["stop", "x"]


def test_the_version_has_the_digest_the_release_and_the_commit(tmp_path: Path) -> None:
    path = _program(tmp_path / "repo/build/scratch/ns3.42-AstraSimNetwork-default", "#!/bin/sh\nexit 0\n")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    assert _named(path, NS3).version("ns3") == f"ns-3.42 default sha256:{digest}"
    (tmp_path / "repo/.git/refs/heads").mkdir(parents=True)
    (tmp_path / "repo/.git/HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (tmp_path / "repo/.git/refs/heads/main").write_text("ab" * 20 + "\n", encoding="utf-8")
    assert _named(path, NS3).version("ns3") == f"ns-3.42 default sha256:{digest} commit:{'ab' * 6}"


def test_a_changed_program_is_another_version(tmp_path: Path) -> None:
    path = _program(tmp_path / AWARE, "#!/bin/sh\nexit 0\n")
    before = _named(path).version("aware")
    _program(path, "#!/bin/sh\nexit 1\n# longer\n")
    assert _named(path).version("aware") != before


def test_nothing_named_says_what_to_set() -> None:
    with pytest.raises(TargetUnavailableError) as error:
        find(NS3, {}, {})
    assert "ASTRA_SIM_NS3" in error.value.hint
    assert "--backend flow" in error.value.hint


def test_a_target_file_comes_before_the_variable(tmp_path: Path) -> None:
    settings = {"command": ["docker", "run", "image"], "stop": ["docker", "kill", "{name}"], "paths": {"/a": "/b"}}
    found = find(ANALYTICAL, settings, {"ASTRA_SIM_ANALYTICAL": str(tmp_path)})
    assert found.words == ("docker", "run", "image")
    assert found.stop == ("docker", "kill", "{name}")
    assert found.paths == (("/a", "/b"),)


@pytest.mark.parametrize("settings", [{"command": []}, {"command": [1]}, {"command": "x", "paths": ["/a"]}])
def test_a_setting_of_the_wrong_form_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(BadInputError):
        find(ANALYTICAL, settings, {})


@pytest.mark.parametrize("name", ["missing", "plain.txt"])
def test_what_is_no_program_is_told(name: str, tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("no program", encoding="utf-8")
    found = Program(ANALYTICAL, (str(tmp_path / name),), source="ASTRA_SIM_ANALYTICAL")
    with pytest.raises(TargetUnavailableError, match="ASTRA_SIM_ANALYTICAL is no program"):
        found.line("aware", tmp_path, "n")


def test_the_default_profile_of_ns3_comes_first(tmp_path: Path) -> None:
    for profile in ("debug", "default", "optimized"):
        _program(tmp_path / "build/scratch" / f"ns3.42-AstraSimNetwork-{profile}")
    assert _named(tmp_path, NS3).line("ns3", tmp_path, "n")[0].endswith("-default")


def test_another_analytical_program_than_asked_for_is_refused(tmp_path: Path) -> None:
    program = _named(_program(tmp_path / UNAWARE))
    paths = make.write(tmp_path, [[make.work(1, 1)]] * 2)
    with pytest.raises(BadInputError, match="congestion-aware is asked for"):
        simulate_files(paths, program, engine="aware")


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(TargetUnavailableError, match="has no program"):
        _named(tmp_path).line("aware", tmp_path, "n")
