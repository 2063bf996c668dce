"""The values of an ONNX graph while it is converted to a program."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dims import has_open
from dpexec.onnx.loading.dtypes import held

__all__ = ["Value"]


@dataclass(eq=False)
class Value:
    """A tensor of the model: known numbers, a variable, or both; or a sequence of tensors.

    Args:
        name: its name in the model; its variable has the same name.
        array: its numbers, if they are known when the model is loaded; an array of objects if some
            are open sizes (:class:`~dpexec.onnx.loading.dims.OpenDim`).
        var: the variable that holds it in a run.
        scalar: whether it has no dimensions in the model, where its variable has the shape [1]; of
            an array, whether its tensors have none.
        items: the elements, if it is a sequence of known length; else ``var`` is an array.
        weight: whether it is an initializer that becomes a parameter.
        statistic: whether it is an initializer that is never trained, as running means are.
        element: the ONNX type of its numbers, if programs hold them in a wider one; else 0.
        levels: its numbers plus ``offset`` in 8 bits, if they are int8; ``var`` is made of it where
            an operator wants the numbers themselves.
        offset: what the levels are too large by.
    """

    name: str
    array: np.ndarray[Any, Any] | None = None
    var: Variable | None = None
    scalar: bool = False
    items: list[Value] | None = None
    weight: bool = False
    statistic: bool = False
    dims: dict[int, Any] = field(default_factory=dict)
    element: int = 0
    levels: Variable | None = None
    offset: int = 0

    def __post_init__(self) -> None:
        if self.array is not None:
            self.array, self.element = held(self.array)

    @property
    def is_sequence(self) -> bool:
        """Whether it is a sequence of tensors: a list of them, or an array of the program."""
        array = self.var is not None and self.var.type == VarType.LOD_TENSOR_ARRAY
        return self.items is not None or array

    @property
    def known(self) -> np.ndarray[Any, Any] | None:
        """The numbers, if loading may compute with them: weights are left to the program."""
        return None if self.weight else self.array

    @property
    def is_open(self) -> bool:
        """Whether the array contains open sizes."""
        return has_open(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in the model, -1 where it is open."""
        if self.scalar:
            return ()
        if self.array is not None:
            return tuple(self.array.shape)
        var = self.levels if self.var is None else self.var
        assert var is not None
        return tuple(var.shape)

    @property
    def rank(self) -> int:
        """Number of dimensions in the model."""
        return len(self.shape)

    @property
    def dtype(self) -> VarType:
        """Element type."""
        if self.var is not None:
            return self.var.dtype
        if self.levels is not None:
            return VarType.INT32
        assert self.array is not None
        return VarType.INT64 if self.is_open else as_var_type(self.array.dtype)
