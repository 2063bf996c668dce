"""The SHA-256 that ends a checkpoint's file: it is of all bytes before, and shows every change.

It is the comment of a zip archive, so any tool opens the file.
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
    """What the end of a file says."""

    NONE = "it has no digest, as the first version of the format"
    WHOLE = "every byte is as it was written"
    BROKEN = "something has changed"


class _Hashing:
    """Hands on what is written but for the last digits. Cannot seek: nothing is written twice."""

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
        """The file is flushed by whoever opened it."""


@contextmanager
def sealing(file: BinaryIO) -> Iterator[BinaryIO]:
    """A file to write an archive to that has the comment ``COMMENT``.

    Args:
        file: gets the bytes, with the digest in the comment.
    """
    hashing = _Hashing(file)
    yield hashing  # type: ignore[misc]  # what zipfile needs of a file
    file.write(hashing.digest.hexdigest().encode())


def check(file: BinaryIO) -> Seal:
    """Compare the digest at the end of a file with its bytes; goes back to the beginning."""
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
