"""Converting batches of samples to named tensors on their devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dpexec.data_feeder import DataFeeder
from dpexec.engine.core.errors import EnforceNotMet, see
from dpexec.engine.core.places import Place, transfers
from dpexec.engine.core.tensors import LoDTensor
from dpexec.reading.prefetch import Prefetch, items_of

__all__ = ["checked_array", "copied", "default_collate_fn", "feed", "stacked"]

Reader = Callable[[], Iterable[Any]]


def default_collate_fn(batch: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Stack each field of the samples to one array.

    Args:
        batch: samples; each is a sequence of arrays or numbers, or one array.

    Returns:
        An array for each field, with one more dimension. Source: ``fluid.io.default_collate_fn``.

    Raises:
        TypeError: ``batch`` is no list of samples.
        ValueError: arrays of a field have different shapes.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec.io import default_collate_fn
        >>> samples = [(np.array([1.0, 2.0]), 0), (np.array([3.0, 4.0]), 1)]
        >>> [array.tolist() for array in default_collate_fn(samples)]
        [[[1.0, 2.0], [3.0, 4.0]], [0, 1]]
    """
    if isinstance(batch[0], np.ndarray):
        return [_stack(0, batch)]
    return [_stack(number, field) for number, field in enumerate(zip(*batch, strict=True))]


def _stack(number: int, field: Sequence[Any]) -> np.ndarray[Any, Any]:
    shapes = [np.shape(value) for value in field]
    if len(set(shapes)) > 1:
        place = next(place for place, shape in enumerate(shapes) if shape != shapes[0])
        problem = (
            f"field {number} of the samples: sample {place} of a batch has shape {shapes[place]}, "
            f"but sample 0 has {shapes[0]}; they must be alike, or collate_fn pads them"
        )
        raise see("samples-that-do-not-fit", ValueError(problem))
    return np.stack(field)


def stacked(feeder: DataFeeder, reader: Reader) -> Iterator[list[LoDTensor]]:
    """Convert lists of samples to batches."""
    for samples in items_of(reader):
        yield list(feeder.feed(samples).values())


def copied(batches: Prefetch, places: Sequence[Place]) -> Iterator[dict[str, LoDTensor]]:
    """Copy batches to the devices, in turn."""
    try:
        for place, feed in zip(itertools.cycle(places), batches, strict=False):
            with transfers(place):
                for tensor in feed.values():
                    tensor.set(tensor.array, place)
            yield feed
    finally:
        batches.close()


def feed(names: Sequence[str], fields: Any) -> dict[str, LoDTensor]:
    """A generator's batch as tensors by name; copied, since generators may reuse their arrays.

    Raises:
        EnforceNotMet: the batch does not have one array per name.
    """
    if not isinstance(fields, (list, tuple)):
        raise EnforceNotMet(
            f"a batch must be a list or tuple with one array for each of {', '.join(names)}, but "
            f"the generator gave a {type(fields).__name__}"
        )
    if len(fields) != len(names):
        problem = (
            f"a batch must have {len(names)} fields ({', '.join(names)}), but the generator gave "
            f"{len(fields)}"
        )
        raise see("samples-that-do-not-fit", EnforceNotMet(problem))
    return {name: _tensor(name, value) for name, value in zip(names, fields, strict=True)}


def _tensor(name: str, value: Any) -> LoDTensor:
    if isinstance(value, LoDTensor):
        return value
    tensor = LoDTensor()
    try:
        tensor.set(checked_array(value))
    except TypeError as error:
        raise TypeError(f"Variable {name!r} of a batch: {error}") from error
    return tensor


def checked_array(item: Any) -> np.ndarray[Any, Any]:
    """Convert a generator's value to an array.

    Raises:
        TypeError: nested lists of different lengths.
    """
    try:
        array = np.asarray(item)
    except ValueError as error:
        raise TypeError(f"cannot be made a regular array: {error}") from None
    if array.dtype == object:
        raise TypeError("cannot be made a regular array of numbers")
    return array
