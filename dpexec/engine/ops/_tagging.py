"""Positions of tag sequences in tensors with offsets or in padded tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.core.ranges import require_between
from dpexec.engine.ir.opdef import Spec, dims_match, require
from dpexec.engine.ops._sequences import offsets_or_lengths, on_host
from dpexec.engine.ops._shapes import require_float, require_integer, require_same_dtype, same_dims
from dpexec.engine.ops._steps import Steps


def places(
    shape: tuple[int, ...], lods: tuple[Lod | None, Lod | None], length: Any
) -> tuple[Any, Any]:
    """First row and number of rows of every sequence.

    Args:
        shape: shape of the tensor, ``(batch, T, ...)`` if it is padded.
        lods: offsets of the sequences and of their labels, of which one may be missing. They are
            not used if lengths are given.
        length: lengths of padded sequences, or None.

    Raises:
        ValueError: there are neither sequences nor lengths, a length is negative or greater than
            T, or labels have other sequences.
    """
    if length is None:
        own, of_labels = lods
        lod = offsets_or_lengths(own or of_labels, "Input", "lengths")
        if of_labels and of_labels != lod:
            raise ValueError(f"Label has the sequences {of_labels}, but there are {lod}")
        return lod.offsets[:-1], lod.lengths
    lengths = on_host(length)
    if lengths.min(initial=0) < 0 or lengths.max(initial=0) > shape[1]:
        raise ValueError(f"Length {lengths.tolist()} must be between 0 and {shape[1]}, the width")
    return np.arange(len(lengths)) * shape[1], lengths


def check_tags(emission: Spec, transition: Spec, label: Spec | None, length: Spec | None) -> None:
    """Check the inputs of operators with a linear chain.

    Args:
        emission: scores ``(rows, tags)``, or ``(batch, T, tags)`` with lengths.
        transition: ``(tags + 2, tags)``.
        label: tags ``(rows, 1)``, or ``(batch, T)`` or ``(batch, T, 1)``; None where there are
            none.
        length: lengths of padded sequences, or None.
    """
    require_float(emission, "Emission")
    if length is None:
        require(emission.rank == 2, f"Emission {emission} must be (rows, tags)")
    else:
        require(emission.rank == 3, f"Emission {emission} must be (batch, T, tags): it has lengths")
        require_integer(length, "Length")
        require(
            dims_match(length.size, emission.shape[0]),
            f"Length {length} must have a number for each sequence of Emission {emission}",
        )
    tags = emission.shape[-1]
    require(
        transition.rank == 2
        and dims_match(transition.shape[0], transition.shape[1] + 2)
        and dims_match(transition.shape[1], tags),
        f"Transition {transition} must be (tags + 2, tags) for Emission {emission}",
    )
    require_same_dtype(emission, transition, "Emission and Transition")
    if label is not None:
        _check_label(label, emission)


def _check_label(label: Spec, emission: Spec) -> None:
    require_integer(label, "Label")
    shape = label.shape
    if emission.rank == 2 or label.rank == 3:
        require(bool(shape) and dims_match(shape[-1], 1), f"Label {label} must end with 1")
        shape = shape[:-1]
    require(
        same_dims(shape, emission.shape[:-1]),
        f"Label {label} must have a tag for every row of Emission {emission}",
    )


def checked_tags(xp: Any, label: Any, tags: int) -> Any:
    """Tags in a row.

    Raises:
        ValueError: a tag is negative or not below ``tags``.
    """
    message = f"Label: expected tags >= 0 and < {tags}, but got {{}}"
    require_between(xp, label, 0, tags - 1, message)
    return label.reshape(-1)


def steps_through(
    shape: tuple[int, ...], lods: tuple[Lod | None, Lod | None], length: Any
) -> Steps:
    """The steps through sequences; see :func:`places` for the arguments."""
    return Steps(*places(shape, lods, length))
