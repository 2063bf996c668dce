"""Building blocks of branches: splitting and merging by a mask, selecting variables."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.checks import check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs

__all__: list[str] = []


def select_input(inputs: Sequence[Variable], mask: Variable) -> Variable:
    """Select one of several variables.

    Source: ``fluid.layers.control_flow.select_input``.

    Args:
        inputs: variables of one type; only the selected one needs a value.
        mask: index of the selected variable: int32, one element.

    Returns:
        The selected variable.

    Raises:
        TypeError: ``mask`` is no variable of type int32.
        EnforceNotMet: ``mask`` is not one int32.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     tens = [fluid.layers.fill_constant([1], "float32", 10.0 * i) for i in range(3)]
        ...     index = fluid.data("index", [1], "int32")
        ...     out = fluid.layers.control_flow.select_input(tens, index)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     exe.run(feed={"index": np.array([2], "int32")}, fetch_list=[out])
        [array([20.], dtype=float32)]
    """
    check_type(inputs, "inputs", (list, tuple), "select_input")
    check_variable_and_dtype(mask, "mask", ["int32"], "select_input")
    helper = LayerHelper("select_input")
    first = inputs[0]
    out: Variable = helper.create_variable(dtype=first.dtype, shape=first.shape, type=first.type)
    helper.append_op("select_input", {"X": list(inputs), "Mask": mask}, {"Out": out})
    return out


def select_output(
    input: Variable, outputs: Sequence[Variable], mask: Variable
) -> Sequence[Variable]:
    """Assign a value to one of several variables.

    Args:
        input: the value.
        outputs: variables of the input's type; only the selected one is assigned.
        mask: index of the selected variable: int32, one element.

    Returns:
        ``outputs``. Source: ``fluid.layers.control_flow.select_output``.

    Raises:
        TypeError: ``mask`` is no variable of type int32.
        EnforceNotMet: ``mask`` is not one int32.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     value = fluid.layers.fill_constant([1], "float32", 7.0)
        ...     low, high = (fluid.layers.fill_constant([1], "float32", 0.0) for _ in range(2))
        ...     index = fluid.layers.fill_constant([1], "int32", 1)
        ...     _ = fluid.layers.control_flow.select_output(value, [low, high], index)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[low, high])
        [array([0.], dtype=float32), array([7.], dtype=float32)]
    """
    check_type(input, "input", Variable, "select_output")
    check_variable_and_dtype(mask, "mask", ["int32"], "select_output")
    check_type(outputs, "outputs", (list, tuple), "select_output")
    helper = LayerHelper("select_output")
    helper.append_op("select_output", {"X": input, "Mask": mask}, {"Out": list(outputs)})
    return outputs


def split_lod_tensor(input: Variable, mask: Variable, level: int = 0) -> tuple[Variable, Variable]:
    """Split a tensor's rows, or sequences, into those where a mask is True and where it is False.

    Args:
        input: the tensor.
        mask: bool ``(n, 1)``.
        level: level of sequences to use, if there are any.

    Returns:
        The part for True and the part for False. Source: Paddle op ``split_lod_tensor``.

    Raises:
        TypeError: an argument has the wrong type.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec.layers.control_flow import merge_lod_tensor, split_lod_tensor
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1], [-2], [3]], "float32"))
        ...     mask = fluid.layers.greater_than(x, fluid.layers.zeros_like(x))
        ...     positive, others = split_lod_tensor(x, mask)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[positive, others])
        [array([[1.],
               [3.]], dtype=float32), array([[-2.]], dtype=float32)]
    """
    check_type(input, "input", Variable, "fluid.layers.split_lod_tensor")
    check_type(mask, "mask", Variable, "fluid.layers.split_lod_tensor")
    check_type(level, "level", int, "fluid.layers.split_lod_tensor")
    helper = LayerHelper("split_lod_tensor")
    dtypes = {"OutTrue": input.dtype, "OutFalse": input.dtype}
    made = add_outputs(helper, {"X": input, "Mask": mask}, dtypes, {"level": level})
    return made["OutTrue"], made["OutFalse"]


def merge_lod_tensor(
    in_true: Variable, in_false: Variable, x: Variable, mask: Variable, level: int = 0
) -> Variable:
    """Merge the rows, or sequences, of two tensors by a mask.

    Args:
        in_true: the rows or sequences where the mask is True.
        in_false: the rows or sequences where the mask is False.
        x: the tensor before splitting; its sequence levels above ``level`` are used.
        mask: bool ``(n, 1)``.
        level: level of sequences to use, if there are any.

    Returns:
        ``(n, ...)``, or ``n`` sequences. Source: Paddle op ``merge_lod_tensor``.

    Raises:
        TypeError: an argument has the wrong type.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec.layers.control_flow import merge_lod_tensor, split_lod_tensor
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1], [-2], [3]], "float32"))
        ...     mask = fluid.layers.greater_than(x, fluid.layers.zeros_like(x))
        ...     positive, others = split_lod_tensor(x, mask)
        ...     out = merge_lod_tensor(positive * 10.0, others, x, mask)  # the order of x again
        ...     (found,) = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        >>> found.tolist()
        [[10.0], [-2.0], [30.0]]
    """
    for name, var in (("x", x), ("mask", mask), ("in_true", in_true), ("in_false", in_false)):
        check_type(var, name, Variable, "fluid.layers.merge_lod_tensor")
    inputs = {"X": x, "Mask": mask, "InTrue": in_true, "InFalse": in_false}
    return add_op("merge_lod_tensor", inputs, in_true.dtype, {"level": level})
