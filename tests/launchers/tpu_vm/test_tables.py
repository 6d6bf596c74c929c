"""What needs no machine: settings, types of slices, texts of troubles, words for gcloud, answers of the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launchers.shell.command import Command
from launchers.shell.runner import Completed
from launchers.target_file import build_launcher, load_target
from launchers.tpu_vm.control import SliceRequest, read_node, read_queued_resource, workers_of
from launchers.tpu_vm.gcloud import creation_arguments
from launchers.tpu_vm.launcher import TpuVmLauncher, laid_out
from launchers.tpu_vm.ledger import Ledger, SliceRecord, SliceState, slice_name
from launchers.tpu_vm.settings import accelerator_type, read_settings, slice_shape
from launchers.tpu_vm.slices import Standing, is_unwell, judge_node
from launchers.tpu_vm.troubles import Trouble, classify, essence, remedy, rules
from launchers.tpu_vm.workers import read_answer
from runs.errors import BadInputError

ROOT = Path(__file__).resolve().parents[3]
BASE: dict[str, Any] = {"zones": ["z-a"], "accelerator": "v6e-8", "runtime_version": "v2-alpha-tpuv6e"}


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ('ERROR: (gcloud.compute.tpus.tpu-vm.create) {\n  "code": 8,\n  "message": "There is no more capacity in the '
         'zone \\"us-central1-c\\"; you can try in another zone [EID: 0x1]"\n}', Trouble.STOCKOUT),
        ("Insufficient reserved capacity. Contact customer support to increase your reservation.", Trouble.RESERVATION),
        ("ERROR: RESOURCE_EXHAUSTED: Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. "
         "Limit: 0 in region us-east5.", Trouble.QUOTA),
        ("RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'CreateNode requests' and limit 'Maximum number of "
         "CreateNode requests per minute'", Trouble.RATE),
        ("PERMISSION_DENIED: Permission 'tpu.nodes.create' denied on 'projects/p'", Trouble.PERMISSION),
        ('INVALID_ARGUMENT: Accelerator type "v9-8" not found in zone "z".', Trouble.CONFIG),
        ("NOT_FOUND: Resource 'x' was not found. This command is unauthenticated because the "
         "[auth/disable_credentials] property is True", Trouble.NOT_FOUND),
        ("ALREADY_EXISTS: Resource 'projects/p/locations/z/nodes/n' already exists", Trouble.EXISTS),
        ('This TPU has terminal state "PREEMPTED", so it cannot be used anymore.', Trouble.PREEMPTED),
        ('This TPU has state "STOPPED", so it cannot be currently connected to.', Trouble.STOPPED),
        ("ERROR: (gcloud) [/usr/bin/ssh] exited with return code [255].", Trouble.SSH),
        ("UNAVAILABLE: The service is currently unavailable.", Trouble.UNAVAILABLE),
        ("There was a problem refreshing your current auth tokens: ('invalid_grant: Bad Request')", Trouble.AUTH),
        ("something new", Trouble.FAILED),
    ],
)  # fmt: skip
def test_texts_tell_troubles(text: str, trouble: Trouble) -> None:
    assert classify(text) is trouble


def test_every_trouble_has_a_remedy_and_every_rule_a_source() -> None:
    for trouble in Trouble:
        assert remedy(trouble).failure is not None
    assert all(rule.source for rule in rules())


def test_the_essence_of_an_error_is_one_line() -> None:
    text = 'Create request issued\n.....failed.\nERROR: (gcloud.x) {\n  "code": 8,\n  "message": "no \\"a\\" more"\n}\n'
    assert essence(text) == 'no "a" more'
    assert essence("WARNING: a\nERROR: b\n") == "ERROR: b"


@pytest.mark.parametrize(
    ("full_type", "shape"),
    [
        ("v6e-1", (1, 1)), ("v6e-4", (1, 4)), ("v6e-8", (1, 8)), ("v6e-16", (4, 4)), ("v6e-256", (64, 4)),
        ("v5litepod-8", (1, 8)), ("v5litepod-16", (4, 4)), ("v4-8", (1, 4)), ("v4-16", (2, 4)), ("v5p-32", (4, 4)),
        ("v9-8", None), ("odd", None),
    ],
)  # fmt: skip
def test_hosts_and_chips_of_a_type(full_type: str, shape: tuple[int, int] | None) -> None:
    assert slice_shape(full_type) == shape


@pytest.mark.parametrize(
    ("accelerator", "chips", "full_type"),
    [("v6e-8", 4, "v6e-8"), ("v6e", 16, "v6e-16"), ("v5e", 16, "v5litepod-16"), ("v5p", 16, "v5p-32")],
)
def test_a_family_gets_the_size_of_the_job(accelerator: str, chips: int, full_type: str) -> None:
    assert accelerator_type(accelerator, chips) == full_type


def test_a_command_is_laid_out_over_the_workers_there_are() -> None:
    command = Command(("x",), nodes=2, xpus_per_node=8, trace_count=2)
    fitted = laid_out(command, (4, 4))
    assert fitted is not None
    assert (fitted.nodes, fitted.xpus_per_node, fitted.trace_count) == (4, 4, 4)
    assert laid_out(command, (2, 4)) is None
    assert laid_out(Command(("x",), nodes=2, xpus_per_node=8, per_node=False), (4, 4)) is None
    assert laid_out(Command(("x",), xpus_per_node=4), (1, 8)) is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"zonez": "a"}, "unknown setting zonez"),
        ({"zones": []}, "no zone"),
        ({"zones": "us-a"}, "zones cannot be 'us-a'"),
        ({"accelerator": None}, "neither an existing slice"),
        ({"accelerator": "tpu-v6e"}, "no TPU type"),
        ({"capacity": "cheap"}, "capacity is 'cheap'"),
        ({"ssh": {"connect": "telnet"}}, "ssh.connect"),
        ({"ssh": {"host": "x"}}, "unknown setting host"),
        ({"ssh": {"port": "22"}}, "port cannot be '22'"),
        ({"worker_grace_s": -1}, "worker_grace_s cannot be -1"),
        ({"internal_ips": "yes"}, "internal_ips cannot be 'yes'"),
        ({"trace_bucket": "s3://x"}, "trace_bucket"),
        ({"control": "google-cloud-tpu", "ssh": {"connect": "direct"}}, "needs a project"),
        ({"control": "google-cloud-tpu", "project": "p"}, "needs control: gcloud"),
    ],
)
def test_wrong_settings_are_told_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        read_settings({**BASE, **changes})


@pytest.mark.parametrize("path", sorted(ROOT.glob("targets/tpu-*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_targets(path: Path) -> None:
    launcher = build_launcher(load_target(path))
    assert isinstance(launcher, TpuVmLauncher)
    assert "activate" in launcher.settings.setup


def test_words_for_gcloud() -> None:
    request = SliceRequest("n", "z-a", "v6e-8", "v2", "spot", True, {"a": "1"}, {"k": "x,y"}, valid_for="2h")
    assert creation_arguments(request) == [
        "queued-resources", "create", "n", "--node-id=n", "--zone=z-a", "--runtime-version=v2",
        "--valid-until-duration=2h", "--accelerator-type=v6e-8", "--spot", "--labels=a=1", "--metadata=^:^k=x,y",
    ]  # fmt: skip
    direct = SliceRequest("n", "z-a", "v6e-8", "v2", "reserved", False, network="net", internal_ips=True)
    assert creation_arguments(direct) == [
        "tpu-vm", "create", "n", "--zone=z-a", "--version=v2", "--accelerator-type=v6e-8", "--reserved",
        "--internal-ips", "--network=net",
    ]  # fmt: skip


def test_workers_of_a_slice_with_two_networks() -> None:
    endpoints = [{"ipAddress": f"10.0.{net}.{worker}"} for worker in range(4) for net in range(2)]
    node = read_node({"name": "projects/p/locations/z/nodes/n", "state": "READY", "networkEndpoints": endpoints})

    assert [e.internal for e in workers_of(node, 4)] == [f"10.0.0.{worker}" for worker in range(4)]
    assert len(workers_of(node, 0)) == 8
    assert workers_of(node, 4)[0].external is None


@pytest.mark.parametrize(
    ("state", "standing", "trouble"),
    [
        ("READY", Standing.READY, None),
        ("CREATING", Standing.WAITING, None),
        ("REPAIRING", Standing.WAITING, None),
        ("PREEMPTED", Standing.FAILED, Trouble.PREEMPTED),
        ("TERMINATED", Standing.FAILED, Trouble.STOPPED),
        ("A_NEW_ONE", Standing.WAITING, None),
    ],
)
def test_what_the_state_of_a_slice_means(state: str, standing: Standing, trouble: Trouble | None) -> None:
    view = judge_node(read_node({"name": "projects/p/locations/z/nodes/n", "state": state}))
    assert (view.standing, view.trouble) == (standing, trouble)


def test_bad_health_is_told() -> None:
    data = {
        "name": "projects/p/locations/z/nodes/n",
        "state": "READY",
        "health": "UNHEALTHY_MAINTENANCE",
        "symptoms": [{"symptomType": "HBM_OUT_OF_MEMORY"}],
    }
    assert is_unwell(read_node(data)) == "n has health UNHEALTHY_MAINTENANCE HBM_OUT_OF_MEMORY"
    assert is_unwell(read_node({**data, "health": "HEALTHY"})) == ""


def test_labels_of_a_queued_resource_are_those_of_its_slices() -> None:
    data = {
        "name": "projects/p/locations/z/queuedResources/q",
        "state": {"state": "FAILED", "failedData": {"error": {"code": 8, "message": "no more"}}},
        "tpu": {"nodeSpec": [{"nodeId": "n", "node": {"labels": {"a": "1"}}}]},
    }
    found = read_queued_resource(data)
    assert (found.state, found.error, found.labels, found.nodes) == ("FAILED", "no more", {"a": "1"}, ("n",))


def test_names_are_legal_and_new() -> None:
    name = slice_name("Run_2026.11 with A VERY long name, and more and more", "0-1", "0123456789ab")
    assert name == "ccl-ame--and-more-and-more-0-1-01234567" or len(name) <= 63
    assert name.replace("-", "").isalnum()
    assert name.islower()
    assert name.startswith("ccl-")
    assert len(name) <= 63


def test_a_ledger_keeps_what_it_is_told(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "slices")
    record = SliceRecord("n", "z.a", "t" * 12, "r", "j", "v6e-8", True, "run", 1.0, state=SliceState.ASKED)
    book.save(record)

    assert book.load(record.key) == record
    assert book.records() == [record]
    assert book.of_run("r") == [record]
    assert book.of_run("other") == []
    assert record.owns(record.labels)
    assert not record.owns({})


@pytest.mark.parametrize(
    ("code", "out", "word"),
    [
        (0, "welcome\nCCL running\n", "running"),
        (0, "CCL busy /a b/c\n", "busy"),
        (255, "CCL running\n", ""),
        (None, "", ""),
        (0, "nothing of ours\n", ""),
    ],
)
def test_answers_of_workers(code: int | None, out: str, word: str) -> None:
    assert read_answer(Completed(("ssh",), code, out, "", 1.0)).word == word
