"""Arrays of tensors: lists that loops read and write by an index that the program computes."""

from __future__ import annotations

from typing import Any

from dpexec.checks import check_type, check_variable_and_dtype
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs

__all__ = [
    "array_length",
    "array_read",
    "array_write",
    "create_array",
    "tensor_array_to_tensor",
]


def create_array(dtype: Any) -> Variable:
    """An empty array of tensors.

    Args:
        dtype: element type of the tensors.

    Returns:
        A ``LoDTensorArray`` variable. Source: ``fluid.layers.create_array``.

    Raises:
        TypeError: ``dtype`` is no type of tensors.

    See Also:
        :func:`array_write`: writes a place.
        :func:`array_read`: reads a place.
        :func:`array_length`: the number of places.
        :func:`tensor_array_to_tensor`: joins all places.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     zero = fluid.layers.fill_constant([1], "int64", 0)
        ...     array = fluid.layers.create_array("int64")
        ...     _ = fluid.layers.array_write(zero, zero, array=array)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.array_length(array)])
        [array([1])]
    """
    helper = LayerHelper("array")
    kind = VarType.LOD_TENSOR_ARRAY
    made: Variable = helper.create_variable(name=f"{helper.name}.out", type=kind, dtype=dtype)
    return made


def array_write(x: Variable, i: Variable, array: Variable | None = None) -> Variable:
    """Write a tensor to an array; the array grows as needed.

    Args:
        x: a tensor of any shape.
        i: index of the entry: int64, one element.
        array: array to write to; a new one by default.

    Returns:
        The array.

    Raises:
        TypeError: an argument has the wrong type.

    See Also:
        :func:`create_array`: an empty array of variables.
        :func:`array_read`: reads a place.
        :func:`array_length`: the number of places.
        :func:`tensor_array_to_tensor`: joins all places.

    Example:
        >>> import dpexec as fluid
        >>> layers = fluid.layers
        >>> with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     first = layers.fill_constant([1], "int64", 0)
        ...     array = layers.array_write(layers.ones([2], "float32"), first)
        ...     found = [layers.array_read(array, first), layers.array_length(array)]
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=found)
        [array([1., 1.], dtype=float32), array([1])]

    Source: Paddle op ``write_to_array``.
    """
    check_variable_and_dtype(i, "i", ["int64"], "array_write")
    check_type(x, "x", Variable, "array_write")
    helper = LayerHelper("array_write")
    if array is None:
        kind = VarType.LOD_TENSOR_ARRAY
        array = helper.create_variable(name=f"{helper.name}.out", type=kind, dtype=x.dtype)
    _check_array(array, "array_write")
    helper.append_op("write_to_array", {"X": x, "I": i}, {"Out": array})
    return array


def array_read(array: Variable, i: Variable) -> Variable:
    """Read an entry of an array.

    Args:
        array: an array of tensors, such as :func:`array_write` writes to.
        i: index of the entry: int64, one element.

    Returns:
        The tensor at this index.

    Raises:
        TypeError: an argument has the wrong type.

    Source: Paddle op ``read_from_array``.

    See Also:
        :func:`create_array`: an empty array of variables.
        :func:`array_write`: writes a place.
        :func:`array_length`: the number of places.
        :func:`tensor_array_to_tensor`: joins all places.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     zero = fluid.layers.fill_constant([1], "int64", 0)
        ...     seven = fluid.layers.assign(np.array([7.0], "float32"))
        ...     array = fluid.layers.array_write(seven, zero)
        ...     value = fluid.layers.array_read(array, zero)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[value])
        [array([7.], dtype=float32)]
    """
    check_variable_and_dtype(i, "i", ["int64"], "array_read")
    _check_array(array, "array_read")
    return add_op("read_from_array", {"X": array, "I": i}, array.dtype, layer="array_read")


def array_length(array: Variable) -> Variable:
    """The number of entries of an array.

    Args:
        array: an array of tensors, such as :func:`create_array` makes.

    Returns:
        int64 ``(1,)``.

    Raises:
        TypeError: not an array.

    Source: Paddle op ``lod_array_length``.

    See Also:
        :func:`create_array`: an empty array of variables.
        :func:`array_write`: writes a place.
        :func:`array_read`: reads a place.
        :func:`tensor_array_to_tensor`: joins all places.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     one = fluid.layers.fill_constant([1], "int64", 1)
        ...     array = fluid.layers.array_write(one, one)  # place 0 is empty, and counts
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.array_length(array)])
        [array([2])]
    """
    _check_array(array, "array_length")
    made = add_op("lod_array_length", {"X": array}, "int64", layer="array_length")
    made.stop_gradient = True
    return made


def tensor_array_to_tensor(
    input: Variable, axis: int = 1, name: str | None = None, use_stack: bool = False
) -> tuple[Variable, Variable]:
    """All entries of an array in one tensor.

    Args:
        input: the array.
        axis: axis along which to join the entries.
        name: prefix of the results' names.
        use_stack: whether to stack entries of equal shapes along a new axis.

    Returns:
        The tensor, and the size of each entry along the axis, int32 ``(entries,)``; with
        ``use_stack`` the size of the entry's own dimension of that number.

    Raises:
        TypeError: not an array.

    Source: Paddle op ``tensor_array_to_tensor``.

    See Also:
        :func:`create_array`: an empty array of variables.
        :func:`array_write`: writes a place.
        :func:`array_read`: reads a place.
        :func:`array_length`: the number of places.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1, 2], "float32"))
        ...     array = fluid.layers.create_array("float32")
        ...     for at in (0, 1):
        ...         place = fluid.layers.fill_constant([1], "int64", at)
        ...         _ = fluid.layers.array_write(x, place, array)
        ...     out, sizes = fluid.layers.tensor_array_to_tensor(array, axis=0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out, sizes])
        [array([1., 2., 1., 2.], dtype=float32), array([2, 2], dtype=int32)]
    """
    _check_array(input, "tensor_array_to_tensor")
    helper = LayerHelper("tensor_array_to_tensor", name=name)
    dtypes = {"Out": input.dtype, "OutIndex": "int32"}
    made = add_outputs(helper, {"X": input}, dtypes, {"axis": axis, "use_stack": use_stack})
    return made["Out"], made["OutIndex"]


def _check_array(array: Any, layer: str) -> None:
    if not isinstance(array, Variable) or array.type != VarType.LOD_TENSOR_ARRAY:
        raise TypeError(f"{layer} takes a tensor array variable, but received {array}")
