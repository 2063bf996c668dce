"""Inputs of a program: ``fluid.layers.data`` and the readers of ``fluid.layers``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import check_type
from dpexec.engine.arguments.converted import as_name
from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType, as_var_type
from dpexec.engine.ir.program import default_main_program, default_startup_program
from dpexec.engine.ir.spec import Spec
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.reader import ProgramReader
from dpexec.reading.operators import create_double_buffer, create_reader, declare_reader

__all__ = ["create_py_reader_by_data", "data", "double_buffer", "load", "py_reader", "read_file"]


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
        name: the key in feeds.
        shape: dimensions of one sample; if one is unknown (-1 or None), all dimensions.
        append_batch_size: prepend an unknown batch dimension.
        dtype: element type.
        lod_level: nesting depth of sequences.
        type: the kind of variable.
        stop_gradient: whether gradients stop here.

    Returns:
        The variable.

    Raises:
        TypeError: the name is not a string, or the shape not a list or tuple.

    See Also:
        :func:`~dpexec.data`: the newer form, whose shapes are checked when fed.
        :func:`py_reader`: reads batches in the background.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     fluid.layers.data("x", shape=[784]).shape  # a batch of them
        (-1, 784)
    """
    check_type(name, "name", (str, bytes), "data")
    name = as_name(name)
    check_type(shape, "shape", (list, tuple), "data")
    dims = [-1 if dim is None else dim for dim in shape]
    if append_batch_size and all(dim >= 0 for dim in dims):
        dims = [-1, *dims]
    return LayerHelper("data", name=name).create_data(
        name,
        shape=dims,
        dtype=dtype,
        type=type,
        stop_gradient=stop_gradient,
        lod_level=lod_level,
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
        shapes: shape of each field of a batch.
        dtypes: element type of each field.
        lod_levels: nesting depth of sequences of each field; 0 by default.
        name: prefix of the names in the program.
        use_double_buffer: also copy batches to the device in advance.

    Returns:
        The reader; :func:`read_file` returns its variables.

    Raises:
        ValueError: the numbers of shapes, dtypes and lod_levels differ.

    See Also:
        :class:`~dpexec.io.DataLoader`: the newer form.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     reader = fluid.layers.py_reader(4, shapes=[(-1, 2)], dtypes=["float32"])
        ...     x = fluid.layers.read_file(reader)
        ...     total = fluid.layers.reduce_sum(x)
        ...     batches = lambda: ([np.full((1, 2), n, "float32")] for n in (0, 1))
        ...     reader.decorate_tensor_provider(batches)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(fluid.default_startup_program())
        ...     reader.start()
        ...     try:
        ...         while True:
        ...             print(exe.run(fetch_list=[total])[0].tolist())
        ...     except fluid.core.EOFException:
        ...         reader.reset()  # ready for the next epoch
        [0.0]
        [2.0]
    """
    levels = [0] * len(shapes) if lod_levels is None else lod_levels
    if not len(shapes) == len(dtypes) == len(levels):
        raise ValueError(
            f"py_reader got {len(shapes)} shapes, {len(dtypes)} dtypes and {len(levels)} "
            "lod_levels: give one of each for every field"
        )
    fields = [
        Spec(tuple(shape), as_var_type(dtype), lod_level=level)
        for shape, dtype, level in zip(shapes, dtypes, levels, strict=True)
    ]
    return _py_reader(capacity, fields, name, use_double_buffer)


def create_py_reader_by_data(
    capacity: int,
    feed_list: list[Variable],
    name: str | None = None,
    use_double_buffer: bool = True,
) -> ProgramReader:
    """As :func:`py_reader`, with the fields' shapes and types taken from variables.

    Args:
        capacity: number of batches to read ahead.
        feed_list: variables with the shapes and element types of the fields.
        name: prefix of the names in the program.
        use_double_buffer: also copy batches to the device in advance.

    Returns:
        The reader; :func:`read_file` returns the variables that hold the batches.

    Raises:
        TypeError: feed_list is not a list.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x, label = fluid.data("x", [None, 8]), fluid.data("label", [None, 1], "int64")
        ...     reader = fluid.layers.create_py_reader_by_data(capacity=4, feed_list=[x, label])
        ...     x, label = fluid.layers.read_file(reader)
        ...     x.shape, label.shape
        ((-1, 8), (-1, 1))
    """
    check_type(feed_list, "feed_list", list, "create_py_reader_by_data")
    return _py_reader(capacity, feed_list, name, use_double_buffer)


def _py_reader(
    capacity: int, fields: Sequence[Variable | Spec], name: str | None, use_double_buffer: bool
) -> ProgramReader:
    parts = ("queue", "reader", "double_buffer")
    keys = ("lod_tensor_blocking_queue", "create_py_reader", "double_buffer")
    names = [f"{name}_{p}" for p in parts] if name else [unique_name.generate(k) for k in keys]
    startup = create_reader(default_startup_program().global_block(), names[0], names[1], fields)
    startup.stop_gradient = False  # as fluid leaves it there
    reader = declare_reader(default_main_program().global_block(), names[1], startup.fields)
    if use_double_buffer:
        reader = create_double_buffer(reader, names[2])
    return ProgramReader(reader, capacity)


def double_buffer(
    reader: ProgramReader, place: Any = None, name: str | None = None
) -> ProgramReader:
    """Let a reader copy batches to a device in advance.

    Args:
        reader: a reader of :func:`py_reader`.
        place: the device; None takes the executor's.
        name: name of the variable that represents the reader.

    Returns:
        The reader.

    Raises:
        TypeError: not a reader of :func:`py_reader`.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     reader = fluid.layers.py_reader(2, shapes=[[-1, 4]], dtypes=["float32"])
        ...     x = fluid.layers.read_file(fluid.layers.double_buffer(reader))
        >>> x.shape
        (-1, 4)
    """
    check_type(reader, "reader", ProgramReader, "double_buffer")
    where = "AUTO" if place is None else str(place).upper()
    made = name or unique_name.generate("create_double_buffer_reader")
    reader.reader = create_double_buffer(reader.reader, made, where)
    return reader


def read_file(reader: ProgramReader) -> Variable | list[Variable]:
    """The variables that hold a reader's batch; a single variable is returned without a list.

    Args:
        reader: a reader of :func:`py_reader` or :func:`create_py_reader_by_data`.

    Returns:
        One variable for each part of a sample.

    Raises:
        TypeError: not a reader of :func:`py_reader`.
        EnforceNotMet: :func:`read_file` was called for this reader before.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     reader = fluid.layers.py_reader(4, [(-1, 8), (-1, 1)], ["float32", "int64"])
        ...     x, label = fluid.layers.read_file(reader)
        ...     x.shape, label.shape
        ((-1, 8), (-1, 1))
    """
    check_type(reader, "reader", ProgramReader, "read_file")
    helper = LayerHelper("read_file")
    variables = []
    for field in reader.reader.fields:
        var = helper.create_variable_for_type_inference(field.dtype, stop_gradient=True)
        var.set_spec(field)
        var.is_data = True
        variables.append(var)
    reader.read_into(variables)
    return variables[0] if len(variables) == 1 else variables


def load(out: Variable, file_path: str, load_as_fp16: bool | None = None) -> None:
    """Read a variable from a file when the program runs (in fluid 1.8 this layer is broken).

    Args:
        out: variable to write the value to.
        file_path: the file, as ``fluid.io.save_vars`` writes it.
        load_as_fp16: convert floating point numbers to half precision.

    Raises:
        TypeError: ``out`` is no variable.
        EnforceNotMet: when the program runs: the file cannot be read.

    Example:
        >>> import os, tempfile
        >>> import dpexec as fluid, numpy as np
        >>> with tempfile.TemporaryDirectory() as folder, fluid.program_guard(fluid.Program()):
        ...     path, exe = os.path.join(folder, "x"), fluid.Executor(fluid.CPUPlace())
        ...     with fluid.scope_guard(fluid.Scope()):
        ...         x = fluid.layers.create_global_var([2], 7.0, "float32", True, name="x")
        ...         _ = exe.run(fluid.default_startup_program())
        ...         fluid.io.save_vars(exe, folder, vars=[x])
        ...     with fluid.program_guard(fluid.Program()):
        ...         out = fluid.data("out", [2])
        ...         fluid.layers.load(out, path)
        ...         exe.run(fetch_list=[out])
        [array([7., 7.], dtype=float32)]
    """
    check_type(out, "out", Variable, "load")
    attrs: dict[str, Any] = {"file_path": file_path}
    if load_as_fp16 is not None:
        attrs["load_as_fp16"] = load_as_fp16
    LayerHelper("load").append_op(type="load", inputs={}, outputs={"Out": out}, attrs=attrs)
