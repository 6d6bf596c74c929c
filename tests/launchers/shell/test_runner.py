"""Runners: commands have time limits, environments are clean, a login node is reached over a real sshd."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from launchers.shell import ssh as ssh_module
from launchers.shell.runner import LocalRunner, Runner, clean_environment
from launchers.shell.ssh import SshRunner


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    started = time.monotonic()
    text = f"sleep 31.7 & echo $! > '{tmp_path}/pid'; sleep 31.7"
    done = LocalRunner().run(("bash", "-c", text), timeout_s=3.0)
    assert (done.ok, done.code) == (False, None)
    assert "no answer" in done.complaint
    assert time.monotonic() - started < 20
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_what_cannot_start_is_no_exception() -> None:
    done = LocalRunner().run(("no-such-program",))
    assert (done.code, "cannot be started" in done.complaint) == (None, True)


def test_the_last_line_of_the_complaint_is_the_message() -> None:
    assert LocalRunner().run(("sh", "-c", "echo a >&2; echo b >&2; exit 3")).complaint == "b"


def test_environments_lose_what_would_change_answers_or_leak() -> None:
    given = {
        "SLURM_CONF": "/c", "SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SQUEUE_FORMAT": "%i", "SACCT_FORMAT": "State",
        "ANTHROPIC_API_KEY": "secret", "SBATCH_ACCOUNT": "mine", "HOME": "/h", "LC_ALL": "de_DE",
    }  # fmt: skip
    assert clean_environment(given) == {
        "SLURM_CONF": "/c", "SBATCH_ACCOUNT": "mine", "HOME": "/h", "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard",
    }  # fmt: skip


def test_its_own_programs_come_first(tmp_path: Path) -> None:
    program = tmp_path / "squeue"
    program.write_text("#!/bin/sh\necho mine\n")
    program.chmod(0o755)
    assert LocalRunner(bin_dir=str(tmp_path)).run(("env", "squeue")).out == "mine\n"


@pytest.fixture(params=["local", "ssh"])
def runner(request: pytest.FixtureRequest) -> Runner:
    return LocalRunner() if request.param == "local" else request.getfixturevalue("login")


@pytest.mark.parametrize("folder", ["a'; echo foo", "a\n0", '"$HOME`id`"'])
def test_files_at_odd_places(runner: Runner, tmp_path: Path, folder: str) -> None:
    path = str(tmp_path / folder / "deep" / "x.sh")
    text = "#!/bin/sh\n'\"$HOME\"' ü\n"
    assert runner.write(path, text).ok
    assert runner.read(path) == text
    assert runner.read(path + ".none") is None
    assert [entry.name for entry in Path(path).parent.iterdir()] == ["x.sh"]


def test_arguments_and_input_arrive_as_they_are(runner: Runner) -> None:
    words = ("a b", "$HOME", "it's", "*", "line\nbreak", "")
    done = runner.run(("sh", "-c", 'printf "%s|" "$@"; cat', "sh", *words), stdin="in put\n")
    assert done.out == "|".join(words) + "|in put\n"
    assert runner.run(("sh", "-c", "exit 7")).code == 7


def test_slow_commands_are_given_up(runner: Runner) -> None:
    assert runner.run(("sleep", "20"), timeout_s=0.5).code is None


def test_a_file_that_cannot_be_written_is_told(runner: Runner) -> None:
    done = runner.write("/proc/nothing/x", "text")
    assert not done.ok
    assert done.complaint


def test_a_folder_is_fetched_whole(login: SshRunner, tmp_path: Path) -> None:
    source, target = tmp_path / "a 'b", tmp_path / "here"
    (source / "trace").mkdir(parents=True)
    (source / "trace" / "rank0.json").write_bytes(b"\0\xff{}")
    assert login.fetch(str(source), target).ok
    assert (target / "trace" / "rank0.json").read_bytes() == b"\0\xff{}"
    assert not login.fetch(str(tmp_path / "none"), target).ok


def test_set_up_lines_and_programs_of_a_login_node(login: SshRunner, tmp_path: Path) -> None:
    (tmp_path / "squeue").write_text('#!/bin/sh\necho "$MODULE:$SQUEUE_FORMAT:$LC_ALL"\n')
    (tmp_path / "squeue").chmod(0o755)
    there = SshRunner(login.host, login.options, "export MODULE=slurm SQUEUE_FORMAT=%i", str(tmp_path))
    assert there.run(("squeue",)).out == "slurm::C\n"


def test_one_connection_is_shared(login: SshRunner) -> None:
    flags = login.command("true")
    shared = next(word for word in flags if word.startswith("ControlPath="))
    assert "ControlMaster=auto" in flags
    assert "BatchMode=yes" in flags
    assert len(shared.removesuffix("%C")) + 40 < 104
    assert ssh_module.control_folder().stat().st_mode & 0o077 == 0


def test_a_host_that_cannot_be_reached_gives_no_answer() -> None:
    nobody = SshRunner("127.0.0.1", ("-F", "none", "-p", "1"))
    done = nobody.run(("squeue",))
    assert done.code is None
    assert "ssh 127.0.0.1" in done.complaint
