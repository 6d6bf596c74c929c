"""Reading YAML files of users: what cannot be meant is refused in one line with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchers.target_file import load_target
from runs import space
from runs.errors import BadInputError
from runs.yaml_file import MAX_BYTES, parse_yaml, read_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n" for before, name in zip("abcdef", "bcdefg", strict=True)
)
BAD = {
    "empty": (b"", "is empty"),
    "blank": (b"# nothing\n---\n", "is empty"),
    "binary": (b"name: \xff\xfe", "no UTF-8 text .byte 7"),
    "deep": (b"[" * 3000 + b"]" * 3000, "line 1: exceeded maximum nesting depth"),
    "deeper": (b"[" * 60 + b"]" * 60, "line 1 is nested more than 50 deep"),
    "twice": (b"name: a\nkind: local\nname: b\n", "line 3 gives 'name' again, first on line 1"),
    "twice_inside": (b"a:\n  - {b: 1, b: 2}\n", "line 2 gives 'b' again, first on line 2"),
    "bomb": (BOMB.encode(), "more than 100000 values, aliases written out"),
    "snake": (b"a: &a [*a]\n", "an alias refers to itself"),
    "broken": (b"a: b: c: ]\n", "is no YAML: line 1: mapping values are not allowed"),
    "digits": (b"a: " + b"9" * 10_000, "has a value that cannot be read: Exceeds the limit"),
    "day": (b"a: 2026-99-99\n", "has a value that cannot be read: month must be in 1..12"),
    "huge": (b"a: " + b"b" * MAX_BYTES, "is larger than 5000000 bytes"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_used_is_refused_in_one_short_line(tmp_path: Path, kind: str) -> None:
    content, message = BAD[kind]
    path = tmp_path / "file.yaml"
    path.write_bytes(content)

    with pytest.raises(BadInputError, match=message) as caught:
        read_yaml(path, "the file", "mend it")

    assert caught.value.message.startswith(f"the file {path}")
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < len(str(path)) + 150
    assert caught.value.hint


@pytest.mark.parametrize("kind", BAD)
def test_spaces_and_target_files_are_read_so(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(BAD[kind][0])

    with pytest.raises(BadInputError, match=f"^the space {path}"):
        space.load(path)
    with pytest.raises(BadInputError, match=f"^the target file {path}"):
        load_target(path)


def test_aliases_that_only_save_words_are_read() -> None:
    text = "base: &base {tp: [1, 2]}\nother: *base\nmore:\n  <<: *base\n  pp: [1]\n"

    assert parse_yaml(text, "text", "") == {
        "base": {"tp": [1, 2]},
        "other": {"tp": [1, 2]},
        "more": {"tp": [1, 2], "pp": [1]},
    }


def test_a_space_with_more_knobs_than_a_config_may_have_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.yaml"
    path.write_text("knobs:\n" + "".join(f"  - {{key: k{place}, choices: [1]}}\n" for place in range(65)))

    with pytest.raises(BadInputError, match="65 knobs; a policy may give 64"):
        space.load(path)
