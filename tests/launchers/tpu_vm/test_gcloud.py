"""The real gcloud, where it is installed, against the stand-in service: its own texts, exit codes and ssh keys."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from launchers.base import JobState
from launchers.tpu_vm.control import Creation, Progress, SliceRequest
from launchers.tpu_vm.gcloud import Gcloud
from launchers.tpu_vm.troubles import Trouble, classify
from runs.trial import FailureClass, TrialState
from tests.tpu.world import FOREVER, OK, ZONES, World

SSH = {"connect": "gcloud", "user": "root"}


def ended(control: Gcloud, request: SliceRequest, folder: Path) -> Creation:
    """How a creation ended."""
    deadline = time.monotonic() + 240
    while (found := control.creation(request, folder)).progress is Progress.PENDING:
        assert time.monotonic() < deadline
        time.sleep(0.3)
    return found


def request(name: str, zone: str, queued: bool = False) -> SliceRequest:
    return SliceRequest(
        name, zone, "v4-16", "v2-alpha", "spot", queued, {LABEL: "1"}, {"startup-script": "echo a, b=c; true"}
    )


LABEL = "ccl-search"


@pytest.mark.slow
def test_a_whole_life_by_gcloud(world: World) -> None:
    """A queued resource, the user's key spread by gcloud, its ssh command lines, and the end of it all."""
    world.api.polls = 0
    launcher = world.launcher(world.gcloud(), provisioning="queued", control="gcloud", ssh=SSH, capacity="spot")
    started = time.monotonic()
    handle = launcher.submit(world.job(OK))
    submitted = time.monotonic() - started

    world.until(launcher, handle, seconds=300)
    assert submitted < (time.monotonic() - started) / 4, "it does not wait for gcloud"
    found = launcher.collect(handle)

    assert found.state is TrialState.SUCCEEDED, (found, world.state_of(handle))
    assert found.provenance["hosts"] == {"0": "t1v-n-test-w-0", "1": "t1v-n-test-w-1"}
    (asked,) = world.api.requests("POST", "/queuedResources")
    assert "spot" in asked
    (spec,) = asked["tpu"]["nodeSpec"]
    assert spec["node"]["labels"][LABEL] == "1"
    assert world.api.requests("PATCH", "/nodes")[0]["metadata"]["ssh-keys"].strip().startswith("root:ssh-rsa ")
    world.api.settle()
    assert world.api.names() == []


@pytest.mark.slow
def test_what_gcloud_prints_is_told_apart(world: World) -> None:
    """Six requests at once, each refused by its zone in another way, and one that works."""
    control = world.gcloud()
    kinds = {
        "stockout": Trouble.STOCKOUT,
        "reservation": Trouble.RESERVATION,
        "quota": Trouble.QUOTA,
        "rate": Trouble.RATE,
        "permission": Trouble.PERMISSION,
        "config": Trouble.CONFIG,
    }
    asked = {}
    for number, kind in enumerate([*kinds, "none"]):
        zone = f"us-test{number}-a"
        world.api.fault(kind, times=20, zone=zone)
        asked[kind] = (request(f"n-{kind}", zone), world.home / kind)
        control.start_creation(*asked[kind])

    outcomes = {kind: ended(control, *facts) for kind, facts in asked.items()}

    assert outcomes.pop("none").progress is Progress.DONE
    assert {kind: classify(found.text) for kind, found in outcomes.items()} == kinds
    (node,) = control.nodes("us-test6-a")
    assert (node.name, node.state, len(node.endpoints)) == ("n-none", "READY", 2)
    assert node.labels == {LABEL: "1"}
    (body,) = [b for b in world.api.requests("POST", "us-test6-a/nodes") if b]
    assert body["metadata"] == {"startup-script": "echo a, b=c; true"}


@pytest.mark.slow
def test_what_does_not_exist_is_none_and_its_deletion_no_error(world: World) -> None:
    control = world.gcloud()

    assert control.node(ZONES[0], "nothing") is None
    assert control.queued_resources(ZONES[0]) == []
    control.delete_node(ZONES[0], "nothing")


@pytest.mark.slow
def test_gcloud_says_zero_and_a_worker_is_dead(world: World) -> None:
    """That a worker died since, only asking it tells."""
    world.api.seed("mine", ZONES[0], "v4-16")
    launcher = world.launcher(world.gcloud(), control="gcloud", slice="mine", ssh=SSH, worker_grace_s=30)
    handle = launcher.submit(world.job(FOREVER))
    connected = Path(handle["local_dir"]) / "connect/rc"
    deadline = time.monotonic() + 240
    while not connected.exists() and time.monotonic() < deadline:
        assert launcher.poll(handle) in (JobState.QUEUED, JobState.RUNNING)
        time.sleep(0.3)
    world.worker(1).kill()
    while launcher.poll(handle) is not JobState.FINISHED and time.monotonic() < deadline:
        world.clock.ahead += 31

    assert connected.read_text().strip() == "0"
    found = launcher.collect(handle)
    assert found.failure is FailureClass.NODE_FAILURE, found
    assert "worker 1 did not answer" in found.evidence


@pytest.mark.slow
def test_traces_in_a_bucket_are_copied(world: World) -> None:
    world.api.seed("mine", ZONES[0], "v4-16")
    launcher = world.launcher(world.gcloud(), slice="mine", trace_bucket="gs://bucket/traces")
    program = 'echo "$CCL_TRACE_DIR"\n'
    handle = launcher.submit(world.job(program))
    world.until(launcher, handle, seconds=200)
    for rank in range(2):
        path = f"bucket/traces/run-1/trial-0/attempt-1/plugins/host{rank}.trace.json"
        world.api.objects[path] = b'{"traceEvents": []}'

    found = launcher.collect(handle)

    assert found.state is TrialState.SUCCEEDED, found
    assert found.trace_dir is not None
    assert sorted(p.name for p in found.trace_dir.rglob("*.json")) == ["host0.trace.json", "host1.trace.json"]
    said = (Path(handle["local_dir"]) / "rank-0.out").read_text().strip()
    assert said == "gs://bucket/traces/run-1/trial-0/attempt-1"
