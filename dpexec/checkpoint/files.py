"""Files of checkpoints: arrays and a manifest in one ``.npz``, on disk or at an fsspec URL.

``step-0000000100.npz`` holds ``manifest.json`` (a description of the arrays) and the arrays
``0.npy``, ``1.npy`` ...; ``numpy.load`` opens it. It ends with the SHA-256 of all previous bytes. A
file is written under a temporary name and renamed when it is complete, so a killed process never
leaves a partial checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zipfile
from typing import Any, BinaryIO

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem

from dpexec.checkpoint import manifests, seals
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.variable_values import Flat, value_of
from dpexec.io.atomic import naming

__all__ = ["Folder", "Stored"]

Array = np.ndarray[Any, Any]

_NAME = re.compile(r"step-(\d{10,})\.npz")
_PART = ".part"


@dataclass(frozen=True)
class Stored:
    """The content of a checkpoint's file.

    Args:
        about: metadata of the checkpoint, in types that JSON can represent.
        arrays: pairs of an array's metadata and the array.
    """

    about: dict[str, Any]
    arrays: list[tuple[dict[str, Any], Array]]

    def values(self) -> dict[tuple[str, int, int], Any]:
        """The values by variable, program and replica; replica 0 stands for values shared by all.

        Raises:
            ValueError: the arrays do not form a value.
        """
        found: dict[tuple[str, int, int], Flat] = {}
        for entry, array in self.arrays:
            key = entry["variable"], entry.get("program", 0), entry.get("replica", 0)
            found.setdefault(key, Flat(entry.get("kind", "tensor"), [])).arrays.append(array)
        return {key: value_of(*value) for key, value in found.items()}


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
        """The path of a step's file."""
        return f"{self._home}/step-{step:010d}.npz"

    def steps(self) -> list[int]:
        """The steps that there are checkpoints of, in order."""
        found = map(_NAME.fullmatch, self._names())
        return sorted(int(match[1]) for match in found if match)

    def check_empty(self) -> None:
        """Check that there are no renamed checkpoint files.

        Raises:
            EnforceNotMet: there is such a file.
        """
        for name in sorted(self._names()):
            if name.startswith("step-") and not name.endswith(_PART):
                raise EnforceNotMet(
                    f"{self._home} has no checkpoint, but {self._home}/{name}: checkpoints are "
                    f"called step-0000000100.npz; give the file its name again to go on from it, "
                    "or move it elsewhere to start anew"
                )

    def _names(self) -> list[str]:
        self._files.invalidate_cache(self._home)
        try:
            paths = self._files.ls(self._home, detail=False)
        except FileNotFoundError:
            return []
        return [str(path).rstrip("/").rpartition("/")[2] for path in paths]

    def keep(self, count: int) -> None:
        """Remove all but the latest checkpoints."""
        for step in self.steps()[:-count]:
            self._files.rm_file(self.path(step))

    # ---- writing

    def write(self, step: int, content: Stored) -> None:
        """Write the checkpoint of a step; a partial file never has the final name.

        Raises:
            OSError: the file cannot be written; the error names it.
        """
        target = self.path(step)
        with naming(target):
            self._files.makedirs(self._home, exist_ok=True)
            for name in self._names():
                if name.endswith(_PART):  # of a process that was killed
                    self._files.rm_file(f"{self._home}/{name}")
            self._write(target, content)

    def _write(self, target: str, content: Stored) -> None:
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
            EnforceNotMet: the file is damaged, of a newer version, or of another step.
            OSError: the file cannot be read; the error names it.
        """
        path = self.path(step)
        with naming(path), self._files.open(path, "rb") as file:
            found = seals.check(file)
            try:
                return _read(file, step, found)
            except MemoryError:
                raise
            except manifests.NewerError as error:
                raise EnforceNotMet(f"checkpoint {path} {error}") from None
            except Exception as error:  # a damaged archive raises almost anything
                problem = f"{type(error).__name__}: {error}"
                raise EnforceNotMet(
                    f"checkpoint {path} is damaged ({problem}); remove the file to resume from "
                    "the checkpoint before it"
                ) from error


def _write(file: BinaryIO, content: Stored) -> None:
    entries = [{**facts, **manifests.description(array)} for facts, array in content.arrays]
    manifest = manifests.made(content.about, entries)
    with seals.sealing(file) as sealed, zipfile.ZipFile(sealed, "w") as archive:
        archive.comment = seals.COMMENT
        archive.writestr(manifests.NAME, json.dumps(manifest))
        for number, (_, array) in enumerate(content.arrays):
            with archive.open(f"{number}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _read(file: BinaryIO, step: int, seal: seals.Seal) -> Stored:
    if seal == seals.Seal.BROKEN:
        raise ValueError("its SHA-256 is not the one at its end")
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{member.filename} is compressed")
        manifest = json.loads(archive.read(manifests.NAME))
        manifests.check(manifest, step, archive.namelist(), seal == seals.Seal.WHOLE)
        entries: list[dict[str, Any]] = manifest.pop("arrays")
        arrays = [_read_array(archive, number, entry) for number, entry in enumerate(entries)]
    stored = Stored(manifest, list(zip(entries, arrays, strict=True)))
    stored.values()  # all arrays are values
    return stored


def _read_array(archive: zipfile.ZipFile, number: int, entry: dict[str, Any]) -> Array:
    """Read an array, using no more memory than its file's size, whatever shape the file claims."""
    with archive.open(f"{number}.npy") as member:
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError(f"{number}.npy is of another version of NumPy's format")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(member)
        if by_columns:
            raise ValueError(f"{number}.npy is stored by columns")
        array: Array = np.frombuffer(member.read(), dtype).reshape(shape)
    manifests.check_array(entry, array)
    return array
