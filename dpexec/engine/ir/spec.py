"""Shapes and types without values, and the checks that operators make on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dpexec.engine.core.dtypes import VarType, as_var_type, dtype_name, to_numpy
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.sizes import Size

__all__ = [
    "InvalidOp",
    "SameAs",
    "Spec",
    "array_spec",
    "dims_match",
    "merge_dim",
    "require",
    "same_as",
]


class InvalidOp(EnforceNotMet):
    """A rule of an operator is broken; the caller of ``infer`` adds operator and call site.

    Example:
        >>> from dpexec import extend, errors
        >>> issubclass(extend.InvalidOp, errors.EnforceNotMet)
        True
    """


def require(condition: Any, message: str) -> None:
    """Raise unless ``condition`` holds; for use in ``infer`` functions and kernels.

    Args:
        condition: true if all is well.
        message: what is wrong; the operator, its variables and the user's line are added.

    Raises:
        InvalidOp: the condition is false.

    Example:
        >>> from dpexec.extend import InvalidOp, Spec, require
        >>> def infer(x):
        ...     require(x.rank == 2, f"X {x} must be a matrix")
        ...     return x
        >>> try:
        ...     infer(Spec((2, 3, 4)))
        ... except InvalidOp as error:
        ...     print(error)
        X float32[2, 3, 4] must be a matrix
    """
    if not condition:
        raise InvalidOp(message)


@dataclass(frozen=True, slots=True)
class Spec:
    """Shape, type and kind of a variable.

    Args:
        shape: dimensions, -1 where unknown.
        dtype: element type.
        kind: ``LOD_TENSOR``, ``SELECTED_ROWS`` ...
        lod_level: nesting depth of sequences; 0 for plain tensors.
        numbers: the elements of a vector that follow from shapes alone; None: only a run tells.

    Example:
        >>> from dpexec.extend import Spec
        >>> x = Spec((-1, 4))
        >>> str(x), x.rank, x.size, x.replace(shape=(8, 4)).nbytes
        ('float32[-1, 4]', 2, -1, 128)
    """

    shape: tuple[int, ...]
    dtype: VarType = VarType.FP32
    kind: VarType = VarType.LOD_TENSOR
    lod_level: int = 0
    numbers: tuple[int, ...] | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_open(self) -> bool:
        """Whether only a batch tells some of its dimensions."""
        return any(isinstance(dim, Size) for dim in self.shape)

    @property
    def size(self) -> int:
        """Number of elements, -1 if a dimension is unknown."""
        total = 1
        for dim in self.shape:
            if dim < 0:
                return -1
            total *= dim
        return total

    @property
    def nbytes(self) -> int | None:
        """Memory of the values in bytes; None while dimensions or rows are unknown."""
        if self.kind != VarType.LOD_TENSOR or self.size < 0:
            return None
        return int(self.size * to_numpy(self.dtype).itemsize)

    def replace(self, **changes: Any) -> Spec:
        """A copy with some fields changed, of which the elements are unknown unless given."""
        return replace(self, **{"numbers": None, **changes})

    def __str__(self) -> str:
        rows = " rows of" if self.kind == VarType.SELECTED_ROWS else ""
        return f"{dtype_name(self.dtype)}{rows}{list(self.shape)}"


def array_spec(array: Any) -> Spec:
    """The spec of an array, of SelectedRows, or of sequence offsets."""
    kind = VarType.RAW if isinstance(array, Lod) else VarType.LOD_TENSOR
    if isinstance(array, SelectedRows):
        kind = VarType.SELECTED_ROWS
    return Spec(tuple(array.shape), as_var_type(array.dtype), kind)


def dims_match(a: int, b: int) -> bool:
    """Whether two dimensions can be equal; -1 can equal anything."""
    return a == b or a < 0 or b < 0


def merge_dim(a: int, b: int) -> int:
    """The known one of two matching dimensions."""
    return b if a < 0 else a


def same_as(slot: str) -> Callable[..., Spec]:
    """Make an ``infer`` for operators whose one output has shape and type of an input.

    Args:
        slot: name of that input's slot.

    Returns:
        A function for the argument ``infer`` of :func:`op`, which raises a ValueError if the
        operator has no such input. Alone it takes the first of its arguments.

    Example:
        >>> from dpexec.extend import Spec, same_as
        >>> infer = same_as("X")
        >>> str(infer(Spec((3, 4))))
        'float32[3, 4]'
    """
    return SameAs(slot, 0)


class SameAs:
    """What :func:`same_as` makes: the spec of an input.

    Args:
        slot: name of the input's slot.
        position: its place among the inputs.
    """

    def __init__(self, slot: str, position: int) -> None:
        self._slot, self._position = slot, position
        self.__doc__ = f"The output is like {slot}."

    def __call__(self, *specs: Spec) -> Spec:
        """The spec of the input."""
        return specs[self._position]

    def among(self, type: str, slots: Sequence[str]) -> SameAs:
        """The same for an operator with these inputs.

        Raises:
            ValueError: there is no such input.
        """
        if self._slot not in slots:
            raise ValueError(
                f"operator {type} has no input {self._slot!r}, which same_as names: "
                f"its inputs are {', '.join(slots)}"
            )
        return SameAs(self._slot, slots.index(self._slot))
