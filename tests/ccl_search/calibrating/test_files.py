"""Calibration files as people may have edited them: used, or refused in one line that names the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccl_search.calibrating.files import read
from runs.errors import BadInputError


def written(folder: Path, factors: str, more: str = "") -> Path:
    path = folder / "edited.yaml"
    path.write_text(f"format: 1\nname: edited\nfactors: {factors}\n{more}", encoding="utf-8")
    return path


def test_an_edited_file_is_read(tmp_path: Path) -> None:
    found = read(written(tmp_path, "{compute: {gemm: 0.8}, launch: 2}", "provenance: {source: by hand}\n")).calibration

    assert (found.name, found.compute, found.launch, found.source) == ("edited", {"gemm": 0.8}, 2.0, "by hand")
    assert found.bandwidth == {}


@pytest.mark.parametrize(
    ("factors", "more", "told"),
    [
        ("{compute: 0.1}", "", "compute: 0.1 is no mapping"),
        ("{bandwidth: [0.1]}", "", "bandwidth: [0.1] is no mapping"),
        ("{launch: {gemm: 1}}", "", "launch: {'gemm': 1} is no number"),
        ("{compute: {gemm: {a: 1}}}", "", "compute.gemm: {'a': 1} is no number"),
        ("{compute: {gemm: true}}", "", "compute.gemm: True is no number"),
        ("{compute: {gemm: 0}}", "", "gemm is no positive finite number"),
        ("{launch: .nan}", "", "launch is no positive finite number"),
        ("{speed: 1}", "", "unknown factor speed"),
        ("{launch: 1, launch: 2}", "", "launch"),
        ("{launch: 1}", "fit: [1]\n", "fit is no mapping"),
        ("{launch: 1}", "provenance: by hand\n", "provenance is no mapping"),
        ("[1]", "", "lacks name or factors"),
    ],
)
def test_what_is_no_calibration_is_refused(factors: str, more: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as caught:
        read(written(tmp_path, factors, more))

    assert told in caught.value.message
    assert "edited" in caught.value.message
