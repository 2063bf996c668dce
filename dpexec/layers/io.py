"""Where data enters a program: ``fluid.layers.data`` and the readers of ``fluid.layers``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import check_type
from dpexec.core.dtypes import VarType
from dpexec.ir.spec import Spec
from dpexec.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.reader import ProgramReader

__all__ = ["create_py_reader_by_data", "data", "double_buffer", "py_reader", "read_file"]


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: VarType = VarType.LOD_TENSOR,
    stop_gradient: bool = True,
) -> Variable:
    """Declare a variable that is fed, without its batch dimension.

    Args:
        name: under which it is fed.
        shape: dimensions of one sample; with an unknown one (-1 or None) among them, all of them.
        append_batch_size: put an unknown batch dimension in front.
        dtype: element type.
        lod_level: nesting depth of sequences.
        type: what it holds.
        stop_gradient: whether gradients stop here.

    Raises:
        TypeError: the name is not a string, or the shape not a list or tuple.
    """
    check_type(name, "name", (str, bytes), "data")
    check_type(shape, "shape", (list, tuple), "data")
    dims = [-1 if dim is None else dim for dim in shape]
    if append_batch_size and all(dim >= 0 for dim in dims):
        dims = [-1, *dims]
    return LayerHelper("data", name=name).create_global_variable(
        name=name,
        shape=dims,
        dtype=dtype,
        type=type,
        stop_gradient=stop_gradient,
        lod_level=lod_level,
        is_data=True,
    )


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> ProgramReader:
    """A reader that feeds the program, between its ``start()`` and ``reset()``.

    Args:
        capacity: number of batches to read ahead.
        shapes: of each field of a batch.
        dtypes: element type of each field.
        lod_levels: of each field; only 0 is supported.
        name: accepted for fluid's sake.
        use_double_buffer: accepted for fluid's sake; batches always wait as finished tensors.

    Returns:
        The reader; :func:`read_file` gives its variables.

    Raises:
        ValueError: not as many shapes as dtypes and lod_levels.
        EnforceNotMet: a field holds sequences.
    """
    levels = [0] * len(shapes) if lod_levels is None else lod_levels
    if not len(shapes) == len(dtypes) == len(levels):
        raise ValueError(
            f"py_reader got {len(shapes)} shapes, {len(dtypes)} dtypes and {len(levels)} "
            "lod_levels: give one of each for every field"
        )
    helper = LayerHelper("read_file")
    variables = []
    for shape, dtype, level in zip(shapes, dtypes, levels, strict=True):
        var = helper.create_variable_for_type_inference(dtype, stop_gradient=True)
        var.set_spec(Spec(tuple(shape), var.dtype, lod_level=level))
        var.is_data = True
        variables.append(var)
    return ProgramReader(variables, capacity)


def create_py_reader_by_data(
    capacity: int,
    feed_list: list[Variable],
    name: str | None = None,
    use_double_buffer: bool = True,
) -> ProgramReader:
    """As :func:`py_reader`, with fields like some variables.

    Args:
        capacity: number of batches to read ahead.
        feed_list: variables with the shapes and element types of the fields.
        name: accepted for fluid's sake.
        use_double_buffer: accepted for fluid's sake.

    Returns:
        The reader; the batches are in the variables that :func:`read_file` gives.

    Raises:
        TypeError: feed_list is not a list.
        EnforceNotMet: a variable holds sequences.
    """
    check_type(feed_list, "feed_list", list, "create_py_reader_by_data")
    return py_reader(
        capacity,
        [var.shape for var in feed_list],
        [var.dtype for var in feed_list],
        [var.lod_level for var in feed_list],
    )


def double_buffer(
    reader: ProgramReader, place: Any = None, name: str | None = None
) -> ProgramReader:
    """The reader itself: it reads ahead anyway.

    Raises:
        TypeError: not a reader of :func:`py_reader`.
    """
    check_type(reader, "reader", ProgramReader, "double_buffer")
    return reader


def read_file(reader: ProgramReader) -> Variable | list[Variable]:
    """The variables that hold a reader's batch; a single one comes without a list.

    Raises:
        TypeError: not a reader of :func:`py_reader`.
    """
    check_type(reader, "reader", ProgramReader, "read_file")
    return reader.variables[0] if len(reader.variables) == 1 else list(reader.variables)
