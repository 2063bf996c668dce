"""Files of checkpoints: arrays and a manifest in one ``.npz``, on disk or where fsspec reaches.

``step-0000000100.npz`` holds ``manifest.json`` (what the arrays are, and their checksums) and the
arrays ``0.npy``, ``1.npy`` ...; ``numpy.load`` opens it. A file is written under another name and
gets its own when it is complete, so that a killed process leaves it whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem

from dpexec.errors import EnforceNotMet

__all__ = ["Folder", "Stored"]

Array = np.ndarray[Any, Any]

_FORMAT, _VERSION = "dpexec.checkpoint", 1
_MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d{10,})\.npz")
_PART = ".part"


@dataclass(frozen=True)
class Stored:
    """What a file holds.

    Args:
        about: facts about the whole, as JSON can hold them.
        arrays: facts about each array, and the array.
    """

    about: dict[str, Any]
    arrays: list[tuple[dict[str, Any], Array]]


class Folder:
    """A directory of checkpoints.

    Args:
        path: a path, or a URL of fsspec such as ``s3://bucket/runs``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._files, home = fsspec.core.url_to_fs(os.fspath(path))
        self._home = str(home).rstrip("/")
        self._local = isinstance(self._files, LocalFileSystem)

    def path(self, step: int) -> str:
        """The file of a step."""
        return f"{self._home}/step-{step:010d}.npz"

    def steps(self) -> list[int]:
        """The steps that there are checkpoints of, in order."""
        found = map(_NAME.fullmatch, self._names())
        return sorted(int(match[1]) for match in found if match)

    def _names(self) -> list[str]:
        self._files.invalidate_cache(self._home)
        try:
            paths = self._files.ls(self._home, detail=False)
        except FileNotFoundError:
            return []
        return [str(path).rstrip("/").rpartition("/")[2] for path in paths]

    def keep(self, count: int) -> None:
        """Remove all but the last checkpoints."""
        for step in self.steps()[:-count]:
            self._files.rm_file(self.path(step))

    # ---- writing

    def write(self, step: int, content: Stored) -> None:
        """Write the checkpoint of a step; half of it is never seen under its name."""
        self._files.makedirs(self._home, exist_ok=True)
        for name in self._names():
            if name.endswith(_PART):  # of a process that was killed
                self._files.rm_file(f"{self._home}/{name}")
        target = self.path(step)
        part = target + _PART
        try:
            with self._files.open(part, "wb") as file:
                _write(file, content)
                if self._local:
                    file.flush()
                    os.fsync(file.fileno())
            self._publish(part, target)
        except BaseException:
            with contextlib.suppress(OSError):
                self._files.rm_file(part)
            raise

    def _publish(self, part: str, target: str) -> None:
        if not self._local:
            self._files.mv(part, target)
            return
        os.replace(part, target)
        folder = os.open(self._home, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    # ---- reading

    def read(self, step: int) -> Stored:
        """Read the checkpoint of a step.

        Raises:
            EnforceNotMet: it is damaged, or of a newer version.
        """
        path = self.path(step)
        with self._files.open(path, "rb") as file:
            try:
                return _read(file)
            except _NewerError as error:
                raise EnforceNotMet(f"checkpoint {path} {error}") from None
            except Exception as error:  # a damaged archive raises almost anything
                problem = f"{type(error).__name__}: {error}"
                raise EnforceNotMet(
                    f"checkpoint {path} is damaged ({problem}); remove the file to resume from "
                    "the checkpoint before it"
                ) from error


class _NewerError(Exception):
    pass


def _write(file: BinaryIO, content: Stored) -> None:
    entries = [{**facts, **_description(array)} for facts, array in content.arrays]
    manifest = {"format": _FORMAT, "version": _VERSION, **content.about, "arrays": entries}
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_MANIFEST, json.dumps(manifest))
        for number, (_, array) in enumerate(content.arrays):
            with archive.open(f"{number}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _description(array: Array) -> dict[str, Any]:
    digest = hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()
    return {"shape": list(array.shape), "dtype": array.dtype.name, "sha256": digest}


def _read(file: BinaryIO) -> Stored:
    with zipfile.ZipFile(file) as archive:
        manifest = json.loads(archive.read(_MANIFEST))
        if manifest["format"] != _FORMAT:
            raise ValueError(f"its format is {manifest['format']!r}")
        if manifest["version"] > _VERSION:
            raise _NewerError(
                f"has version {manifest['version']} of the format; this dpexec reads up to "
                f"{_VERSION}: update it"
            )
        entries: Sequence[dict[str, Any]] = manifest.pop("arrays")
        arrays = [_read_array(archive, number, entry) for number, entry in enumerate(entries)]
    return Stored(manifest, list(zip(entries, arrays, strict=True)))


def _read_array(archive: zipfile.ZipFile, number: int, entry: dict[str, Any]) -> Array:
    content = io.BytesIO(archive.read(f"{number}.npy"))
    array: Array = np.lib.format.read_array(content, allow_pickle=False)
    for fact, value in _description(np.ascontiguousarray(array).reshape(array.shape)).items():
        if entry[fact] != value:
            raise ValueError(f"{fact} of array {number} is {value}, not {entry[fact]}")
    return array
