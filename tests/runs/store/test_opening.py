"""Opening a store: where it stands, who may write, and what is said when it cannot be used."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import event

from runs.errors import BadInputError, CclSearchError
from runs.store import NewTrial, RunStatus, Store, StoreError, StoreLockedError, resolve_home
from runs.store.home import DATABASE_NAME, file_system, refuse_network
from tests.runs.store import make

ROOT = Path(__file__).parents[3]


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A child process that runs `code` with the product's packages in reach."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


HOLD = """
import sys; from pathlib import Path; from runs.store import Store
with Store.open(Path(sys.argv[1]), write=True):
    print("open", flush=True); sys.stdin.read()
"""


@pytest.fixture
def other_writer(home: Path) -> Iterator[subprocess.Popen[str]]:
    child = python(HOLD, str(home))
    assert child.stdout is not None and child.stdout.readline() == "open\n"
    yield child
    child.kill()
    child.communicate()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 1 MiB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(mount)]
    if os.geteuid() != 0 or subprocess.run(options, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_the_home_is_what_is_given_else_the_variable_else_a_folder_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_home() == tmp_path / "ccl-runs"
    monkeypatch.setenv("CCL_SEARCH_HOME", "elsewhere")
    assert resolve_home() == tmp_path / "elsewhere"
    assert resolve_home(Path("given")) == tmp_path / "given"
    monkeypatch.setenv("CCL_SEARCH_HOME", "")
    assert resolve_home() == tmp_path / "ccl-runs"
    assert not list(tmp_path.iterdir())


def test_importing_the_package_loads_no_database() -> None:
    code = "import sys, runs.store; print(sorted({'sqlmodel', 'sqlalchemy', 'pydantic'} & set(sys.modules)))"
    assert python(code).communicate()[0] == "[]\n"


def test_a_store_is_kept_between_processes_and_read_by_others(home: Path) -> None:
    with Store.open(home, write=True) as store:
        run_id = store.create_run(make.new_run())
        make.add_success(store, run_id, 1.5)
    assert (home / DATABASE_NAME).is_file()
    with Store.open(home) as store:
        assert store.trial(run_id, 0).values == {"avg_step_time": 1.5}
        assert store.check() == []


def test_a_new_store_is_set_up_as_the_design_says(store: Store) -> None:
    pragmas = ("journal_mode", "foreign_keys", "busy_timeout")
    with store._database.engine.connect() as connection:
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas]
    assert found == ["wal", 1, 10_000]


def test_foreign_keys_hold(store: Store) -> None:
    with pytest.raises(StoreError, match="refused a row"), store._database.transaction() as session:
        session.connection().exec_driver_sql(
            "INSERT INTO scores (trial_id, objective, definition, score, created) VALUES (99, 'x', '{}', 1, '')"
        )


def test_a_reader_needs_a_store_and_makes_none(home: Path) -> None:
    with pytest.raises(BadInputError, match="there is no store") as caught:
        Store.open(home)
    assert str(home) in caught.value.message and "--home" in caught.value.hint
    assert not home.exists()


def test_an_empty_file_is_no_store_for_a_reader(home: Path) -> None:
    home.mkdir()
    (home / DATABASE_NAME).touch()
    with pytest.raises(BadInputError, match="is empty"):
        Store.open(home)


def test_a_reader_writes_nothing(home: Path, store: Store) -> None:
    run_id = store.create_run(make.new_run())
    with Store.open(home) as reader:
        with pytest.raises(StoreError, match="opened for reading"):
            reader.add_trial(run_id, NewTrial(iteration=0))
        with pytest.raises(BadInputError, match="readonly"):
            reader.query("DELETE FROM runs")
        assert not reader.trial_dir(run_id, 0).exists()
    assert store.trials(run_id) == []


def test_a_second_writer_is_told_who_writes_but_a_reader_is_welcome(
    home: Path, other_writer: subprocess.Popen[str]
) -> None:
    with pytest.raises(StoreLockedError, match=f"written by process {other_writer.pid}") as caught:
        Store.open(home, write=True)
    assert caught.value.pid == other_writer.pid
    with Store.open(home) as reader:
        assert reader.list_runs() == []
        assert reader.writer_pid() == other_writer.pid


def test_the_lock_goes_with_its_process(home: Path, other_writer: subprocess.Popen[str]) -> None:
    other_writer.kill()
    other_writer.wait()
    with Store.open(home, write=True) as store:
        assert store.writer_pid() == os.getpid()
    with Store.open(home) as store:
        assert store.writer_pid() is None


def test_one_process_is_not_two_writers(home: Path, store: Store) -> None:
    with pytest.raises(StoreLockedError, match="by this process already"):
        Store.open(home, write=True)
    store.close()
    store.close()
    Store.open(home, write=True).close()


def test_a_failed_opening_frees_the_lock(home: Path) -> None:
    home.mkdir()
    (home / DATABASE_NAME).write_bytes(b"not a database" * 100)
    for _ in range(2):
        with pytest.raises(StoreError, match="is no SQLite database"):
            Store.open(home, write=True)


def test_runs_of_a_dead_writer_become_interrupted(home: Path, store: Store) -> None:
    left, ended = store.create_run(make.new_run()), store.create_run(make.new_run())
    store.finish_run(ended, RunStatus.FINISHED, "budget")
    number = store.add_trial(left, NewTrial(iteration=0))
    store.begin_attempt(left, number)
    store.close()
    with Store.open(home) as reader:
        assert reader.run(left).status is RunStatus.RUNNING
    with Store.open(home, write=True) as again:
        assert (again.run(left).status, again.run(ended).status) == (RunStatus.INTERRUPTED, RunStatus.FINISHED)
        assert again.trial(left, number).state.value == "running"  # its job may be alive: resume decides


MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:50 / /global/homes rw,relatime shared:1 - nfs4 server:/homes rw,vers=4.2
41 27 0:51 / /scratch rw - lustre 10.0.0.1@o2ib:/scratch rw
42 41 0:52 / /scratch/local rw - xfs /dev/nvme0n1 rw
43 27 0:53 / /with\\040space rw - fuse.sshfs me@host: rw
44 27 0:54 / /host rw - 9p share rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/a", "ext4"),
        ("/global/homes/a/runs", "nfs4"),
        ("/global/homesick", "ext4"),
        ("/scratch", "lustre"),
        ("/scratch/local/a", "xfs"),
        ("/with space/a", "fuse.sshfs"),
        ("/host/a", "9p"),
        ("/", "ext4"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_nearest_mount(path: str, kind: str) -> None:
    assert file_system(Path(path), MOUNTS) == kind


@pytest.mark.parametrize("path", ["/global/homes/a", "/scratch/a", "/with space/a", "/host/a"])
def test_a_network_file_system_is_refused_with_a_way_out(path: str) -> None:
    with pytest.raises(BadInputError, match="network file system") as caught:
        refuse_network(Path(path), MOUNTS)
    assert "local disk" in caught.value.hint
    refuse_network(Path("/scratch/local/a"), MOUNTS)
    refuse_network(Path("/anything"), "")


def test_opening_asks_for_the_file_system_of_the_database_not_of_the_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lustre = tmp_path / "lustre"
    mounts = f"1 0 0:1 / / rw - ext4 disk rw\n2 1 0:2 / {lustre} rw - lustre fs rw\n"
    monkeypatch.setattr("runs.store.home._read_mounts", lambda: mounts)
    with pytest.raises(BadInputError, match="lustre"):
        Store.open(lustre, write=True)
    with Store.open(lustre, f"sqlite:///{tmp_path / 'local.sqlite'}", write=True) as store:
        run_id = store.create_run(make.new_run())
        assert store.trial_dir(run_id, 0).is_relative_to(lustre)


def test_any_database_url_is_accepted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'deep' / 'other name.db'}"
    with Store.open(tmp_path / "home", url, write=True, metric_columns=["avg_step_time"]) as store:
        make.add_success(store, store.create_run(make.new_run()), 1.0)
        assert store.query("SELECT trial, avg_step_time FROM leaderboard") == [{"trial": 0, "avg_step_time": 1.0}]
    with Store.open(tmp_path / "home", url) as store:
        assert len(store.list_runs()) == 1
    assert not (tmp_path / "home" / DATABASE_NAME).exists()


def test_the_url_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCL_SEARCH_STORE_URL", f"sqlite:///{tmp_path / 'by variable.db'}")
    Store.open(tmp_path / "home", write=True).close()
    assert (tmp_path / "by variable.db").is_file()
    Store.open(tmp_path / "home", f"sqlite:///{tmp_path / 'given.db'}", write=True).close()
    assert (tmp_path / "given.db").is_file()
    assert not (tmp_path / "home" / DATABASE_NAME).exists()


def test_a_database_in_memory_is_a_store_too(tmp_path: Path) -> None:
    with Store.open(tmp_path, "sqlite://", write=True, metric_columns=["avg_step_time"]) as store:
        make.add_success(store, store.create_run(make.new_run()), 1.0)
        assert store.query("SELECT avg_step_time FROM leaderboard WHERE trial = ?", [0]) == [{"avg_step_time": 1.0}]
        with pytest.raises(BadInputError, match="only an SQLite file"):
            store.backup(tmp_path / "copy.sqlite")


@pytest.mark.parametrize("url", ["no url", "nosuchdb://host/x", "postgresql+nosuchdriver://me:secret@host/x"])
def test_a_url_that_leads_nowhere_is_refused_without_its_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadInputError, match="no database can be reached") as caught:
        Store.open(tmp_path, url, write=True)
    assert "secret" not in caught.value.message + caught.value.hint


def test_a_damaged_database_is_called_damaged(home: Path) -> None:
    with Store.open(home, write=True) as store:
        run_id = store.create_run(make.new_run(notes="n" * 50_000))
    file = home / DATABASE_NAME
    content = bytearray(file.read_bytes())
    content[4096 * 2 :] = b"\xa5" * (len(content) - 4096 * 2)
    file.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged") as caught, Store.open(home) as store:
        store.run(run_id)
    assert "backup" in caught.value.hint


def test_somebody_elses_database_is_not_touched(home: Path) -> None:
    home.mkdir()
    with sqlite3.connect(home / DATABASE_NAME) as connection:
        connection.execute("CREATE TABLE trials (x)")
    connection.close()
    with pytest.raises(StoreError, match="tables of another program"):
        Store.open(home, write=True)
    assert make.raw(home, "SELECT name FROM sqlite_master") == [("trials",)]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot make the folder"):
        Store.open(tmp_path / "file" / "home", write=True)


def test_a_store_that_may_not_grow_loses_nothing(store: Store) -> None:
    run_id = store.create_run(make.new_run())
    kept = make.add_success(store, run_id, 1.0)

    def limit(connection: sqlite3.Connection, _record: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")

    store._database.engine.dispose()
    event.listen(store._database.engine, "connect", limit)
    with pytest.raises(StoreError, match="the disk is full") as caught:
        store.add_trial(run_id, NewTrial(iteration=1, policy_source="x" * 100_000))
    assert "free space" in caught.value.hint
    assert [trial.number for trial in store.trials(run_id)] == [kept]
    assert store.check() == []


def test_a_full_disk_is_one_clear_error(small_disk: Path) -> None:
    with Store.open(small_disk / "home", write=True) as store:
        run_id = store.create_run(make.new_run())
        with pytest.raises(CclSearchError, match="disk is full"):
            for number in range(100):
                store.add_trial(run_id, NewTrial(iteration=number, policy_source=f"{number}" + "x" * 50_000))
        before = len(store.trials(run_id))
    with Store.open(small_disk / "home") as store:
        assert len(store.trials(run_id)) == before > 0
        assert store.check() == []


def test_a_full_disk_cannot_take_a_new_store(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * (1024 * 1024 - 16 * 1024))
    with pytest.raises(StoreError):
        Store.open(small_disk / "home", write=True)


def test_a_store_on_a_read_only_disk_can_be_read(small_disk: Path) -> None:
    with Store.open(small_disk / "home", write=True, metric_columns=["avg_step_time"]) as store:
        run_id = store.create_run(make.new_run())
        make.add_success(store, run_id, 1.0)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with Store.open(small_disk / "home") as store:
        assert store.trial(run_id, 0).score == -1.0
        assert store.query("SELECT avg_step_time FROM leaderboard") == [{"avg_step_time": 1.0}]
    with pytest.raises(StoreError, match=r"cannot write beside the store.*Read-only"):
        Store.open(small_disk / "home", write=True)


def _read_as_nobody(home: Path) -> str:
    """What a process without rights in the folder reads: the number of trials, by both ways, and the writer."""
    end, start = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            with Store.open(home) as reader:
                trials = reader.trials(reader.run("latest").id)
                told = f"{len(trials)} {reader.query('SELECT count(*) AS n FROM trials')[0]['n']} {reader.writer_pid()}"
        except BaseException as error:
            told = repr(error)
        os.write(start, told.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(start)
    with os.fdopen(end) as pipe:
        return pipe.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without rights")
def test_somebody_who_may_only_read_can_read_while_a_search_writes_and_after() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        Path(folder).chmod(0o755)
        with Store.open(Path(folder) / "home", write=True) as store:
            make.add_success(store, store.create_run(make.new_run()), 1.0)
            assert _read_as_nobody(Path(folder) / "home") == f"1 1 {os.getpid()}"
        assert _read_as_nobody(Path(folder) / "home") == "1 1 None"


def test_a_database_another_program_locks_is_called_locked(
    home: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runs.store.engine.BUSY_TIMEOUT_MS", 20)
    store._database.engine.dispose()
    intruder = sqlite3.connect(home / DATABASE_NAME)
    intruder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked by another program"):
        store.create_run(make.new_run())
    intruder.close()
    store.create_run(make.new_run())


def test_a_wrong_query_says_what_is_wrong(store: Store) -> None:
    with pytest.raises(BadInputError, match="no such table: leaderbord"):
        store.query("SELECT * FROM leaderbord")


def test_a_backup_is_a_store(home: Path, store: Store, tmp_path: Path) -> None:
    run_id = store.create_run(make.new_run())
    copy = tmp_path / "copy.sqlite"
    store.backup(copy)
    store.create_run(make.new_run())
    with Store.open(tmp_path, f"sqlite:///{copy}") as reader:
        assert [run.id for run in reader.list_runs()] == [run_id]
    with pytest.raises(BadInputError, match="exists already"):
        store.backup(copy)
    with pytest.raises(StoreError, match="cannot be opened"):
        store.backup(tmp_path / "no" / "folder.sqlite")


def test_check_finds_rows_that_point_to_nothing(home: Path, store: Store) -> None:
    with sqlite3.connect(home / DATABASE_NAME) as connection:
        connection.execute(
            "INSERT INTO scores (trial_id, objective, definition, score, created) VALUES (99, 'x', '{}', 1, '')"
        )
    connection.close()
    assert store.check() == ["points to nothing: scores row 1"]


def test_sqlalchemy_is_the_version_the_code_is_written_for() -> None:
    assert sqlalchemy.__version__.startswith("2.")
