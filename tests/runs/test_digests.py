"""Digests against the published test vector of SHA-256 (FIPS 180-2, appendix B.1)."""

from __future__ import annotations

import hashlib
from pathlib import Path

from runs.digests import file_sha256, text_sha256

OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_text_and_a_file_of_the_same_bytes_have_the_published_digest(tmp_path: Path) -> None:
    place = tmp_path / "abc"
    place.write_bytes(b"abc")

    assert text_sha256("abc") == file_sha256(place) == OF_ABC


def test_texts_are_taken_in_utf_8_and_lone_surrogates_are_no_error() -> None:
    assert text_sha256("é") == hashlib.sha256(b"\xc3\xa9").hexdigest()
    assert text_sha256("\udc80") == hashlib.sha256(b"\xed\xb2\x80").hexdigest()
