"""Variables of a program: names with a shape and a type, not values."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from dpexec.engine.arguments.converted import (
    as_dtype,
    as_flag,
    as_integer,
    as_kind,
    as_name,
    as_shape,
)
from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import see
from dpexec.engine.ir.arithmetic import Arithmetic
from dpexec.engine.ir.opdef import Spec
from dpexec.engine.ir.roles import grad_name
from dpexec.engine.ir.undo import note_attributes
from dpexec.engine.ir.views import VariableView

if TYPE_CHECKING:
    from dpexec.engine.ir.block import Block
    from dpexec.engine.ir.operator import Operator

__all__ = ["Parameter", "Variable"]


def _dynamic_only(name: str) -> Any:
    def method(self: Variable, *_: Any, **__: Any) -> Any:
        problem = (
            f"Variable {self.name}: {name}() works on values, but a program only describes the "
            "computation; fetch the variable with Executor.run instead"
        )
        raise see("a-variable-that-is-used-as-a-value", AssertionError(problem))

    method.__name__ = name
    method.__doc__ = "Not available in a program; raises AssertionError as in fluid."
    return method


def _no_number(kind: str) -> Any:
    def method(self: Variable, *_: Any, **__: Any) -> Any:
        problem = (
            f"Variable {self.name} is no {kind}: it has a value only while its program runs; fetch "
            "it with Executor.run instead"
        )
        raise see("a-variable-that-is-used-as-a-value", TypeError(problem))

    method.__doc__ = "Not available: raises TypeError."
    return method


class Variable(Arithmetic):
    """A named value of a block.

    Args:
        block: the block it belongs to.
        type: what it holds, ``LOD_TENSOR`` by default.
        name: made up if None.
        shape: dimensions, -1 (or None) where unknown.
        dtype: element type.
        lod_level: nesting depth of sequences.
        persistable: whether the value outlives a run (parameters, optimizer state).
        stop_gradient: whether gradients stop here.
        is_data: whether it is fed.
        need_check_feed: whether feeds are checked in Python, as for ``fluid.data``.
        error_clip: clips the gradient of this variable in the backward pass, such as
            :class:`~dpexec.clip.ErrorClipByValue`; None does not.
        fields: for a ``READER``, shape and type of every field of a batch.

    Raises:
        TypeError: ``name`` is no string, or a size in ``shape`` no integer.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
        ...     x = fluid.data("x", [None, 4])
        ...     y = x[:, 0:2] * 2.0
        ...     x.shape, y.shape, x.stop_gradient, y.name
        ((-1, 4), (-1, 2), True, 'tmp_0')
    """

    def __init__(
        self,
        block: Block,
        type: VarType = VarType.LOD_TENSOR,
        name: str | None = None,
        shape: Sequence[int | None] | None = None,
        dtype: Any = None,
        lod_level: int | None = None,
        persistable: bool | None = None,
        error_clip: Any = None,
        stop_gradient: bool = False,
        is_data: bool = False,
        need_check_feed: bool = False,
        fields: Sequence[Spec] = (),
        **_: Any,
    ) -> None:
        self.block = block
        self.type = as_kind(type)
        self.name = unique_name.generate("_generated_var") if name is None else as_name(name)
        self._shape = () if shape is None else as_shape(shape, self.name)
        self._dtype = VarType.FP32 if dtype is None else as_dtype(dtype)
        self.lod_level = as_integer(lod_level or 0, f"lod_level of variable {self.name}")
        self._persistable = as_flag(persistable, f"persistable of variable {self.name}")
        self._stop_gradient = stop_gradient
        self.error_clip = error_clip
        self.is_data = is_data
        self.need_check_feed = as_flag(need_check_feed, f"need_check_feed of {self.name}")
        self.fields = tuple(fields)
        self.op: Operator | None = None
        self._info: dict[str, Any] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions, -1 where unknown until a batch is fed."""
        return self._shape

    @property
    def dtype(self) -> VarType:
        """Element type."""
        return self._dtype

    @property
    def persistable(self) -> bool:
        """Whether the value outlives a run; settable."""
        return self._persistable

    @persistable.setter
    def persistable(self, value: bool) -> None:
        value = as_flag(value, f"persistable of variable {self.name}")
        note_attributes(self, "_persistable")
        self._persistable = value
        self.block.program._changed()

    @property
    def stop_gradient(self) -> bool:
        """Whether gradients stop here; settable."""
        return self._stop_gradient

    @stop_gradient.setter
    def stop_gradient(self, value: bool) -> None:
        note_attributes(self, "_stop_gradient")
        self._stop_gradient = value

    @property
    def grad_name(self) -> str:
        """Name of the gradient variable."""
        return grad_name(self.name)

    @property
    def desc(self) -> VariableView:
        """The variable as tools of fluid see it."""
        return VariableView(self)

    @property
    def spec(self) -> Spec:
        """Shape and type as one value."""
        return Spec(self._shape, self._dtype, self.type, self.lod_level)

    def set_spec(self, spec: Spec, keeps_level: bool = False) -> None:
        """Set the shape and type that inference derived.

        Args:
            spec: both.
            keeps_level: whether the level of sequences stays what it is if the new one is 0.
        """
        note_attributes(self, "_shape", "_dtype", "type", "lod_level")
        self._shape, self._dtype, self.type = spec.shape, spec.dtype, spec.kind
        self.lod_level = spec.lod_level or (self.lod_level if keeps_level else 0)

    def _get_info(self, key: str) -> Any:
        return self._info.get(key)

    def _set_info(self, key: str, value: Any) -> None:
        self._info = {**self._info, key: value}  # not in place: clones share it

    def set_error_clip(self, error_clip: Any) -> None:
        """Clip the gradient of this variable in the backward pass."""
        self.error_clip = error_clip

    _set_error_clip = set_error_clip

    def to_string(self, throw_on_error: bool = True, with_details: bool = False) -> str:
        """The variable in protobuf text form."""
        from dpexec.engine.ir.printer import variable_text

        return variable_text(self, with_details)

    numpy = _dynamic_only("numpy")
    backward = _dynamic_only("backward")
    gradient = _dynamic_only("gradient")
    clear_gradient = _dynamic_only("clear_gradient")
    detach = _dynamic_only("detach")
    set_value = _dynamic_only("set_value")
    __float__, __int__ = _no_number("float"), _no_number("int")
    __array__ = _no_number("array")

    def __str__(self) -> str:
        return self.to_string()

    __repr__ = __str__
    __hash__ = object.__hash__


