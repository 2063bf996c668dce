"""Layers that call Python while the program runs: functions of the user, and printing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dpexec.checks import check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.engine.ops.py_func import CallableId, registered_callables
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op

__all__ = ["Print", "py_func"]

_Variables = Variable | Sequence[Variable] | None


def py_func(
    func: Callable[..., Any],
    x: _Variables,
    out: _Variables,
    backward_func: Callable[..., Any] | None = None,
    skip_vars_in_backward_input: _Variables = None,
) -> Any:
    """A Python function as an operator.

    With several devices, the function is called concurrently, once per device with the device's
    part of the batch. On a cluster the function is sent with the program; functions that workers
    cannot import are sent by value.

    Args:
        func: takes the inputs as ``LoDTensor`` (``np.array(x)`` is the value) and returns arrays.
        x: the inputs: a variable, several, or None.
        out: the outputs, variables with shapes that the user has created: one, several, or None.
        backward_func: takes inputs, outputs and gradients of the outputs, and returns the
            gradients of the inputs, None where there is none; None: gradients stop here.
        skip_vars_in_backward_input: inputs and outputs that are not passed to ``backward_func``.

    Returns:
        ``out``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an output has no shape, or a variable to skip is neither input nor output.

    See Also:
        :func:`Print`: prints values while a program runs.

    Example:
        >>> import dpexec as fluid
        >>> import numpy as np
        >>> with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", shape=[2])
        ...     y = fluid.default_main_program().current_block().create_var(
        ...         name="y", shape=[2], dtype="float32"
        ...     )
        ...     y = fluid.layers.py_func(lambda value: np.array(value) + 1, x, y)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     exe.run(feed={"x": np.zeros(2, "float32")}, fetch_list=[y])[0].tolist()
        [1.0, 1.0]

    Source: ``fluid.layers.py_func``.
    """
    inputs, outputs = _variables(x, "X"), _variables(out, "Out")
    forward = _callable_id(func)
    backward = -1 if backward_func is None else _callable_id(backward_func)
    for var in outputs:
        if not var.shape:
            raise ValueError(
                "Output shapes of py_func op should be provided by users manually: "
                f"{var.name} has none"
            )
    skipped = [] if backward_func is None else _variables(skip_vars_in_backward_input, "skip_vars")
    known = {var.name for var in (*inputs, *outputs)}
    for var in skipped:
        if var.name not in known:
            raise ValueError(f"Variable {var.name} is not found in forward inputs and outputs")
    LayerHelper("py_func").append_op(
        type="py_func",
        inputs={"X": inputs},
        outputs={"Out": outputs},
        attrs={
            "forward_callable_id": forward,
            "backward_callable_id": backward,
            "backward_skip_vars": list(dict.fromkeys(var.name for var in skipped)),
        },
    )
    return out


def _callable_id(function: Callable[..., Any]) -> CallableId:
    if not callable(function):
        raise TypeError("func must be a Python function")
    return CallableId(function)


def _variables(value: _Variables, argument: str) -> list[Variable]:
    check_type(value, argument, (list, tuple, Variable, type(None)), "py_func")
    if value is None:
        return []
    return [value] if isinstance(value, Variable) else list(value)


def _registered_func(index: int) -> Callable[..., Any]:
    """The function that an operator's attribute refers to."""
    return registered_callables[index]


py_func.registered_func = _registered_func  # type: ignore[attr-defined]
py_func.registered_func_num = lambda: len(registered_callables)  # type: ignore[attr-defined]


def Print(
    input: Variable,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = 20,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Variable:
    """Print ``input`` to stdout whenever it is computed.

    On a cluster it appears in the worker's output.

    Args:
        input: float, int or bool.
        first_n: number of times to print on each device; -1 for always.
        message: text to print first.
        summarize: number of elements to print; -1 for all.
        print_tensor_name: print the variable's name, as ``Tensor[fc_0.tmp_1]``.
        print_tensor_type: print the element type.
        print_tensor_shape: print the dimensions of this device's value.
        print_tensor_lod: print the offsets of the sequences, if there are any.
        print_phase: ``"forward"`` prints the value, ``"backward"`` its gradient, ``"both"`` both.

    Returns:
        A variable with the same value. Use it in later layers, or nothing is printed.

    Source: ``fluid.layers.Print``.

    Raises:
        EnforceNotMet: ``message`` is no string.

    See Also:
        :func:`~dpexec.layers.py_func`: calls a function of yours.
        :func:`py_func`: calls a function of yours with them.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.Print(fluid.data("x", [None, 2]), message="x is")
        ...     x.shape  # its numbers are printed when the program runs
        (-1, 2)
    """
    kinds = ["float32", "float64", "int32", "int64", "bool"]
    check_variable_and_dtype(input, "input", kinds, "fluid.layers.Print")
    attrs = {
        "first_n": first_n,
        "summarize": summarize,
        "message": message or "",
        "print_tensor_name": print_tensor_name,
        "print_tensor_type": print_tensor_type,
        "print_tensor_shape": print_tensor_shape,
        "print_tensor_lod": print_tensor_lod,
        "print_phase": print_phase.upper(),
    }
    return add_op("print", {"In": input}, input.dtype, attrs, layer="print_" + input.name)
