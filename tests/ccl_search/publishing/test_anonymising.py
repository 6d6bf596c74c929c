"""Anonymised folders: no name is left, what was done is said, and the folder still holds against its own evidence."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccl_search import assembly
from ccl_search.publishing.folding import unfold
from ccl_search.publishing.names import Redactor, found_in
from ccl_search.publishing.rewriting import LARGEST, OperatorNames, TraceRewriter, Warp
from ccl_search.publishing.verifying import verify
from policies.reading import open_published
from runs.errors import BadInputError
from tests.ccl_search.publishing import made

SECRETS = ("jdoe", "nid004217", "gauss-login", "/pscratch/sd/j/jdoe", "jane.doe@example.org", "10.249.7.31", "m4999")


@pytest.fixture(scope="module")
def secretive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose run names people and machines in every place where names can be."""
    place = tmp_path_factory.mktemp("secretive")
    card = made.small_card(
        place / "card.yaml",
        contributor="Jane Doe",
        contact="jane.doe@example.org",
        trace_url="/pscratch/sd/j/jdoe/traces",
        description="run by jdoe on gauss-login",
    )
    run = made.search(place / "home", card, 1)
    for path in (place / "home").rglob("trace/*.json.gz"):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        trace["hostname"], trace["traceName"] = "nid004217", "/pscratch/sd/j/jdoe/traces/rank0.json"
        trace["traceEvents"][5]["args"]["log"] = "10.249.7.31 jdoe@gauss-login: /home/jdoe/train.py"
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    with assembly.open_store(str(place / "home"), write=True) as store:
        store.set_notes(run, "account: 'm4999', mail jane.doe@example.org")
    for path in (place / "home").rglob("execution.json"):
        told = json.loads(path.read_text())
        told["provenance"] |= {"nodes": ["nid004217"], "user": "jdoe", "login": "gauss-login"}
        path.write_text(json.dumps(told))
    return place / "home"


