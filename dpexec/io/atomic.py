"""Atomic writing of several files: a process killed at any moment leaves all old or all new ones.

All files of a save are written and synced in a hidden folder of the target directory. Renaming that
folder to ``.dpexec-saved`` makes the new files valid; then they are moved to their places. Readers
look into ``.dpexec-saved`` first, so they find the new files even if the move was interrupted; the
next save completes it. Only one process at a time may save to a directory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["naming", "stored", "write_files"]

_UNFINISHED, _SAVED = ".dpexec-unfinished", ".dpexec-saved"


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add a file's name to system errors, such as those of ``write``, which do not name it.

    Raises:
        OSError: an error of the same class and number, with the file's name.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        if error.errno is None:  # of a file system that is none of the operating system's
            raise type(error)(f"{path}: {error}") from error
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def stored(directory: str | os.PathLike[str], name: str) -> Path:
    """The path of the latest completely saved file with this name."""
    moved = Path(directory, _SAVED, name)
    return moved if moved.exists() else Path(directory, name)


def write_files(
    directory: str | os.PathLike[str], writers: Mapping[str, Callable[[BinaryIO], None]]
) -> None:
    """Write files into a directory, all of them or none.

    Args:
        directory: the directory; created if missing.
        writers: functions that write the contents, by file name relative to the directory.

    Raises:
        OSError: a file cannot be written; the error names it.
    """
    home = Path(directory)
    home.mkdir(parents=True, exist_ok=True)
    _move(home)
    unfinished = home / _UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        for name, writer in writers.items():
            path = unfinished / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with naming(home / name), open(path, "xb") as file:
                writer(file)
                file.flush()
                os.fsync(file.fileno())
        _sync(*(Path(found) for found, _, _ in os.walk(unfinished)))
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    if writers:
        unfinished.rename(home / _SAVED)
        _sync(home)
        _move(home)


def _move(home: Path) -> None:
    """Move saved files to their places; continues a move that a killed process began."""
    saved = home / _SAVED
    for folder, _, names in os.walk(saved):
        target = home / Path(folder).relative_to(saved)
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            os.replace(Path(folder, name), target / name)
        _sync(target)
    shutil.rmtree(saved, ignore_errors=True)


def _sync(*folders: Path) -> None:
    for folder in folders:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
