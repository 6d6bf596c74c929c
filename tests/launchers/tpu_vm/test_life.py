"""A job's life on slices, with real ssh servers as workers: success, failures of every kind, crash and re-attach."""

from __future__ import annotations

import json

from runs.trial import TrialState
from tests.tpu.world import OK, World


def test_a_job_runs_on_every_worker_and_its_slice_is_deleted(world: World) -> None:
    launcher = world.launcher()
    handle = launcher.submit(world.job(OK + "hostname; pwd\n"))
    json.loads(json.dumps(handle))

    world.until(launcher, handle)
    found = launcher.collect(handle)

    assert found.state is TrialState.SUCCEEDED, found
    assert found.trace_dir is not None
    traces = sorted(str(path.relative_to(found.trace_dir)) for path in found.trace_dir.rglob("*.json"))
    assert traces == [f"worker-{i}/trace_{i}.json" for i in range(4)]
    assert found.provenance["hosts"] == {str(i): f"t1v-n-test-w-{i}" for i in range(4)}
    world.api.settle()
    assert world.api.names() == []
