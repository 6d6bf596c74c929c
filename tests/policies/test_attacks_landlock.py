"""Every attack against full Python shut in by Landlock and seccomp, also where bubblewrap would work."""

from __future__ import annotations

import pytest

from tests.policies.arena import Arena, check_attack
from tests.policies.attacks import ATTACKS, Attack


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack(attack: Attack, arena: Arena) -> None:
    check_attack(attack, "landlock+seccomp", arena)
