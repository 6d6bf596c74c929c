"""Which era a version falls into, and what is said where that is a guess."""

from __future__ import annotations

import itertools
from datetime import date

import pytest

from launchers import frameworks
from launchers.frameworks.commands.eras import day_of, pick, read, release_of
from launchers.frameworks.deployment import Deployment
from runs import catalogue
from tests.launchers.frameworks.commands import command

NAMES = ("torchtitan", "megatron-lm", "maxtext", "vllm", "sglang", "command")


@pytest.mark.parametrize(
    ("framework", "version", "era"),
    [
        ("torchtitan", "0.1.0", "toml-0.1"),
        ("torchtitan", "2025-08-10", "toml-0.1"),
        ("torchtitan", "2025-09-01", "toml-2025-08"),
        ("torchtitan", "0.1.0.dev20251215+cu126", "toml-0.2.0"),
        ("torchtitan", "2025-12-18", "toml-0.2.1"),
        ("torchtitan", "v0.2.0", "toml-0.2.0"),
        ("torchtitan", "0.2.2", "toml-0.2.1"),
        ("torchtitan", "2026-02-22", "toml-0.2.1"),
        ("torchtitan", "2026-02-23", "module-2026-02"),
        ("torchtitan", "2026-04-16", "module-2026-02"),
        ("torchtitan", "20260417", "module-2026-04"),
        ("torchtitan", "2026-06-15", "python-2026-06"),
        ("torchtitan", "2026-08-13", "python-2026-06"),
        ("torchtitan", "2026-08-14", "python-0.3"),
        ("torchtitan", "0.3.0", "python-0.3"),
        ("torchtitan", "2026-08-20", "python-2026-08"),
        ("megatron-lm", "core_r0.12.0", "core-0.12"),
        ("megatron-lm", "0.16.1", "core-0.15"),
        ("megatron-lm", "0.20.0", "core-0.17"),
        ("megatron-lm", "0.11.0", "core-0.10"),
        ("megatron-lm", "core_v0.14.0", "core-0.12"),
        ("maxtext", "2025-09-05", "maxtext-train"),
        ("maxtext", "0.1.0", "maxtext-src"),
        ("maxtext", "2026-02-07", "maxtext-src"),
        ("maxtext", "2026-02-18", "maxtext-configs"),
        ("maxtext", "2026-02-19", "maxtext-trainers"),
        ("vllm", "0.12.0", "vllm-0.11"),
        ("vllm", "0.13.0", "vllm-0.13"),
        ("vllm", "0.13.3", "vllm-0.13"),
        ("vllm", "0.15.1", "vllm-0.14"),
        ("vllm", "v0.16.0", "vllm-0.16"),
        ("sglang", "0.4.10", "sglang-0.4"),
        ("sglang", "0.5.10.post1", "sglang-0.5"),
        ("sglang", "0.5.23", "sglang-0.5.11"),
    ],
)
def test_known_versions_need_no_warning(framework: str, version: str, era: str) -> None:
    found, warning = pick(framework, version)

    assert (found.name, warning) == (era, None)


@pytest.mark.parametrize(
    ("framework", "version", "era", "words"),
    [
        ("torchtitan", "0.0.2", "toml-0.1", "no known era"),
        ("torchtitan", "2024-01-01", "toml-0.1", "no known era"),
        ("torchtitan", "2027-01-01", "python-2026-08", "newer than"),
        ("torchtitan", "main", "python-2026-08", "no release"),
        ("vllm", "0.6.3", "vllm-0.10", "no known era"),
        ("vllm", "0.99", "vllm-0.16", "newer than 0.32.0"),
        ("sglang", "nightly", "sglang-0.5.11", "no release"),
        ("megatron-lm", "3.1", "core-0.17", "newer than 0.20.0"),
        ("megatron-lm", "0.9.0", "core-0.10", "no known era"),
        ("maxtext", "2024-12-01", "maxtext-train", "no known era"),
    ],
)
def test_other_versions_are_taken_as_the_nearest_with_a_warning(
    framework: str, version: str, era: str, words: str
) -> None:
    found, warning = pick(framework, version)

    assert found.name == era
    assert warning is not None and words in warning and version in warning


def test_the_warning_is_a_note_of_the_command_and_the_version_is_recorded() -> None:
    config = {"dp": 4, "dp_shard": 4, "micro_batch_size": 1}
    guessed = command("torchtitan", config, "2031-01-01")

    assert any("2031-01-01" in note for note in guessed.notes)
    assert guessed.framework_version == "torchtitan 2031-01-01 (python-2026-08)"


def test_the_version_is_the_targets_then_the_environments_then_the_default() -> None:
    what = catalogue.workload("wl4")
    bare = catalogue.environment("perlmutter-a100-16")
    adapter = frameworks.get("torchtitan")
    config = {"dp": 4, "dp_shard": 4, "micro_batch_size": 1}
    plan = adapter.plan(config, what, bare)
    carded = catalogue.with_framework(bare, "torchtitan", "0.1.0")

    named = adapter.command(Deployment(config, plan, what, carded))
    settled = adapter.command(Deployment(config, plan, what, carded, {"version": "2026-05-01"}))
    undecided = adapter.command(Deployment(config, plan, what, bare))
    assert "toml-0.1)" in named.framework_version
    assert "module-2026-04)" in settled.framework_version
    assert "toml-0.2.1)" in undecided.framework_version
    assert any("no version of torchtitan is named" in note for note in undecided.notes)


@pytest.mark.parametrize("framework", NAMES)
def test_tables_are_whole(framework: str) -> None:
    """Eras follow each other without gaps, have a source, and spell every knob of the framework's own space."""
    table = read(framework)
    for attribute in ("versions", "dates"):
        bounds = [getattr(era, attribute) for era in table.eras if getattr(era, attribute) != (None, None)]
        assert all(before[1] == after[0] for before, after in itertools.pairwise(bounds)), attribute
    assert all(era.source and era.traces for era in table.eras)
    if framework != "command":
        from launchers.frameworks import templates

        wanted = {knob["key"] for knob in templates.read(framework)["knobs"]} - {"collective_algorithm"}
        assert all(wanted <= set(era.knobs) for era in table.eras)
        vias = [(era, name) for era in table.eras for knob in era.knobs.values() for name in knob.get("via", ())]
        assert all(name in era.facts for era, name in vias)
        assert pick(framework, table.default)[1] is None


def test_days_and_releases_are_read_from_text() -> None:
    assert day_of("0.1.0.dev20251215+cu126") == date(2025, 12, 15) == day_of("2025-12-15") == day_of("main-20251215")
    assert day_of("0.5.10.post1") is None and day_of("2026.08") is None
    assert release_of("core_r0.12.0") == (0, 12, 0) and release_of("main") == ()
