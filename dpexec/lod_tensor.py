"""Tensors of sequences, built from arrays and sequence lengths."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.arguments.explained import explained
from dpexec.engine.core.places import Place
from dpexec.engine.core.tensors import LoDTensor

__all__ = ["create_lod_tensor", "create_random_int_lodtensor"]


@explained
def create_lod_tensor(
    data: Any, recursive_seq_lens: Sequence[Sequence[int]], place: Place
) -> LoDTensor:
    """A tensor of sequences, stored one after another.

    Args:
        data: an array, or a LoDTensor, with the rows of all sequences; or a list with a list for
            each sequence, of numbers or of equally long lists of them.
        recursive_seq_lens: lengths of the sequences, per level, coarse levels first.
        place: where the tensor lives.

    Returns:
        The tensor. Lists of numbers give int64 or float64 of shape ``(numbers, 1)``, lists of lists
        of numbers ``(elements, their length, 1)``.

    Raises:
        TypeError: data has another type, or the lengths are no list of levels.
        AssertionError: the lengths differ from those of the lists.
        EnforceNotMet: the lengths do not add up to the number of rows.

    See Also:
        :class:`~dpexec.LoDTensor`: an array with sequences.
        :func:`~dpexec.create_random_int_lodtensor`: makes one of random numbers.
        :class:`~dpexec.LoDTensorArray`: a list of them.

    Example:
        >>> import dpexec as fluid
        >>> words = fluid.create_lod_tensor([[4, 7, 1], [8, 2]], [[3, 2]], fluid.CPUPlace())
        >>> words.lod(), words.shape()
        ([[0, 3, 5]], [5, 1])

    Source: ``fluid.create_lod_tensor``.
    """
    if isinstance(data, list):
        lengths = [len(sequence) for sequence in data]
        if [lengths] != [list(level) for level in recursive_seq_lens]:
            raise AssertionError(
                "data and recursive_seq_lens do not match: the lists have the lengths "
                f"{[lengths]}, but recursive_seq_lens is {recursive_seq_lens}"
            )
        data = np.array(list(itertools.chain.from_iterable(data)))[..., np.newaxis]
    elif not isinstance(data, (LoDTensor, np.ndarray)):
        raise TypeError(
            "data should be either a LoDTensor, a Numpy array or a list, but it is a "
            f"{type(data).__name__}"
        )
    tensor = LoDTensor()
    tensor.set(data, place)
    tensor.set_recursive_sequence_lengths(recursive_seq_lens)
    return tensor


@explained
def create_random_int_lodtensor(
    recursive_seq_lens: Sequence[Sequence[int]],
    base_shape: Sequence[int],
    place: Place,
    low: int,
    high: int,
) -> LoDTensor:
    """Sequences of random whole numbers, from NumPy's global generator.

    Args:
        recursive_seq_lens: lengths of the sequences, per level, coarse levels first.
        base_shape: shape of one element of a sequence.
        place: where the tensor lives.
        low: the smallest number.
        high: the greatest number.

    Returns:
        An int64 tensor.

    Raises:
        AssertionError: base_shape is no list.
        EnforceNotMet: the lengths of different levels are inconsistent.

    Source: ``fluid.create_random_int_lodtensor``.

    See Also:
        :class:`~dpexec.LoDTensor`: an array with sequences.
        :func:`~dpexec.create_lod_tensor`: makes one.
        :class:`~dpexec.LoDTensorArray`: a list of them.

    Example:
        >>> import dpexec as fluid
        >>> place = fluid.CPUPlace()
        >>> words = fluid.create_random_int_lodtensor([[3, 2]], [1], place, low=0, high=9)
        >>> words.shape(), words.lod()
        ([5, 1], [[0, 3, 5]])
    """
    if not isinstance(base_shape, list):
        raise AssertionError("base_shape should be a list")
    rows = sum(recursive_seq_lens[-1])
    numbers = np.random.randint(low, high + 1, (rows, *base_shape))  # noqa: NPY002 - fluid's
    return create_lod_tensor(numbers.astype(np.int64), recursive_seq_lens, place)
