"""Links fitted to nccl-tests: known factors are found again, published figures give what the arithmetic says."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.calibration import Calibration
from backends.dry_run import network_for
from backends.network.collective import Collective
from ccl_search.calibrating import links
from ccl_search.calibrating.links import calibrate_links, collectives, read_files
from runs import catalogue
from runs.errors import BadInputError
from tests.ccl_search.cli import Cli

FILES = Path(__file__).parent / "nccl"
H100, EFA, OLD = (FILES / name for name in ("h100_2x8.txt", "all_reduce_efa_2x1.txt", "v100_4_old.txt"))


def printed(name: str, ranks: list[tuple[str, int]], times: list[tuple[int, float]], share: float, redop: str) -> str:
    """A file as nccl-tests writes it, of these seconds by size."""
    lines = [f"./build/{name}_perf", "# nThread 1 nGpus 1 minBytes 1 maxBytes 1"]
    lines += [
        f"#  Rank  {n} Group  0 Pid 1 on {host} device  {d} [0x00] NVIDIA A100" for n, (host, d) in enumerate(ranks)
    ]
    lines += ["#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong"]
    for size, seconds in times:
        speed = size / seconds * 1e-9
        cells = f"{seconds * 1e6:.6g} {speed:.6g} {speed * share:.6g} 0"
        lines.append(f"{size} {size // 4} float {redop} -1 {cells} {cells}")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1", ""])


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two tests of a cluster whose links within nodes have 0.7 and between nodes 0.25 of their bandwidth."""
    truth = Calibration("truth", bandwidth={"intra_node": 0.7, "inter_node": 0.25})
    environment = catalogue.environment("perlmutter-a100-16")
    network = network_for(environment, truth)
    sizes = [2**power for power in range(20, 33, 3)]
    found = []
    for name, ranks in (("one", range(4)), ("two", range(8))):
        group = tuple(ranks)
        times = [(size, network.time(Collective("all_reduce", float(size), (group,))).seconds) for size in sizes]
        places = [(f"node-{rank // 4}", rank % 4) for rank in group]
        path = tmp_path / f"all_reduce_{name}.txt"
        path.write_text(printed("all_reduce", places, times, 2 * (len(group) - 1) / len(group), "sum"))
        found.append(path)
    return found


def test_known_links_are_found(files: list[Path]) -> None:
    found = calibrate_links(files, "perlmutter-a100", "mine", repeats=1)
    factors = found.calibration
    assert factors.bandwidth["intra_node"] == pytest.approx(0.7, rel=0.05)
    assert factors.bandwidth["inter_node"] == pytest.approx(0.25, rel=0.05)
    assert set(factors.compute.values()) == {1.0}
    assert (factors.launch, factors.step_overhead_s) == (1.0, 0.0)
    assert found.fit["held_out_collectives"]["median_error"]["value"] < 0.05
    assert "held_out" not in found.fit
    assert found.provenance["tests"] == ["all_reduce over 4 ranks on 1 host", "all_reduce over 8 ranks on 2 hosts"]
    assert found.provenance["configs"] == 10


@pytest.mark.slow
def test_published_h100_figures_give_their_share_of_the_cards() -> None:
    # 8 GiB at a bus bandwidth of 338.82 GB/s over 8 cards of 50 GB/s: 0.847 of nominal; smaller sizes pull it down
    said: list[str] = []
    found = calibrate_links([H100], "h100", "mine", repeats=1, notice=said.append)
    assert 0.6 < found.calibration.bandwidth["inter_node"] < 0.9
    assert found.calibration.latency["inter_node"] > 1.5
    assert said == []


def test_published_efa_figures_give_25_gigabits() -> None:
    # 3.12 GB/s of bus bandwidth on a card of 25 GB/s; another device is told of, and that no node had two ranks
    said: list[str] = []
    found = calibrate_links([EFA], "perlmutter-a100-sockets", "mine", repeats=1, notice=said.append)
    assert found.calibration.bandwidth["inter_node"] == pytest.approx(3.12 / 25, rel=0.15)
    assert found.calibration.bandwidth["intra_node"] == 1.0
    assert any("no host has two ranks" in text for text in said)
    assert any("NVIDIA A10G" in text for text in said)


def test_hosts_become_nodes_and_devices_their_places() -> None:
    found = collectives(read_files([H100]), "h100-16")
    assert {one.environment.total_xpus for one in found} == {16}
    assert found[0].collective.groups == (tuple(range(16)),)
    (one, *_) = collectives(read_files([EFA]), "perlmutter-a100-sockets")
    assert one.collective.groups == ((0, 4),)


def test_sendrecv_sends_around(tmp_path: Path) -> None:
    times = [(2**20 * n, 1e-3) for n in range(1, 6)]
    path = tmp_path / "sendrecv.txt"
    path.write_text(printed("sendrecv", [("a", 0), ("a", 1), ("a", 2)], times, 1.0, "sum"))
    (one, *_) = collectives(read_files([path]), "perlmutter-a100")
    assert (one.collective.kind, one.collective.groups) == ("send_recv", ((0, 1), (1, 2), (2, 0)))


@pytest.mark.parametrize(
    ("path", "environment", "word"),
    [
        (H100, None, "does not say what its links are"),
        (H100, "perlmutter-a100", "host host-a runs 8 ranks, a node of perlmutter-a100-16 has 4"),
        (H100, "nowhere", "nowhere"),
        (OLD, "perlmutter-a100", "4 sizes were measured"),
        (FILES / "missing.txt", "h100", "cannot be read"),
    ],
)
def test_what_cannot_be_fitted_is_said(path: Path, environment: str | None, word: str) -> None:
    with pytest.raises(BadInputError, match=word):
        calibrate_links([path], environment, "mine", repeats=1)


def test_from_the_command_line(cli: Cli, files: list[Path], tmp_path: Path) -> None:
    sources = [argument for path in files for argument in ("--from", str(path))]
    found = cli("calibrate", *sources, "--environment", "perlmutter-a100", "--name", "links", "--repeats", "1")
    assert found.code == 0, found.err
    assert "all_reduce over 8 ranks on 2 hosts" in found.err
    assert links.OF in found.err
    listed = cli("calibrate", "--list", "--json").document
    assert listed[0]["factors"]["bandwidth"]["inter_node"] == pytest.approx(0.25, rel=0.05)
    assert "links" in cli("calibrate", "--list").err
    target = tmp_path / "target.yaml"
    target.write_text("name: t\nkind: dry-run\ncalibration: links\n")
    run = cli("run", "--iterations", "0", "--target", str(target), "--screen", "dry-run", "--json")
    assert run.code == 0, run.err
    assert "links has no held-out error" in run.document["screen"]["basis"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--where", "a=b"), "--where is for CSV files"),
        (("--from", "trials.csv"), "several sources are for nccl-tests output"),
        (("--links", "other"), "--links is for step times"),
    ],
)
def test_bad_usage_is_one_clear_line(cli: Cli, arguments: tuple[str, ...], word: str) -> None:
    found = cli("calibrate", "--from", str(H100), "--environment", "h100", "--name", "x", *arguments)
    assert found.code == 2
    assert word in found.err.splitlines()[0]
