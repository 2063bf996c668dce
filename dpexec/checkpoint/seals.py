"""The SHA-256 at the end of a checkpoint's file, over all previous bytes; detects every change.

It is stored as the comment of the zip archive, so that any tool can open the file.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

__all__ = ["COMMENT", "Seal", "check", "sealing"]

_DIGITS = 64
_MARK = b"dpexec sha256 "
_BLOCK = 1 << 20  # bytes that are read at a time

COMMENT = _MARK + b"0" * _DIGITS
"""The comment that the archive is written with; ``sealing`` puts the digest over the zeros."""


class Seal(enum.Enum):
    """The result of checking a file's digest."""

    NONE = "it has no digest, as the first version of the format"
    WHOLE = "every byte is as it was written"
    BROKEN = "something has changed"


class _Hashing:
    """Hashes all written bytes but the digest. It cannot seek, so nothing is overwritten."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.digest = hashlib.sha256()
        self.last = b""

    def write(self, data: Any) -> int:
        """Write bytes; as for any file."""
        block = bytes(data)
        new = self.last + block
        done, self.last = new[:-_DIGITS], new[-_DIGITS:]
        self.digest.update(done)
        self.file.write(done)
        return len(block)

    def flush(self) -> None:
        """Do nothing: the owner of the file flushes it."""


@contextmanager
def sealing(file: BinaryIO) -> Iterator[BinaryIO]:
    """A file object to write an archive with the comment ``COMMENT`` to.

    Args:
        file: receives the bytes, with the digest in the comment.
    """
    hashing = _Hashing(file)
    yield hashing  # type: ignore[misc]  # what zipfile needs of a file
    file.write(hashing.digest.hexdigest().encode())


def check(file: BinaryIO) -> Seal:
    """Compare the digest at the end of a file with its bytes; rewinds the file."""
    digest, last = hashlib.sha256(), b""
    file.seek(0)
    while block := file.read(_BLOCK):
        new = last + block
        last = new[-len(COMMENT) :]
        digest.update(new[: -len(COMMENT)])
    file.seek(0)
    if not last.startswith(_MARK):
        return Seal.NONE
    digest.update(_MARK)
    return Seal.WHOLE if last[len(_MARK) :] == digest.hexdigest().encode() else Seal.BROKEN
