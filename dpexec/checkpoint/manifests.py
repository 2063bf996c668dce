"""The manifest of a checkpoint: which variables its arrays are, and what else there is to know.

Version 3 of the format knows values of several arrays, such as SelectedRows: entries one after
another, with "kind" and "part". Version 2 is a file with a digest over all its bytes. Version 1 had
a digest for each array alone. Files of all versions are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import as_var_type

__all__ = ["NAME", "NewerError", "check", "check_array", "description", "made"]

Array = np.ndarray[Any, Any]

NAME = "manifest.json"
"""Of the manifest in the archive."""

_FORMAT, _VERSION = "dpexec.checkpoint", 3
_FIELDS: dict[str, type] = {
    "dpexec": str,
    "step": int,
    "variables": dict,
    "programs": list,
    "arrays": list,
}
_PROGRAM: dict[str, type] = {"runs": int, "replicas": int, "mode": str}
_ARRAY: dict[str, type] = {"variable": str, "shape": list, "dtype": str}
_OWN: dict[str, type] = {"program": int, "replica": int}
_PART: dict[str, type] = {"kind": str, "part": int}


class NewerError(Exception):
    """The file has a version of the format that this dpexec does not know."""


def made(about: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A manifest.

    Args:
        about: facts about the whole.
        entries: facts about each array.
    """
    return {"format": _FORMAT, "version": _VERSION, **about, "arrays": list(entries)}


def description(array: Array) -> dict[str, Any]:
    """What a manifest says of an array itself."""
    return {"shape": list(array.shape), "dtype": array.dtype.name}


# ---- checking


def check(manifest: Any, step: int, members: Sequence[str], whole: bool) -> None:
    """Check that a manifest says all that resuming needs, and only of arrays that there are.

    Args:
        manifest: what JSON gave.
        step: of the file's name.
        members: names in the archive.
        whole: whether the file has a digest, and it is right.

    Raises:
        NewerError: the version of the format is not known.
        ValueError: something is missing, or is something else.
    """
    _fields(manifest, "the manifest", {"format": str, "version": int})
    if manifest["format"] != _FORMAT:
        raise ValueError(f"its format is {manifest['format']!r}")
    if manifest["version"] > _VERSION:
        raise NewerError(
            f"has version {manifest['version']} of the format; this dpexec reads up to "
            f"{_VERSION}: update it"
        )
    if not whole and manifest["version"] > 1:
        raise ValueError("it does not end in its SHA-256")
    _fields(manifest, "the manifest", _FIELDS)
    if "extra" not in manifest:
        raise ValueError("the manifest has no 'extra'")
    if manifest["step"] != step:
        raise ValueError(f"it holds step {manifest['step']}, not step {step} of its name")
    for number, program in enumerate(manifest["programs"]):
        _fields(program, f"program {number}", _PROGRAM, more=False)
    for name, kind in manifest["variables"].items():
        if not isinstance(kind, str):
            raise ValueError(f"variable {name} is declared as {kind!r}")
    wanted = [NAME, *(f"{number}.npy" for number in range(len(manifest["arrays"])))]
    if sorted(wanted) != sorted(members):
        differing = sorted(set(wanted).symmetric_difference(members)) or "files with one name"
        raise ValueError(f"the manifest is not of the files that there are: {differing}")
    _check_entries(manifest)


def _fields(found: Any, what: str, kinds: Mapping[str, type], more: bool = True) -> None:
    if not isinstance(found, dict):
        raise ValueError(f"{what} is {found!r}")
    for name, kind in kinds.items():
        if name not in found:
            raise ValueError(f"{what} has no {name!r}")
        if type(found[name]) is not kind:
            raise ValueError(f"{name!r} of {what} is {found[name]!r}")
    if not more and found.keys() - kinds:
        raise ValueError(f"{what} has {sorted(found.keys() - kinds)} too")


def _check_entries(manifest: dict[str, Any]) -> None:
    """Every array is of a declared variable and of a replica that there is, once."""
    seen: dict[tuple[Any, ...], tuple[str, int]] = {}  # kind and number of parts
    for number, entry in enumerate(manifest["arrays"]):
        what = f"array {number}"
        _fields(entry, what, _ARRAY)
        name = entry["variable"]
        key: tuple[Any, ...] = (name,)
        if name not in manifest["variables"]:
            raise ValueError(f"{what} is of {name!r}, which is not declared")
        if _OWN.keys() & entry:
            _fields(entry, what, _OWN)
            program, replica = entry["program"], entry["replica"]
            known = 0 <= program < len(manifest["programs"])
            if not (known and 0 < replica < manifest["programs"][program]["replicas"]):
                raise ValueError(f"{what} is of replica {replica} of program {program}")
            if key not in seen:
                raise ValueError(f"{what} is of a replica, but {name!r} has no other value")
            key = (name, program, replica)
        kind, parts = seen.get(key, ("", 0))
        if _PART.keys() & entry:
            _fields(entry, what, _PART)
            if entry["part"] != parts or kind not in ("", entry["kind"]) or kind == "tensor":
                raise ValueError(f"{what} is part {entry['part']} of {name!r}, which has {parts}")
        elif parts:
            raise ValueError(f"{what} is a second one of {name!r}")
        seen[key] = entry.get("kind", "tensor"), parts + 1


def check_array(entry: Mapping[str, Any], array: Array) -> None:
    """Check that an array is what its entry says.

    Raises:
        ValueError: it is not, or tensors have no such elements.
    """
    try:
        as_var_type(array.dtype)
    except TypeError as error:
        raise ValueError(f"{entry['variable']!r}: {error}") from None
    facts = description(array)
    if "sha256" in entry:  # of version 1
        facts["sha256"] = hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()
    for fact, value in facts.items():
        if entry[fact] != value:
            raise ValueError(f"{fact} of {entry['variable']!r} is {value}, not {entry[fact]}")
