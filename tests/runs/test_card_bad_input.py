"""Repairs, and files no card can be made of: one clear line each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runs.card import CardError, load_card, parse_card
from runs.card.repairs import DROPPED, QUOTED, quoted
from tests.runs.test_card import CARD

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 2000))


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("", "empty", None),
        ("# nothing\n\n", "empty", None),
        ("- a\n- b\n", "not_a_mapping", 1),
        ("\nhello world\n", "not_a_mapping", 2),
        ("Dear all\nplease: read: this: first\n", "not_yaml", 2),
        ("workload:\n\tmodel: 1\n", "not_yaml", 2),
        ("workload: [1, 2\n", "not_yaml", 2),
        ("version: 1\n", "workload_missing", 1),
        ("version: 1\nworkload:\n", "workload_missing", 1),
        ("version: 1\nworkload: [1]\n", "section_not_mapping", 2),
        ("workload:\n  model: {}\n  data: 5\n", "section_not_mapping", 3),
        ("workload: {}\nModel-executor:\n  framework: vllm\n", "section_not_mapping", 3),
        ("workload:\n  data: {}\n  model: {}\n  data: {}\n", "duplicate_key", 4),
        ("workload: {model: {phase: a, phase: a}}\n", "duplicate_key", 1),
        ("runs:\n- {a: 1}\n- b: 1\n  b: 2\nworkload: {}\n", "duplicate_key", 4),
        ("workload: &w {model: {x: *w}}\n", "alias_bomb", 1),
        (BOMB + "workload: {}\n", "alias_bomb", None),
        (CHAIN + "workload: {}\n", "alias_bomb", None),
        ("workload:\n  " + "- " * 5000 + "x\n", "too_deep", 2),
        ("version: 1\nworkload: {model: {phase: 2024-13-45}}\n", "not_yaml", 2),
        ("version: " + "9" * 5000 + "\nworkload: {}\n", "not_yaml", 1),
        ("workload: {}\nx: " + "1:" * 50_000 + "1\n", "not_yaml", 2),
        ("version: 1\nworkload: !!python/object/apply:os.getcwd []\n", "not_yaml", 2),
        ("workload: {}\n---\nworkload: {}\n", "not_yaml", 2),
        ("workload: {}\ndescription: \x07\n", "not_yaml", 2),
        ("workload: {}\nx: *nothing\n", "not_yaml", 2),
        ("description: one\n  two: three\nworkload: {}\n", "not_yaml", 2),
        ("x" * 5_000_001, "too_large", None),
    ],
)
def test_unusable_text(text: str, code: str, line: int | None) -> None:
    with pytest.raises(CardError) as caught:
        parse_card(text, "bad.yaml")
    told = caught.value
    assert [(each.code, each.line, each.severity) for each in told.findings] == [(code, line, "error")]
    assert told.message.startswith("bad.yaml")
    assert "\n" not in told.message
    assert told.hint
    assert told.exit_code == 2


def test_nesting_beyond_reason_is_refused_whatever_the_yaml_library_says() -> None:
    with pytest.raises(CardError, match=r"deep\.yaml:1: .*(nest|deep)"):
        parse_card("workload: " + "[" * 5000 + "]" * 5000, "deep.yaml")


def test_every_duplicate_is_listed() -> None:
    with pytest.raises(
        CardError, match=r"c\.yaml:3: key 'moe' is given twice, first on line 2 \(and 1 more\)"
    ) as caught:
        parse_card("workload: {model: {\n  moe: true,\n  moe: false, phase: a,\n  phase: b}}\n", "c.yaml")
    assert [each.line for each in caught.value.findings] == [3, 4]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"\x7fELF\x02\x01\x01\0\0\0", "not_text"),
        (b"\x89PNG\r\n\x1a\n\0\0", "not_text"),
        ("workload: {model: {model_family: é}}".encode("latin-1"), "not_text"),
        (b"\0\0\0\0", "not_text"),
        (b" " * 5_000_001, "too_large"),
    ],
)
def test_unusable_files(tmp_path: Path, content: bytes, code: str) -> None:
    path = tmp_path / "card.yaml"
    path.write_bytes(content)
    with pytest.raises(CardError) as caught:
        load_card(path)
    assert [each.code for each in caught.value.findings] == [code]


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text(CARD)
    secret.chmod(0)
    unreadable = [tmp_path, tmp_path / "absent.yaml", tmp_path / "absent" / "card.yaml"]
    for path in [*unreadable, *([secret] if os.geteuid() else [])]:
        with pytest.raises(CardError, match="cannot read"):
            load_card(path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_no_problem(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "card.yaml"
    path.write_bytes(CARD.replace("two nodes", "zwölf Knoten").encode(encoding))
    assert load_card(path).card.description == "training on zwölf Knoten"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("trace_url: https://a.b/ // TOD: x", "trace_url: 'https://a.b/ // TOD: x'"),
        ("  a: it's b: c  # why: this", "  a: 'it''s b: c'  # why: this"),
        ("  - a: b: c", "  - a: 'b: c'"),
        ("a: 'b: c' d", None),
        ("a: b # c: d", None),
        ("a: b", None),
        ("a: [b: c: d]", None),
    ],
)
def test_quoting_keeps_comments_and_quotes(line: str, expected: str | None) -> None:
    assert quoted(line) == expected


def test_repairs_are_reported_and_keep_the_lines_of_everything_else() -> None:
    text = CARD.replace("two nodes", "nodes: two").replace("seq_len: 1024", "oops\n    seq_len: 0")
    loaded = parse_card(text)
    lines = text.splitlines()
    assert [(each.line, each.rule, each.text) for each in loaded.repairs] == [
        (2, QUOTED, "description: training on nodes: two"),
        (lines.index("    oops") + 1, DROPPED, "oops"),
    ]
    assert loaded.card.description == "training on nodes: two"
    zero = next(each for each in loaded.findings if each.code == "not_positive")
    assert zero.line == lines.index("    seq_len: 0") + 1
    assert [each.line for each in loaded.findings if each.code == "repaired"] == [each.line for each in loaded.repairs]


@pytest.mark.parametrize("place", ["  data:\n", "    seq_len: 1024\n", "    dataset: c4\n"])
def test_a_lone_word_is_dropped_wherever_it_stands_in_a_block(place: str) -> None:
    loaded = parse_card(CARD.replace(place, f"{place}    i\n"))
    assert [each.text for each in loaded.repairs] == ["i"]
    assert loaded.card == parse_card(CARD).card


def test_strict_text_is_never_repaired() -> None:
    text = CARD.replace("training on two nodes", "'a: b'").replace("dataset: c4", "dataset:\n      c4")
    assert not parse_card(text).repairs


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60), st.integers(0, len(CARD)), st.integers(0, 30))
@example("\x85", 40, 0)
@example("\ud800", 40, 0)
@example("&a *a", CARD.index("8030261248"), 10)
def test_damaged_cards_are_read_or_refused_but_never_crash(noise: str, at: int, cut: int) -> None:
    text = CARD[:at] + noise + CARD[at + cut :]
    try:
        loaded = parse_card(text)
    except CardError as error:
        assert error.message
        assert "\n" not in error.message
    else:
        assert len(loaded.card.normalised()) == 19
