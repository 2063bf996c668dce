"""``DataFeeder``: turns lists of samples into feeds of an executor."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpexec.checks import check_dtype, check_type, check_variable_and_dtype, convert_dtype
from dpexec.engine.arguments.explained import explained
from dpexec.engine.core.dtypes import VarType, dtype_name, to_numpy
from dpexec.engine.core.errors import see
from dpexec.engine.core.places import CUDAPlace, Place, cuda_places
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.ir.program import Program, default_main_program
from dpexec.engine.ir.variable import Variable
from dpexec.engine.strategy.placement import cpu_places

__all__ = [
    "DataFeeder",
    "check_dtype",
    "check_type",
    "check_variable_and_dtype",
    "convert_dtype",
]

Samples = Iterable[Sequence[Any]]


class Field(NamedTuple):
    """The properties of a variable that a feeder needs; small, so that pickling it is cheap."""

    name: str
    dtype: VarType
    shape: tuple[int, ...]
    lod_level: int


class DataFeeder:
    """Joins the fields of samples to one tensor per variable.

    Args:
        feed_list: variables, or names of variables of the program, one per field of a sample.
        place: where the tensors will be used.
        program: where names are looked up; None takes the default main program.

    Raises:
        TypeError: an entry is neither a variable nor a name.
        ValueError: the program has no variable with this name.

    Example:
        >>> from dpexec.core import CPUPlace
        >>> from dpexec.engine.ir.program import Program
        >>> program = Program()
        >>> _ = program.global_block().create_var(name="x", shape=[-1, 2, 1])
        >>> feeder = DataFeeder(["x"], CPUPlace(), program)
        >>> feeder.feed([([1, 2],), ([3, 4],)])["x"].shape()
        [2, 2, 1]
    """

    @explained
    def __init__(
        self, feed_list: Sequence[Variable | str], place: Place, program: Program | None = None
    ) -> None:
        block = (default_main_program() if program is None else program).global_block()
        fields: list[Field] = []
        for item in feed_list:
            var: Any = block.var(item) if isinstance(item, str) else item
            if not isinstance(var, Variable):
                raise TypeError(
                    f"Feed list should contain a list of variable, but has a {type(item).__name__}"
                )
            fields.append(Field(var.name, var.dtype, var.shape, var.lod_level))
        self._fields = fields
        self.feed_names = [field.name for field in fields]
        self.feed_dtypes = [field.dtype for field in fields]
        self.feed_shapes = [field.shape for field in fields]
        self.place = place

    @explained
    def feed(self, iterable: Samples) -> dict[str, LoDTensor]:
        """Make one batch.

        Args:
            iterable: samples, each with one field per variable: anything ``numpy.asarray`` takes;
                a list of that for a variable with ``lod_level=1``, a list of lists with 2 ...

        Returns:
            A dict from name to tensor, with the variable's element type and the lengths of its
            sequences. A tensor whose rank differs from the variable's is reshaped to the variable's
            shape, if at most one dimension of that is unknown.

        Raises:
            AssertionError: a sample has another number of fields.
            TypeError: a variable holds sequences, and a field is not a sequence.
            ValueError: fields that do not fit together, or do not fill the variable's shape.

        Source: ``DataFeeder.feed`` of Paddle 1.8.
        """
        columns: list[list[Any]] = [[] for _ in self._fields]
        for number, sample in enumerate(iterable):
            if len(sample) != len(columns):
                problem = (
                    f"The number of fields in data ({len(sample)}) does not match len(feed_list) "
                    f"({len(columns)}): sample {number}, variables {', '.join(self.feed_names)}"
                )
                raise see("samples-that-do-not-fit", AssertionError(problem))
            for column, value in zip(columns, sample, strict=True):
                column.append(value)
        return {
            field.name: _tensor(field, column)
            for field, column in zip(self._fields, columns, strict=True)
        }

    def feed_parallel(
        self, iterable: Sequence[Samples], num_places: int | None = None
    ) -> Iterator[dict[str, LoDTensor]]:
        """Make one batch for each device.

        Args:
            iterable: the samples of every device.
            num_places: number of devices; None takes ``CPU_NUM`` or the visible GPUs.

        Returns:
            An iterator of dicts, one per device; feed them as a list.

        Raises:
            ValueError: the numbers of batches and devices differ; raised when the iteration begins.
        """
        places = self._number_of_places(num_places)
        if len(iterable) != places:
            raise ValueError(
                "feed_parallel takes multiple mini-batches, one for each device: the number of "
                f"devices ({places}) and of mini-batches ({len(iterable)}) must be the same"
            )
        for samples in iterable:
            yield self.feed(samples)

    def decorate_reader(
        self,
        reader: Callable[[], Iterable[Samples]],
        multi_devices: bool,
        num_places: int | None = None,
        drop_last: bool = True,
    ) -> Callable[[], Iterator[Any]]:
        """Turn a reader of batches into a reader of feeds.

        Args:
            reader: yields lists of samples.
            multi_devices: collect a batch for every device, and yield lists of dicts.
            num_places: number of devices; None takes ``CPU_NUM`` or the visible GPUs.
            drop_last: drop the last round if it does not have a batch for every device.

        Raises:
            ValueError: while reading, if drop_last is False and the last round is incomplete.
        """

        def feeds() -> Iterator[Any]:
            if not multi_devices:
                yield from map(self.feed, reader())
                return
            places = self._number_of_places(num_places)
            round_: list[Samples] = []
            for samples in reader():
                round_.append(samples)
                if len(round_) == places:
                    yield list(self.feed_parallel(round_, places))
                    round_ = []
            if round_ and not drop_last:
                raise ValueError(
                    f"the last round has {len(round_)} batches for {places} devices, and "
                    "drop_last=False is set: give a number of batches that fits, or drop_last=True"
                )

        return feeds

    def _number_of_places(self, num_places: int | None) -> int:
        if num_places is not None:
            return int(num_places)
        return len(cuda_places() if isinstance(self.place, CUDAPlace) else cpu_places())


def _stack(field: Field, column: Sequence[Any]) -> np.ndarray[Any, Any]:
    """One field of all samples as an array with its variable's type and shape."""
    dtype = to_numpy(field.dtype)
    try:
        array = np.array(column, dtype=dtype)
    except (TypeError, ValueError) as error:
        problem = _misfit(field, column, error)
        raise see("samples-that-do-not-fit", ValueError(problem)) from error
    if array.ndim == len(field.shape) or sum(dim < 0 for dim in field.shape) > 1:
        return array
    try:
        return array.reshape(field.shape)
    except ValueError:
        problem = (
            f"Reshape error. What is defined in data layer for Variable {field.name!r} is "
            f"{field.shape}, but receive {array.shape} ({len(column)} samples)"
        )
        raise see("samples-that-do-not-fit", ValueError(problem)) from None


