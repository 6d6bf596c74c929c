"""SHA-256 digests, in hexadecimal: how texts and files are known again."""

from __future__ import annotations

import hashlib
from pathlib import Path


def text_sha256(text: str) -> str:
    """The digest of the text's UTF-8 bytes; lone surrogates count as the bytes they would have."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_sha256(path: Path) -> str:
    """The digest of a file's content, whatever its size."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