def everything(folder: Path) -> str:
    """All text of a folder, compressed files too."""
    found = []
    for name, data in made.tree(folder).items():
        found.append(name)
        found.append((gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8", "replace"))
    return "\n".join(found)


def test_without_anonymising_the_names_are_there(secretive: Path, tmp_path: Path) -> None:
    made.published(secretive, tmp_path / "open")

    text = everything(tmp_path / "open")
    assert [name for name in SECRETS if name not in text] == []


@pytest.mark.parametrize("options", [{}, {"redact_operators": True}, {"perturb": True}, {"metrics_only": True}])
def test_an_anonymised_folder_holds_none_of_the_names(
    options: dict[str, bool], secretive: Path, tmp_path: Path
) -> None:
    made.published(secretive, tmp_path / "out", anonymise=True, **options)

    text = everything(tmp_path / "out")
    assert [name for name in (*SECRETS, "Jane Doe", str(secretive)) if name in text] == []
    with open_published(tmp_path / "out") as published:
        found = verify(published)
        assert published.manifest["anonymised"]["done"]
    assert found.status == ("unverifiable" if options.get("metrics_only") else "verified"), found.findings


def test_a_name_only_the_publisher_knows_is_redacted_when_told(secretive: Path, tmp_path: Path) -> None:
    made.published(secretive, tmp_path / "out", anonymise=True, names=("tiny",))

    assert "tiny" not in everything(tmp_path / "out").replace("tiny-llama", "")


def test_operators_are_redacted_and_collectives_stay(home: Path, tmp_path: Path) -> None:
    made.published(home, tmp_path / "open")
    made.published(home, tmp_path / "out", anonymise=True, redact_operators=True)

    assert "flash_fwd_kernel" in traces_of(tmp_path / "open")
    redacted = traces_of(tmp_path / "out")
    assert all(name not in redacted for name in ("flash", "gemm", "rms_norm", "_proj", "attention"))
    assert "ncclDevKernel" in redacted
    assert "ProfilerStep#" in redacted


def traces_of(folder: Path) -> str:
    """The profiler's files of every trial."""
    found = []
    for path in folder.glob("trials/*/trial.json"):
        for facts in json.loads(path.read_text())["traces"]:
            data = gzip.decompress((path.parent / facts["file"]).read_bytes())
            found.append((unfold(data, facts["size"]) if facts["packing"] == "folded" else data).decode())
    return "".join(found)


def test_perturbed_values_are_others_and_follow_from_the_perturbed_traces(home: Path, tmp_path: Path) -> None:
    made.published(home, tmp_path / "open")
    made.published(home, tmp_path / "out", anonymise=True, perturb=True, perturb_seed=11)
    made.published(home, tmp_path / "again", anonymise=True, perturb=True, perturb_seed=11)

    values = []
    for folder in ("open", "out"):
        told = json.loads((tmp_path / folder / "trials/01/metrics.json").read_text())["metrics"]
        values.append(told["step_compute_time"]["value"])
    assert values[0] != values[1]
    assert abs(values[1] / values[0] - 1) < LARGEST
    with open_published(tmp_path / "out") as published:
        assert verify(published).status == "verified"
        assert published.manifest["anonymised"]["perturbation"] == {"seed": 11, "largest": LARGEST}
    assert made.tree(tmp_path / "out") == made.tree(tmp_path / "again")


def test_no_true_time_is_left_in_a_perturbed_folder(home: Path, tmp_path: Path) -> None:
    with assembly.open_store(str(home), write=False) as store:
        trials = store.trials(store.run("latest").id)
    made.published(home, tmp_path / "out", anonymise=True, perturb=True)

    text = everything(tmp_path / "out")
    for trial in trials:
        for name in ("avg_step_time", "step_exposed_comm_time"):
            assert f"{trial.values[name]:.7g}" not in text, name


def test_a_trace_that_cannot_be_read_is_not_published_as_anonymised() -> None:
    with pytest.raises(BadInputError, match="cannot be anonymised"):
        TraceRewriter(Redactor()).rewritten(b"SQLite format 3\x00....", "trace/report.sqlite")


@given(st.integers(0, 2**31), st.integers(0, 40), st.lists(st.floats(0, 1e9), min_size=2, max_size=30, unique=True))
def test_the_warp_keeps_order_and_bounds(seed: int, trial: int, times: list[float]) -> None:
    warp = Warp.of(seed, trial)

    ordered = sorted(times)
    for early, late in pairwise(ordered):
        gap = late - early
        slack = 1e-6 + 1e-9 * late
        assert (1 - LARGEST) * gap - slack <= warp(late) - warp(early) <= (1 + LARGEST) * gap + slack


def test_device_clocks_of_xla_events_move_with_the_event() -> None:
    event = {"ph": "X", "name": "fusion", "ts": 100.0, "dur": 10.0,
             "args": {"device_offset_ps": "100000000", "device_duration_ps": 10000000}}  # fmt: skip
    warp = Warp.of(1, 0)
    rewriter = TraceRewriter(Redactor(), None, warp)

    found = json.loads(rewriter.rewritten(json.dumps({"traceEvents": [event]}).encode(), "t.json"))["traceEvents"][0]

    assert found["ts"] == pytest.approx(warp(100.0), abs=1e-3)
    assert found["dur"] == pytest.approx(warp(110.0) - warp(100.0), abs=1e-3)
    assert int(found["args"]["device_offset_ps"]) == pytest.approx(1e6 * warp(100.0), abs=2)
    assert found["args"]["device_duration_ps"] == pytest.approx(1e6 * (warp(110.0) - warp(100.0)), abs=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://huggingface.co/meta-llama/Llama-3.1-8B", "see https://huggingface.co/meta-llama/Llama-3.1-8B"),
        ("#!/usr/bin/env bash", "#!/usr/bin/env bash"),
        ("ratio 3/4, tp 2/pp 4 and/or", "ratio 3/4, tp 2/pp 4 and/or"),
        ("version 0.2.2 of torch 2.10.0", "version 0.2.2 of torch 2.10.0"),
        ("/device:TPU:0 XLA Ops", "/device:TPU:0 XLA Ops"),
        ("File /home/ann/a b", "File path-1 b"),
        ("--out=/data/x/y.json /data/x/y.json /data/z/w", "--out=path-1 path-1 path-2"),
        ("cd ~ann/runs; ls ~/x/y", "cd path-1; ls path-2"),
        ("mail a.b@c.org or d@e.net, again a.b@c.org", "mail mail-1 or mail-2, again mail-1"),
        ("rank 0 at 10.0.0.1:29500", "rank 0 at address-1:29500"),
        ("nid1, nid10 and xnid1", "host-1, nid10 and xnid1"),
    ],
)
def test_names_become_neutral_words_and_other_text_stays(text: str, expected: str) -> None:
    assert Redactor(hosts=("nid1",)).text(text) == expected


def test_names_are_found_by_key_and_in_paths() -> None:
    documents = [{"provenance": {"node_list": ["nid7", "nid8"], "user": "carl"}}, "tar: /home/berta/x: no such file"]

    assert found_in(documents) == ({"nid7", "nid8"}, {"carl", "berta"})


def test_one_operator_has_one_name_in_all_trials() -> None:
    names = OperatorNames()

    words = [names.of(name, "kernel") for name in ("gemm_a", "gemm_b", "gemm_a")]
    assert words[0] == words[2] != words[1]
    assert names.of("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy") == "Memcpy HtoD (Pinned -> Device)"
