"""``fluid.incubate.data_generator``: pipe commands of data sets, written in Python.

A generator turns lines of its input into samples, and writes them in the format of
:mod:`dpexec.reading.multislot`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["DataGenerator", "MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]

Sample = Sequence[tuple[str, Sequence[Any]]]
"""The slots of a sample, each with its name and values."""


class DataGenerator:
    """Base class of generators; override :meth:`generate_sample`.

    Example:
        >>> from dpexec.incubate import data_generator
        >>> class Pairs(data_generator.MultiSlotDataGenerator):
        ...     def generate_sample(self, line):
        ...         def samples():
        ...             yield [("x", [0.5, 2.0]), ("label", [1])]
        ...         return samples
        ...     def generate_batch(self, samples):
        ...         return lambda: reversed(samples)  # a batch as a whole, for example padded
        >>> Pairs().run_from_memory()  # run_from_stdin() in a pipe command
        2 0.5 2.0 1 1
    """

    def __init__(self) -> None:
        self.batch_size_ = 32

    def set_batch(self, batch_size: int) -> None:
        """Set the number of samples that :meth:`generate_batch` gets."""
        self.batch_size_ = batch_size

    def run_from_memory(self) -> None:
        """Write the samples that :meth:`generate_sample` yields for None."""
        self._write([None])

    def run_from_stdin(self) -> None:
        """Write the samples that :meth:`generate_sample` yields for the lines of stdin."""
        self._write(sys.stdin)

    def generate_sample(self, line: str | None) -> Callable[[], Iterable[Sample | None]]:
        """Convert a line: return a function that yields samples; None is skipped.

        Raises:
            NotImplementedError: the method is not overridden.
        """
        raise NotImplementedError(
            "Please rewrite this function to return a list or tuple: "
            "[(name, [feasign, ...]), ...] or ((name, [feasign, ...]), ...)"
        )

    def generate_batch(self, samples: list[Sample]) -> Callable[[], Iterable[Sample]]:
        """Convert a batch of samples, for example by padding; by default they stay unchanged."""
        return lambda: samples

    def _gen_str(self, line: Sample) -> str:
        """A sample as a line."""
        raise NotImplementedError("pls use MultiSlotDataGenerator or MultiSlotStringDataGenerator")

    def _write(self, lines: Iterable[str | None]) -> None:
        batch: list[Sample] = []
        for line in lines:
            for sample in self.generate_sample(line)():
                if sample is None:
                    continue
                batch.append(sample)
                if len(batch) == self.batch_size_:
                    self._write_batch(batch)
                    batch = []
        if batch:
            self._write_batch(batch)

    def _write_batch(self, samples: list[Sample]) -> None:
        for sample in self.generate_batch(samples)():
            sys.stdout.write(self._gen_str(sample))


class MultiSlotStringDataGenerator(DataGenerator):
    """Writes values that are strings already, without checking them.

    Raises:
        NotImplementedError: ``generate_sample`` is not defined.
        ValueError: a sample is no list of names and values.

    Example:
        >>> from dpexec.incubate import data_generator
        >>> class Words(data_generator.MultiSlotStringDataGenerator):
        ...     def generate_sample(self, line):
        ...         def samples():
        ...             yield [("words", ["17", "4"]), ("label", ["1"])]
        ...         return samples
        >>> Words().run_from_memory()
        2 17 4 1 1
    """

    def _gen_str(self, line: Sample) -> str:
        _check_is_sample(line)
        return " ".join(" ".join([str(len(values)), *values]) for _, values in line) + "\n"


class MultiSlotDataGenerator(DataGenerator):
    """Writes numbers, and checks that all samples have the same slots.

    A slot becomes a float slot with its first float.

    Raises:
        NotImplementedError: ``generate_sample`` is not defined.
        ValueError: a sample is no list of names and values, or a slot is empty.

    Example:
        >>> from dpexec.incubate.data_generator import MultiSlotDataGenerator
        >>> class Words(MultiSlotDataGenerator):
        ...     def generate_sample(self, line):
        ...         def samples():
        ...             yield [("words", [1, 2, 3]), ("label", [1])]
        ...         return samples
        >>> words = Words()
        >>> words.set_batch(2)
        >>> words.run_from_memory()
        3 1 2 3 1 1
    """

    def __init__(self) -> None:
        super().__init__()
        self._proto_info: list[tuple[str, str]] | None = None

    def _gen_str(self, line: Sample) -> str:
        _check_is_sample(line)
        kinds = [(name, _kind(name, values)) for name, values in line]
        self._proto_info = kinds if self._proto_info is None else _merged(self._proto_info, kinds)
        return " ".join(" ".join(map(str, [len(values), *values])) for _, values in line) + "\n"


def _check_is_sample(line: Any) -> None:
    if not isinstance(line, list | tuple):
        raise ValueError(
            "the output of process() must be in list or tuple type, such as "
            f"[('words', [1926, 8, 17]), ('label', [1])], but is {type(line).__name__}"
        )


def _kind(name: Any, values: Any) -> str:
    """``float`` or ``uint64``: of which type the values of a slot are."""
    if not isinstance(name, str):
        raise ValueError(f"name {type(name)} must be in str type")
    if not isinstance(values, list):
        raise ValueError(f"elements {type(values)} must be in list type")
    if not values:
        raise ValueError(
            "the elements of each field can not be empty, you need padding it in process()."
        )
    for value in values:
        if not isinstance(value, int | float):
            raise ValueError(f"the type of element {type(value)} must be in int or float")
    return "float" if any(isinstance(value, float) for value in values) else "uint64"


def _merged(known: list[tuple[str, str]], found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The slots of all samples so far and of one more."""
    if len(known) != len(found):
        raise ValueError("the complete field set of two given line are inconsistent.")
    for (name, _), (other, _) in zip(known, found, strict=True):
        if name != other:
            raise ValueError(
                f"the field name of two given line are not match: require<{name}>, get<{other}>."
            )
    return [
        (name, "float" if "float" in (kind, other) else "uint64")
        for (name, kind), (_, other) in zip(known, found, strict=True)
    ]
