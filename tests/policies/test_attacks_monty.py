"""Every attack against the Monty sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from policies.monty_runner import MontyRunner
from policies.runner import PolicyLimits
from tests.policies.arena import MEMORY, SECONDS, Arena, harmless, outcome
from tests.policies.attacks import ATTACKS, SECRET, Attack, body


@pytest.fixture(scope="module")
def runner() -> Iterator[MontyRunner]:
    made = MontyRunner(limits=PolicyLimits(seconds=SECONDS, memory_bytes=MEMORY))
    assert outcome(made, body("return {'tp': 1}"))[0] == "ok"
    yield made
    made.close()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack(attack: Attack, runner: MontyRunner, arena: Arena) -> None:
    with harmless(arena, SECONDS * 2 + 3, replaced_workers=1):
        kind, text = outcome(runner, arena.source(attack))
    assert kind in attack.monty.split("|"), text
    assert SECRET not in text
    assert len(text) < 20_000
    assert outcome(runner, body("return {'tp': 2, 'x': True}")) == ("ok", "{'tp': 2, 'x': True}")
