"""Every attempt to break out of full Python shut in by bubblewrap; bad results are tried under Landlock only."""

from __future__ import annotations

import pytest

from tests.policies.arena import Arena, check_attack
from tests.policies.attacks import BREAKOUTS, Attack


@pytest.mark.parametrize("attack", BREAKOUTS, ids=lambda attack: attack.name)
def test_attack(attack: Attack, arena: Arena) -> None:
    check_attack(attack, "bubblewrap", arena)
