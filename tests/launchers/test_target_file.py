"""Target files: the examples are right, and what is wrong in a file is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launchers.dry_run import DryRunLauncher
from launchers.local import LocalLauncher
from launchers.shell.ssh import SshRunner
from launchers.slurm.launcher import SlurmLauncher
from launchers.target_file import build_launcher, load_target, parse_target
from runs import catalogue
from runs.errors import BadInputError, TargetUnavailableError
from tests.launchers import jobs

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "targets").glob("*.yaml"))
KINDS = {"slurm": SlurmLauncher, "local": LocalLauncher, "dry-run": DryRunLauncher}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_read_and_stand_for_bundled_environments(path: Path) -> None:
    target = load_target(path)
    if target.environment is not None:
        assert catalogue.environment(target.environment).name == target.environment
    if target.kind in KINDS:
        assert isinstance(build_launcher(target), KINDS[target.kind])


def test_the_example_of_perlmutter_writes_the_script_a_user_would(tmp_path: Path) -> None:
    launcher = build_launcher(load_target(ROOT / "targets" / "perlmutter.yaml"))
    assert isinstance(launcher, SlurmLauncher)
    text = launcher.script(jobs.job(tmp_path, jobs.bash("true", nodes=3, xpus_per_node=4), time_limit_s=1800))
    for line in ("--nodes=3", "--ntasks-per-node=1", "--time=30", "--gpus-per-node=4", "--account=m0000_g",
                 "--qos=regular", "--constraint=gpu", "--exclusive", "--no-requeue"):  # fmt: skip
        assert f"#SBATCH {line}\n" in text
    assert "srun --kill-on-bad-exit=1" in text
    assert "module load python nccl\n" in text
    assert text.index("module load") < text.index("export NCCL_SOCKET_IFNAME=hsn") < text.index("\nsrun ")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "slurm"}, "name: Field required"),
        ({"name": "x", "kind": "pbs"}, "kind: Input should be 'dry-run', 'local', 'slurm' or 'tpu-vm'"),
        ({"name": "x", "kind": "slurm", "slurm": {"acount": "m1"}}, "slurm.acount: Extra inputs are not permitted"),
        ({"name": "x", "kind": "local", "slurm": {}}, "a target of kind local has no section slurm"),
        ({"name": "x", "kind": "local", "ssh": {"host": "h"}}, "has no section ssh"),
        ({"name": "x", "kind": "local", "env": {"A B": "c"}}, "env.A B"),
        ({"name": "x", "kind": "slurm", "ssh": {"host": "-oProxyCommand=evil"}}, "ssh.host"),
        ({"name": "../x", "kind": "local"}, "name: String should match"),
        ({"name": "x", "kind": "slurm", "slurm": {"polling": {"first_s": 0}}}, "slurm.polling.first_s"),
        ({"name": "x", "kind": "slurm", "framework": {"torchtitan": {"nope": 1}}}, "nope"),
    ],
)
def test_what_is_wrong_is_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_target(data, "my.yaml")
    assert caught.value.message.startswith("my.yaml: ")
    assert message in caught.value.message
    assert "docs/targets.md" in caught.value.hint


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "just text", ""])
def test_what_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(BadInputError, match=r"t\.yaml"):
        load_target(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read"):
        load_target(tmp_path / "none.yaml")


def test_a_login_node_is_reached_over_ssh() -> None:
    data = {
        "name": "far",
        "kind": "slurm",
        "ssh": {"host": "me@login", "options": ["-p", "22"], "setup": "module load x"},
    }
    far = parse_target({**data, "slurm": {"remote_directory": "/scratch/me", "bin_dir": "/opt/slurm/bin"}}, "f")
    launcher = build_launcher(far)
    assert isinstance(launcher, SlurmLauncher)
    assert launcher.runner == SshRunner("me@login", ("-p", "22"), "module load x", "/opt/slurm/bin")
    script = launcher.script(jobs.job(Path("/here/trial"), jobs.bash("true"), run_id="r 1", trial=4))
    assert "export CCL_JOB_DIR=/scratch/me/r_1/trial-4\n" in script


def test_within_an_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    slurm, local = ({"name": "x", "kind": kind} for kind in ("slurm", "local"))
    with pytest.raises(TargetUnavailableError, match="no Slurm allocation"):
        build_launcher(parse_target(slurm, "f"), within_allocation=True)
    with pytest.raises(BadInputError, match="needs a slurm target"):
        build_launcher(parse_target(local, "f"), within_allocation=True)