class Parameter(Variable):
    """A persistable variable that training changes.

    Args:
        block: the global block.
        shape: dimensions, all known.
        dtype: element type.
        type: ``LOD_TENSOR``, a tensor.
        trainable: whether optimizers update it.
        optimize_attr: ``{"learning_rate": factor}``, by which its learning rate is multiplied.
        regularizer: weight decay of this parameter alone.
        do_model_average: whether ModelAverage averages it.
        gradient_clip_attr: gradient clip of this parameter alone.
        is_distributed: whether its rows lie on parameter servers.
        initializer: gives it its value when the startup program runs.
        kwargs: further arguments of :class:`Variable`, such as ``name``.

    Raises:
        ValueError: the shape is missing or has an unknown dimension.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        ...     y = fluid.layers.fc(fluid.data("x", [None, 4]), size=2)
        ...     parameters = fluid.default_main_program().all_parameters()
        ...     [(p.name, p.shape, p.trainable) for p in parameters]
        [('fc_0.w_0', (4, 2), True), ('fc_0.b_0', (2,), True)]
    """

    def __init__(
        self,
        block: Block,
        shape: Sequence[int],
        dtype: Any,
        type: VarType = VarType.LOD_TENSOR,
        trainable: bool = True,
        optimize_attr: dict[str, float] | None = None,
        regularizer: Any = None,
        do_model_average: bool | None = None,
        gradient_clip_attr: Any = None,
        is_distributed: bool = False,
        initializer: Any = None,
        **kwargs: Any,
    ) -> None:
        if shape is None or dtype is None:
            raise ValueError("a parameter needs a shape and a dtype")
        sizes: Sequence[Any] = shape or ()
        numbers = (d for d in sizes if isinstance(d, Real))  # what is none is refused below
        if not sizes or None in sizes or any(d < 0 for d in numbers):
            raise ValueError(
                f"Dimensions of shape for Parameter must be greater than 0, but received {shape}"
            )
        kwargs["persistable"] = True
        super().__init__(block, type=type, shape=shape, dtype=dtype, **kwargs)
        self.gradient_clip_attr = gradient_clip_attr
        self.initializer = initializer
        self.set_training(trainable, optimize_attr, regularizer, do_model_average, is_distributed)

    def set_training(
        self,
        trainable: bool = True,
        optimize_attr: dict[str, float] | None = None,
        regularizer: Any = None,
        do_model_average: bool | None = None,
        is_distributed: bool = False,
    ) -> None:
        """How it is trained. What its last declaration says counts, as in Paddle."""
        self.trainable = trainable
        self.optimize_attr = {"learning_rate": 1.0} if optimize_attr is None else optimize_attr
        self.regularizer = regularizer
        self.do_model_average = do_model_average
        self.is_distributed = is_distributed
