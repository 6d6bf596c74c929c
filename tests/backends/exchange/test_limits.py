"""Inputs that are well-formed and beyond all reason: refused in one line that names the file, at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backends.exchange.inputs import load_inputs
from backends.exchange.ns3_config import Ns3Config, read_ns3_config, stock_config, write_ns3_config
from backends.exchange.settings import read_groups, read_logical_topology
from backends.exchange.system import read_system
from backends.exchange.validate import check
from backends.network.formats import read_astra_network, read_ns3_topology
from backends.network.parameters import CongestionControl
from runs.errors import BadInputError
from tests.backends.astra import traces as make
from tests.timing import cpu_seconds

_LONG = "9" * 5000  # more digits than int() takes
_YML = "topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ 300 ]\nlatency: [ 500 ]\n"
_CABLES = "3 1 2\n2\n2 0 400Gbps 0.0005ms 0\n2 1 400Gbps 0.0005ms 0\n"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("preferred-dataset-splits", 10**9), ("preferred-dataset-splits", 10**30), ("endpoint-delay", 10**30),
        ("local-mem-bw", 1e-300), ("local-mem-bw", 1e308), ("peak-perf", 1e-300), ("peak-perf", 10**400),
    ],
)  # fmt: skip
def test_figures_of_a_system_that_no_machine_has(key: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "system.json"
    path.write_text(json.dumps({**make.SYSTEM, key: value}), encoding="utf-8")
    with pytest.raises(BadInputError) as refused:
        read_system(path)
    assert str(path) in refused.value.message
    assert key in refused.value.message
    assert len(refused.value.message) < len(str(path)) + 200


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("300", "1.0e-300"), ("300", "1.0e+300"), ("300", "true"), ("500", ".inf"), ("500", "1.0e+300"),
        ("8", _LONG), ("500", "2026-99-99"), ("Ring", "[Ring]"),
    ],
)  # fmt: skip
def test_figures_of_a_network_that_none_has(old: str, new: str) -> None:
    with pytest.raises(BadInputError, match=r"^net\.yml"):
        read_astra_network(_YML.replace(old, new), "net.yml")


@pytest.mark.parametrize(
    ("old", "new"),
    [("2 0", "2 ²"), ("2 0", f"2 {_LONG}"), ("400Gbps", "1e-12Gbps"), ("400Gbps", "1e20Gbps"), ("0.0005ms", "1e30ms")],
)
def test_cables_that_cannot_be(old: str, new: str) -> None:
    with pytest.raises(BadInputError, match=r"^topo\.txt"):
        read_ns3_topology(_CABLES.replace(old, new, 1), "topo.txt")


def test_numbers_of_more_digits_than_python_reads(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text(json.dumps({"logical-dims": [_LONG]}), encoding="utf-8")
    with pytest.raises(BadInputError, match="logical-dims"):
        read_logical_topology(path)
    path.write_text(json.dumps({_LONG: [0, 1]}), encoding="utf-8")
    with pytest.raises(BadInputError, match="no integer above zero"):
        read_groups(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("PACKET_PAYLOAD_SIZE", "0"), ("PACKET_PAYLOAD_SIZE", _LONG), ("PACKET_PAYLOAD_SIZE", "70000"),
        ("KMIN_MAP", "1 400000000000 99999"), ("PMAX_MAP", "1 400000000000 7"), ("U_TARGET", "nan"),
        ("RATE_AI", "x"), ("RATE_AI", "50"), ("RP_TIMER", "-1"), ("EWMA_GAIN", "much"), ("CC_MODE", "²"),
        ("ERROR_RATE_PER_LINK", "some"),
    ],
)  # fmt: skip
def test_settings_of_ns3_that_it_would_misread(key: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "config.txt"
    stock = stock_config("topo.txt", (400,), CongestionControl.DCQCN, 1000)
    write_ns3_config(path, Ns3Config({**stock.values, key: value}))
    with pytest.raises(BadInputError) as refused:
        read_ns3_config(path)
    assert str(path) in refused.value.message
    assert key in refused.value.message


@pytest.mark.parametrize("control", list(CongestionControl))
def test_the_stock_configuration_is_none_of_them(control: CongestionControl, tmp_path: Path) -> None:
    path = tmp_path / "config.txt"
    write_ns3_config(path, stock_config("topo.txt", (100, 400), control, 1000))
    assert read_ns3_config(path).congestion_control is control


def test_one_rank_of_a_physical_topology_is_refused(tmp_path: Path) -> None:
    written = make.write(tmp_path, [[make.collective(1, 64)]] * 2)
    (tmp_path / "topo.txt").write_text(_CABLES, encoding="utf-8")
    (tmp_path / "logical.json").write_text('{"logical-dims": ["1"]}', encoding="utf-8")
    inputs = load_inputs(
        written.et_prefix, written.system, physical=tmp_path / "topo.txt", logical=tmp_path / "logical.json"
    )
    assert any(one.severity == "error" and "there are 1 ranks" in one.what for one in check(inputs))


def test_a_huge_group_is_looked_through_once(tmp_path: Path) -> None:
    nodes = [make.collective(number, 64, (), "1") for number in range(1, 200)]
    paths = make.write(tmp_path, [nodes] * 2, groups={"1": list(range(200_000))})
    assert any("group 1 has rank 199999, the network has 2" in one.what for one in check(paths.load()))
    assert cpu_seconds(lambda: check(paths.load())) < 1.0  # once for each node: several seconds


def test_ranks_on_links_of_different_rates_are_warned_of(tmp_path: Path) -> None:
    """The real NS-3 takes 259 µs for 1 MiB over 4 ranks of 400 and 4 of 100 Gb/s, the model 176 (docs/exchange.md)."""
    written = make.write(tmp_path, [[make.collective(1, 2**20)]] * 2)
    found = {}
    for name, text in {"even": _CABLES, "uneven": _CABLES.replace("400", "100", 1)}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        findings = check(load_inputs(written.et_prefix, written.system, physical=tmp_path / name))
        found[name] = [one for one in findings if "links of 100 to 400 Gb/s" in one.what]
    assert found["even"] == []
    assert [(one.severity, one.tool) for one in found["uneven"]] == [("warning", "flow")]
