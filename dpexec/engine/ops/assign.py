"""``assign``, ``cast`` and ``increment``: copies, conversions and counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpexec.engine.core.arrays import TensorArray
from dpexec.engine.core.dtypes import VarType, as_var_type, to_numpy
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import (
    GradContext,
    GradOp,
    Passing,
    RoundValues,
    Sample,
    Spec,
    op,
    require,
)
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._tables import first_name


@op(
    "assign",
    inputs="X",
    infer=lambda x: x,
    sparse=("X",),
    samples=lambda r: [
        Sample({"X": r.normal((2, 3))}),
        Sample({"X": r.normal((4,))}),
        Sample({"X": r.normal((2, 1, 2))}),
        Sample({"X": r.integers(0, 9, (3,))}),
        Sample({"X": np.array([[True], [False]])}),
    ],
    capturable=True,
    copies=True,
    makes_numbers=True,
    grad_lod="flow",
    folds=True,
    flops=0,
)
def assign(xp: Any, x: Any) -> Any:
    """A copy of ``x``. Source: Paddle op ``assign``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", shape=[2], dtype="float32")
        ...     out = fluid.layers.ops.assign(x)
        ...     feed = {"x": np.array([1.0, 2.0], "float32")}
        ...     fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out])
        [array([1., 2.], dtype=float32)]
    """
    if isinstance(x, TensorArray):
        return x  # it never changes
    if isinstance(x, SelectedRows):
        return SelectedRows(x.row_array.copy(), x.height_, x.value.copy())
    return x.copy()


@assign.grad_maker
def assign_grad(context: GradContext) -> list[GradOp]:
    """The gradient is assigned, too."""
    inputs = {"X": context.output_grads["Out"]}
    return [GradOp("assign", inputs, {"Out": context.input_grads["X"]})]


def _infer_cast(x: Spec, *, out_dtype: int) -> Spec:
    return x.replace(dtype=as_var_type(out_dtype))


@op(
    "cast",
    inputs="X",
    infer=_infer_cast,
    samples=lambda r: [
        *(
            Sample({"X": r.normal(shape)}, {"in_dtype": VarType.FP32, "out_dtype": VarType.FP64})
            for shape in ((2, 3), (4,), (1, 2, 2))
        ),
        Sample(
            {"X": np.array([-1.7, 0.0, 1.7])},
            {"in_dtype": VarType.FP32, "out_dtype": VarType.INT64},
            grad=(),
            expected={"Out": np.array([-1, 0, 1])},
        ),
        Sample(
            {"X": r.integers(0, 9, (3,))},
            {"in_dtype": VarType.INT64, "out_dtype": VarType.FP32},
        ),
        Sample(
            {"X": np.array([0.0, -0.5, 2.0])},
            {"in_dtype": VarType.FP32, "out_dtype": VarType.BOOL},
            grad=(),
            expected={"Out": np.array([False, True, True])},
        ),
        Sample(
            {"X": np.array([0.5598376, -0.84738344, 0.25])},
            {"in_dtype": VarType.FP32, "out_dtype": VarType.FP16},
            grad=(),
            deviates={"Out": "cuts off the digits that float16 lacks; dpexec rounds"},
        ),
    ],
    capturable=True,
    copies=True,
    makes_numbers=True,
    grad_lod="flow",
    precision="gray",
    folds=True,
    flops=0,
)
def cast(xp: Any, x: Any, *, in_dtype: int, out_dtype: int) -> Any:
    """``x`` in another data type; conversions to integers truncate.

    Source: Paddle op ``cast``.
    """
    return x.astype(to_numpy(out_dtype))


@cast.grad_maker
def cast_grad(context: GradContext) -> list[GradOp]:
    """The gradient is cast back."""
    given = context.op.plain_attrs()
    attrs = {**given, "in_dtype": given["out_dtype"], "out_dtype": given["in_dtype"]}
    inputs = {"X": context.output_grads["Out"]}
    return [GradOp("cast", inputs, {"Out": context.input_grads["X"]}, attrs)]


def _infer_increment(x: Spec) -> Spec:
    require(x.size in (1, -1), f"X {x} must have one element")
    return x


def _pass_counter(op: Operator) -> Callable[[RoundValues], bool]:
    """What comes out is known."""
    x, out = first_name(op.inputs, "X"), first_name(op.outputs, "Out")
    step = op.attrs.get("step", 1.0)

    def passes(values: RoundValues) -> bool:
        counter = values[x]
        values[out] = counter + counter.dtype.type(step)
        return True

    return passes


@op(
    "increment",
    inputs="X",
    infer=_infer_increment,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": np.array([3])}, {"step": 2.0}, expected={"Out": np.array([5])}),
        Sample({"X": np.array([3])}, expected={"Out": np.array([4])}),
        Sample({"X": np.array([1.0])}, {"step": 0.5}, expected={"Out": np.array([1.5])}),
    ],
    capturable=True,
    makes_numbers=True,
    passes=Passing(_pass_counter, looks_at=("X",), code="count", slots=("Out", "X")),
    flops=per_element("Out", 1),
)
def increment(xp: Any, x: Any, *, step: float = 1.0) -> Any:
    """``x + step`` in the type of ``x``: counters. Source: Paddle op ``increment``."""
    return x + x.dtype.type(step)


@increment.undone_by
def decrement(context: GradContext) -> list[GradOp]:
    """Restore the previous value of the counter."""
    counter = context.op
    attrs = {"step": -counter.attrs["step"]}
    return [GradOp("increment", {"X": counter.outputs["Out"]}, {"Out": counter.inputs["X"]}, attrs)]
