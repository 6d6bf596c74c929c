"""Quoting: what goes into a script comes out of bash as it went in, and slots become values."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from launchers.shell.command import Slot, shape
from launchers.shell.quoting import export, here_document, join, quote, slurm_path
from runs.errors import BadInputError

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40)


def said(script: str, **environment: str) -> str:
    return subprocess.run(["bash", "-c", script], capture_output=True, check=True, env=environment).stdout.decode()


@settings(max_examples=40, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=4))
def test_words_come_out_of_bash_as_they_went_in(words: list[str]) -> None:
    assume(not any(slot.value in word for slot in Slot for word in words))
    assert said(f"printf '%s\\0' {join(words)}").split("\0")[:-1] == words


@settings(max_examples=20, deadline=None)
@given(TEXT)
def test_a_here_document_holds_any_text(text: str) -> None:
    wanted = text.rstrip("\n")
    assert said(here_document("x", text) + 'printf %s "$x"').rstrip("\n") == wanted.rstrip("\n")


def test_a_here_document_is_not_ended_by_its_own_delimiter() -> None:
    text = "a\nCCL_AGENT\nCCL_AGENT_\n$(id)"
    assert said(here_document("x", text) + 'printf %s "$x"').rstrip("\n") == text


def test_slots_become_values_and_nothing_else_does() -> None:
    word = f"--dir={Slot.TRACE_DIR}/x y/$CCL_TRACE_DIR@CCL_OTHER@"
    assert said(f"printf %s {quote(word)}", CCL_TRACE_DIR="/t 'q'") == "--dir=/t 'q'/x y/$CCL_TRACE_DIR@CCL_OTHER@"


def test_every_slot_has_a_variable_of_its_own() -> None:
    assert len({slot.variable for slot in Slot}) == len(Slot)
    assert all(slot.variable.startswith("CCL_") for slot in Slot)


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A=B", "A\n"])
def test_names_that_no_shell_exports_are_refused(name: str) -> None:
    with pytest.raises(BadInputError, match="cannot be an environment variable"):
        export(name, "x")


def test_a_nul_byte_is_refused() -> None:
    with pytest.raises(BadInputError, match="NUL"):
        quote("a\0b")


@pytest.mark.parametrize(("path", "pattern"), [("/a b/%j", "/a b/%%j"), ("/a\\b%j", "/a\\\\b%j"), ("/plain", "/plain")])
def test_nothing_in_a_path_is_a_pattern(path: str, pattern: str) -> None:
    assert slurm_path(path) == pattern


@pytest.mark.parametrize(
    ("world", "per_node", "wanted"),
    [(12, 4, (3, 4)), (6, 4, (2, 3)), (2, 4, (1, 2)), (16, 8, (2, 8)), (5, 4, (5, 1)), (1, 8, (1, 1)), (9, 4, (3, 3))],
)
def test_shapes_are_equal_shares_of_as_few_nodes_as_hold_them(
    world: int, per_node: int, wanted: tuple[int, int]
) -> None:
    assert shape(world, per_node) == wanted


def test_no_shape_without_devices() -> None:
    with pytest.raises(BadInputError):
        shape(0, 4)
