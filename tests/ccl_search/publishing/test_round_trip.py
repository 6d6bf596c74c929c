"""Fifteen trials published from one store, verified, imported into another, replayed there: all through the CLI."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.ccl_search.cli import Cli
from tests.ccl_search.publishing import made

FIVE_MB = 5_000_000


@pytest.mark.slow
def test_fifteen_trials_go_round(cli: Cli, tmp_path: Path) -> None:
    begun = time.process_time()
    card = str(made.small_card(tmp_path / "card.yaml"))
    first = cli("run", "--card", card, "--iterations", "14", "--json").document
    folder, other = tmp_path / "out", ("--home", str(tmp_path / "other"), "--json")

    published = cli("publish", first["run_id"], str(folder), "--json").document
    verified = cli("verify", str(folder), "--json")
    imported = cli("import", str(folder), *other)
    replayed = cli("replay", str(folder), "--environment", "h100-8", *other)

    assert first["trials"] - first["pruned"] == 15
    assert published["trials"] == first["trials"]
    assert sum(map(len, made.tree(folder).values())) == published["bytes"] < FIVE_MB
    assert (verified.code, verified.document["status"]) == (0, "verified")
    run = imported.document["runs"][0]["run_id"]
    shown = cli("best", run, *other).document
    assert (shown["config"], shown["score"]) == (first["best"]["config"], first["best"]["score"])
    assert (replayed.code, replayed.document["parent"]) == (0, run)
    assert json.loads((folder / "trials/01/trial.json").read_text())["traces"][0]["packing"] == "folded"
    assert time.process_time() - begun < 60
