"""The cache of machine code on disk: packs that came with the package, and a folder.

The key is :func:`~dpexec.engine.kernels.identity.identity` of the function, and the family of
processors. A function that changes gets another key, so an entry is always valid.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = [
    "PACKS",
    "Pack",
    "at_most_one",
    "folder",
    "found",
    "has",
    "keep",
    "pack_path",
    "turn",
    "write_pack",
]

PACKS = Path(__file__).parent / "packs"
"""The folder of packs: a file for each family of processors and version of Python."""
_PATIENCE = 10.0  # seconds: who compiles may have been stopped


class Pack:
    """Objects in one file: the length of an index, the index, and the objects, compressed.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            self._places: dict[str, list[int]] = json.loads(file.read(size))
        self._start = 8 + size

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    @property
    def names(self) -> list[str]:
        """Of all objects."""
        return [*self._places]

    def get(self, name: str) -> bytes | None:
        """An object; None if it is not there."""
        place = self._places.get(name)
        if place is None:
            return None
        with self._path.open("rb") as file:
            file.seek(self._start + place[0])
            return zlib.decompress(file.read(place[1]))


def write_pack(path: Path, objects: Mapping[str, bytes]) -> None:
    """Write a pack.

    Args:
        path: the file; its folder is made.
        objects: by name.
    """
    pressed = {name: zlib.compress(objects[name], 9) for name in sorted(objects)}
    places, at = {}, 0
    for name, data in pressed.items():
        places[name] = [at, len(data)]
        at += len(data)
    index = json.dumps(places).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, b"".join([len(index).to_bytes(8, "little"), index, *pressed.values()]))


def pack_path(family: str) -> Path:
    """The file of a family's pack, for this version of Python."""
    return PACKS / f"{family}.{sys.implementation.cache_tag}.pack"


@functools.cache
def _packs(family: str) -> list[Pack]:
    return [Pack(path) for path in [pack_path(family)] if path.is_file()]


@functools.cache
def folder() -> Path | None:
    """Where code is kept that no pack has; None if there is no place.

    It is a folder of ``NUMBA_CACHE_DIR`` where that is set and may be written, else beside the
    sources, else in the user's cache.
    """
    chosen, cache = os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    places = [Path(chosen)] if chosen else []
    places += Path(__file__).parent / "__pycache__", Path(cache or "~/.cache")
    for place in places:
        with contextlib.suppress(OSError, RuntimeError):  # a user without a home
            made = place.expanduser() / "dpexec-kernels"
            made.mkdir(parents=True, exist_ok=True)
            if os.access(made, os.W_OK | os.X_OK):
                return made
    return None


def _path(name: str, family: str) -> Path | None:
    home = folder()
    return home and home / family / f"{name}.o"


def found(name: str, family: str) -> bytes | None:
    """An object that is kept; None if it is not.

    Args:
        name: of what it was made of.
        family: the processors for which it was made.
    """
    for pack in _packs(family):
        if code := pack.get(name):
            return code
    path = _path(name, family)
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError:  # it is not there, or a file of another user: who compiles is always right
        return None


def has(name: str, family: str) -> bool:
    """Whether an object is kept, see :func:`found`."""
    path = _path(name, family)
    kept = path is not None and path.is_file()
    return kept or any(name in pack for pack in _packs(family))


def keep(name: str, family: str, code: bytes) -> None:
    """Keep an object, if there is a place for it.

    Args:
        name: of what it was made of.
        family: the processors for which it was made.
        code: the object.
    """
    path = _path(name, family)
    if path is not None:
        with contextlib.suppress(OSError):  # a full disk: the code itself is there
            _write(path, code)


def _write(path: Path, data: bytes) -> None:
    """Write a file that others see whole or not at all."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except OSError:
        os.unlink(draft)
        raise


@contextlib.contextmanager
def turn(name: str, family: str) -> Iterator[None]:
    """Processes that compile the same do so one after another; who is stopped delays nobody long.

    Args:
        name: of what is compiled.
        family: the processors for which it is made.
    """
    path = _path(name, family)
    with contextlib.ExitStack() as stack:
        if path is not None:
            with contextlib.suppress(OSError):
                path.parent.mkdir(exist_ok=True)
                stack.enter_context(_alone(path.with_suffix(".turn")))
        yield


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    deadline = time.monotonic() + _PATIENCE
    with place.open("w") as file:
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.01)
            else:
                break
        try:
            yield
        finally:
            place.unlink(missing_ok=True)


@contextlib.contextmanager
def at_most_one(what: str) -> Iterator[bool]:
    """Whether this process alone does something: others that ask in the meantime are refused.

    Args:
        what: name of what is done.
    """
    home = folder()
    with contextlib.ExitStack() as stack:
        first = home is not None
        if home is not None:
            try:
                file = stack.enter_context((home / f"{what}.turn").open("w"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # another process has it, or the folder cannot be written
                first = False
        yield first
