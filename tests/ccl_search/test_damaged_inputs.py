"""`simulate --et` on files damaged at random: an answer or one line that names a file, never a crash or a hang."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ccl_search.cli import Cli
from tests.ccl_search.test_simulating_raw import message, work, write

SEEDS = range(48)
LONGEST_S = 20.0


def truncated(draw: random.Random, path: Path, _other: Path) -> None:
    path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size)])


def flipped(draw: random.Random, path: Path, _other: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, 8)):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def spliced(draw: random.Random, path: Path, other: Path) -> None:
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(first[: draw.randrange(len(first))] + second[draw.randrange(len(second)) :])


def swapped(_draw: random.Random, path: Path, other: Path) -> None:
    first = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(first)


def a_figure_replaced(draw: random.Random, path: Path, _other: Path) -> None:
    text = path.read_bytes().decode("latin-1")
    figures = [place for place, char in enumerate(text) if char.isdigit()]
    place = draw.choice(figures) if figures else 0
    strange = draw.choice(["-1", "0", "1e400", "NaN", "9" * 30, "null", '"x"', "[]", "0.5", "\udcff"])
    path.write_bytes((text[:place] + strange + text[place + 1 :]).encode("latin-1", "replace"))


def emptied(_draw: random.Random, path: Path, _other: Path) -> None:
    path.write_bytes(b"")


def missing(_draw: random.Random, path: Path, _other: Path) -> None:
    path.unlink()


def a_folder(_draw: random.Random, path: Path, _other: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: tuple[Callable[[random.Random, Path, Path], None], ...] = (
    truncated, flipped, spliced, swapped, a_figure_replaced, emptied, missing, a_folder,
)  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_inputs_give_an_answer_or_one_line(seed: int, cli: Cli, tmp_path: Path) -> None:
    draw = random.Random(seed)
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    command = write(
        inputs,
        [work(1, 10**9), message(2, True, 2**20, 1), work(3, 10**9, 1)],
        [message(1, False, 2**20), work(2, 2 * 10**9, 1)],
    )
    network = draw.choice(["--network network.yml", "--physical-topology physical.txt"]).split()
    used = [inputs / name for name in ("w.0.et", "w.1.et", "system.json", network[1])]
    path, other = draw.sample(used, 2)
    damage = DAMAGES[seed % len(DAMAGES)]
    damage(draw, path, other)
    started = time.monotonic()

    found = cli(*command, network[0], str(inputs / network[1]), "--json")

    told = f"{damage.__name__} {path.name} ({other.name}): exit {found.code}\n{found.err}"
    assert time.monotonic() - started < LONGEST_S, told
    assert "Traceback" not in found.err, told
    if found.code == 0:
        assert found.document["wall_ns"] > 0, told
    else:
        assert found.code == 2, told
        assert found.out == "", told
        assert any(name.name in found.err for name in used) or "w.*.et" in found.err or str(inputs) in found.err, told
    shutil.rmtree(inputs)
