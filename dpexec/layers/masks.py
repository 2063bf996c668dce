"""What branches are made of: tensors split and merged by a mask, one of several variables."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.checks import check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs

__all__: list[str] = []


def select_input(inputs: Sequence[Variable], mask: Variable) -> Variable:
    """One of several variables.

    Args:
        inputs: of one type; only the one that is selected needs a value.
        mask: int32, one element: its number.

    Source: ``fluid.layers.control_flow.select_input``.
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
    """Give one of several variables a value.

    Args:
        input: the value.
        outputs: of its type; only the one that is selected gets it.
        mask: int32, one element: its number.

    Returns:
        ``outputs``. Source: ``fluid.layers.control_flow.select_output``.
    """
    check_type(input, "input", Variable, "select_output")
    check_variable_and_dtype(mask, "mask", ["int32"], "select_output")
    check_type(outputs, "outputs", (list, tuple), "select_output")
    helper = LayerHelper("select_output")
    helper.append_op("select_output", {"X": input, "Mask": mask}, {"Out": list(outputs)})
    return outputs


def split_lod_tensor(input: Variable, mask: Variable, level: int = 0) -> tuple[Variable, Variable]:
    """The rows, or sequences, for which a mask holds, and the others.

    Args:
        input: the tensor.
        mask: bool ``(n, 1)``.
        level: of the sequences, if there are some.

    Returns:
        Both parts. Source: Paddle op ``split_lod_tensor``.

    Raises:
        TypeError: an argument is of a wrong type.
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
    """The rows, or sequences, of two tensors, where a mask says that they belong.

    Args:
        in_true: has those for which the mask holds.
        in_false: has the others.
        x: has the levels of sequences above ``level``.
        mask: bool ``(n, 1)``.
        level: of the sequences, if there are some.

    Returns:
        ``(n, ...)``, or ``n`` sequences. Source: Paddle op ``merge_lod_tensor``.

    Raises:
        TypeError: an argument is of a wrong type.
    """
    for name, var in (("x", x), ("mask", mask), ("in_true", in_true), ("in_false", in_false)):
        check_type(var, name, Variable, "fluid.layers.merge_lod_tensor")
    inputs = {"X": x, "Mask": mask, "InTrue": in_true, "InFalse": in_false}
    return add_op("merge_lod_tensor", inputs, in_true.dtype, {"level": level})
