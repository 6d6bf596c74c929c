"""Sampled ranks: which they are, and that Megatron-LM is told of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from launchers.frameworks.commands.sampling import sampled_ranks
from tests.launchers.frameworks.commands import command, training


@given(st.sets(st.integers(0, 500), min_size=1), st.integers(1, 20))
def test_a_sample_has_the_ends_and_as_many_as_asked(ranks: set[int], count: int) -> None:
    chosen = sampled_ranks(ranks, count)

    assert set(chosen) <= ranks and len(set(chosen)) == len(chosen) == min(count, len(ranks))
    assert chosen[0] == min(ranks) and chosen == sorted(chosen)
    assert count == 1 or chosen[-1] == max(ranks)


def test_a_sample_is_spread_evenly() -> None:
    assert sampled_ranks(range(16), 4) == [0, 5, 10, 15]
    assert sampled_ranks(range(32), 3) == [0, 16, 31]
    assert sampled_ranks(range(4), 9) == [0, 1, 2, 3]


def test_megatron_profiles_the_sampled_ranks_only() -> None:
    config = {"tp": 4, "dp": 4, "micro_batch_size": 1}
    made = command("megatron-lm", config, "0.12.0", training(batch_size=16, seq_len=1024), trace_ranks=4)
    at = made.argv.index("--profile-ranks")

    assert made.argv[at + 1 : at + 5] == ("0", "5", "10", "15")
    assert len(made.argv) == at + 5 or made.argv[at + 5].startswith("--")
    assert made.trace_count == 4
