"""A stand-in service and real workers, started once for a file; a clean world for every test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from importlib import util
from pathlib import Path

import pytest

from tests.tpu.api import TpuApi
from tests.tpu.workers import Workers, hindrance
from tests.tpu.world import World, missing


@pytest.fixture(scope="session")
def all_workers() -> Iterator[Workers]:
    if reason := hindrance():
        missing(reason)
    if not _has_client():
        missing("google-cloud-tpu is not installed (pip install 'ccl-search[tpu]')")
    # Not below /tmp: every worker has a /tmp of its own mounted there.
    workers = Workers(Path(tempfile.mkdtemp(prefix="ccl-tpu-", dir="/var/tmp")), 4)
    try:
        workers.ensure()
        yield workers
    finally:
        workers.stop()


@pytest.fixture(scope="session")
def service(all_workers: Workers) -> Iterator[TpuApi]:
    api = TpuApi(all_workers.addresses, on_key=all_workers.allow)
    yield api
    api.stop()


@pytest.fixture
def world(service: TpuApi, all_workers: Workers, tmp_path: Path) -> Iterator[World]:
    service.reset()
    service.polls = 1
    all_workers.ensure()
    made = World(service, all_workers, tmp_path)
    yield made
    for worker in all_workers.all:
        if worker.processes("program.sh"):
            worker.kill()
    all_workers.wipe()


def _has_client() -> bool:
    try:
        return util.find_spec("google.cloud.tpu_v2") is not None
    except ModuleNotFoundError:
        return False