def _misfit(field: Field, column: Sequence[Any], error: Exception) -> str:
    """Name the first sample that cannot be converted, or whose shape is not the first one's."""
    first: tuple[int, ...] | None = None
    for number, value in enumerate(column):
        try:
            shape = np.asarray(value, dtype=to_numpy(field.dtype)).shape
        except (TypeError, ValueError) as why:
            return f"Variable {field.name!r}, sample {number}: no {dtype_name(field.dtype)}: {why}"
        first = shape if first is None else first
        if shape != first:
            return (
                f"Variable {field.name!r}: sample {number} has shape {shape}, but sample 0 has "
                f"{first}; the samples of a batch must be alike"
            )
    return f"Variable {field.name!r}: {error}"


def _tensor(field: Field, column: Sequence[Any]) -> LoDTensor:
    """One field of all samples."""
    lengths: list[list[int]] = []
    for level in range(field.lod_level):
        try:
            lengths.append([len(value) for value in column])
        except TypeError:
            raise TypeError(
                f"Variable {field.name!r} holds sequences (lod_level {field.lod_level}), but a "
                f"sample has a {type(_without_length(column)).__name__} at level {level}"
            ) from None
        column = list(itertools.chain.from_iterable(column))
    tensor = LoDTensor()
    tensor.array = _stack(field, column)  # made here, so that nobody else holds it
    tensor.set_recursive_sequence_lengths(lengths)
    return tensor


def _without_length(column: Sequence[Any]) -> Any:
    return next(value for value in column if not hasattr(value, "__len__"))
