"""Every attack against the Monty sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from policies.monty_runner import MontyRunner
from policies.runner import PolicyLimits
from tests.policies.arena import MEMORY, Arena, harmless, outcome
from tests.policies.attacks import ATTACKS, SECRET, Attack, body


@pytest.fixture(scope="module")
def runners() -> Iterator[dict[float, MontyRunner]]:
    made = {s: MontyRunner(limits=PolicyLimits(seconds=s, memory_bytes=MEMORY)) for s in {a.seconds for a in ATTACKS}}
    for runner in made.values():
        assert outcome(runner, body("return {'tp': 1}"))[0] == "ok"
    yield made
    for runner in made.values():
        runner.close()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack(attack: Attack, runners: dict[float, MontyRunner], arena: Arena) -> None:
    runner = runners[attack.seconds]
    with harmless(arena, attack.seconds + 3, replaced_workers=1):
        kind, text = outcome(runner, arena.source(attack))
    assert kind in attack.monty.split("|"), text
    assert SECRET not in text
    assert len(text) < 20_000
    assert outcome(runner, body("return {'tp': 2, 'x': True}")) == ("ok", "{'tp': 2, 'x': True}")
