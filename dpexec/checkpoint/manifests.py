"""The manifest of a checkpoint: the variables that its arrays belong to, and other metadata.

Version 3 of the format supports values of several arrays, such as SelectedRows: consecutive entries
with "kind" and "part". Version 2 introduced a digest over all bytes of the file. Version 1 has a
digest for each array only. Files of all versions can be read.
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
    """The file's format is newer than this version of dpexec."""


def made(about: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Make a manifest.

    Args:
        about: metadata of the checkpoint.
        entries: metadata of each array.
    """
    return {"format": _FORMAT, "version": _VERSION, **about, "arrays": list(entries)}


def description(array: Array) -> dict[str, Any]:
    """A manifest's description of an array."""
    return {"shape": list(array.shape), "dtype": array.dtype.name}


# ---- checking


def check(manifest: Any, step: int, members: Sequence[str], whole: bool) -> None:
    """Check that a manifest is complete, and refers to existing arrays only.

    Args:
        manifest: the parsed JSON.
        step: the step in the file's name.
        members: names of the archive's members.
        whole: whether the file has a correct digest.

    Raises:
        NewerError: the version of the format is unknown.
        ValueError: a value is missing or has the wrong type.
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
    """Check that every array belongs to a declared variable and an existing replica, just once."""
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
    """Check that an array matches its entry.

    Raises:
        ValueError: it does not match, or tensors do not support its type.
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
