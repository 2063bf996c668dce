"""Layers that cut, join, repeat and reverse sequences."""

from __future__ import annotations

from dpexec.checks import (
    INTEGERS,
    NO_HALF,
    SINGLE_DOUBLE,
    check_dtype,
    check_type,
    check_variable_and_dtype,
)
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import add_op

__all__ = [
    "sequence_concat",
    "sequence_expand",
    "sequence_expand_as",
    "sequence_reshape",
    "sequence_reverse",
    "sequence_slice",
]


def sequence_concat(input: list[Variable], name: str | None = None) -> Variable:
    """Concatenate corresponding sequences of several variables.

    Args:
        input: int64, float32 or float64 ``(rows, ...)``, all with the same number of sequences.
        name: prefix of names.

    Returns:
        All rows, in the same number of sequences. Source: Paddle op ``sequence_concat``.

    Raises:
        EnforceNotMet: the rows differ in their sizes.

    See Also:
        :func:`sequence_slice`: a part of each.
        :func:`sequence_reverse`: backwards.
        :func:`sequence_enumerate`: windows of ids.
        :func:`sequence_reshape`: other row lengths.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 8], lod_level=1)
        ...     y = fluid.data("y", [None, 8], lod_level=1)
        ...     fluid.layers.sequence_concat([x, y]).shape
        (-1, 8)
    """
    check_type(input, "input", list, "sequence_concat")
    for i, one in enumerate(input):
        check_type(one, f"input[{i}]", Variable, "sequence_concat")
        check_dtype(one.dtype, f"input[{i}]", ("int64", *SINGLE_DOUBLE), "sequence_concat")
    return add_op("sequence_concat", {"X": input}, input[0].dtype, name=name)


def sequence_slice(
    input: Variable, offset: Variable, length: Variable, name: str | None = None
) -> Variable:
    """A piece of every sequence.

    Args:
        input: ``(rows, ...)`` with sequences.
        offset: where the pieces begin in their sequences, integers ``(sequences, 1)``.
        length: numbers of rows of the pieces, integers ``(sequences, 1)``.
        name: prefix of names.

    Returns:
        The pieces, one sequence each. Source: Paddle op ``sequence_slice``.

    Raises:
        TypeError: ``input`` is no variable of type float32, float64, int32 or int64; ``offset`` or
            ``length`` is no variable of type int32 or int64.

    See Also:
        :func:`sequence_concat`: sequence by sequence.
        :func:`sequence_reverse`: backwards.
        :func:`sequence_enumerate`: windows of ids.
        :func:`sequence_reshape`: other row lengths.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 1], lod_level=1)
        ...     offset = fluid.layers.assign(np.array([[1], [0]], "int64"))
        ...     length = fluid.layers.assign(np.array([[1], [1]], "int64"))
        ...     out = fluid.layers.sequence_slice(x, offset, length)
        ...     rows = np.array([[1], [2], [3]], "float32")
        ...     feed = {"x": fluid.create_lod_tensor(rows, [[2, 1]], fluid.CPUPlace())}
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
        >>> np.array(found).tolist(), found.recursive_sequence_lengths()
        ([[2.0], [3.0]], [[1, 1]])
    """
    check_variable_and_dtype(input, "input", NO_HALF, "sequence_slice")
    inputs = {"X": input, "Offset": offset, "Length": length}
    for name_, value in (("offset", offset), ("length", length)):
        check_variable_and_dtype(value, name_, INTEGERS, "sequence_slice")
        value.stop_gradient = True
    return add_op("sequence_slice", inputs, input.dtype, name=name)


def sequence_expand(
    x: Variable, y: Variable, ref_level: int = -1, name: str | None = None
) -> Variable:
    """Repeat each sequence of ``x`` as often as the corresponding sequence of ``y`` has elements.

    Args:
        x: ``(rows, ...)`` with one level of sequences; without sequences, rows are repeated.
        y: only its sequences are used; one or two levels.
        ref_level: the level of ``y`` to use; -1 for the finest.
        name: prefix of names.

    Returns:
        The repeated sequences or rows. Source: Paddle op ``sequence_expand``.

    Raises:
        TypeError: ``x`` is no variable of type float32, float64, int32 or int64.
        EnforceNotMet: ``x`` has one dimension only.

    See Also:
        :func:`sequence_expand_as`: one row for each of them.
        :func:`expand`: by factors.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 1])
        ...     y = fluid.data("y", [None, 1], lod_level=1)
        ...     out = fluid.layers.sequence_expand(x, y)
        ...     words = fluid.create_lod_tensor(
        ...         np.zeros((3, 1), "float32"), [[2, 1]], fluid.CPUPlace()
        ...     )
        ...     feed = {"x": np.array([[1], [2]], "float32"), "y": words}
        ...     (rows,) = fluid.Executor().run(feed=feed, fetch_list=[out])
        >>> rows.ravel().tolist()
        [1.0, 1.0, 2.0]
    """
    check_variable_and_dtype(x, "x", NO_HALF, "sequence_expand")
    attrs = {"ref_level": ref_level}
    return add_op("sequence_expand", {"X": x, "Y": y}, x.dtype, attrs, name=name)


def sequence_expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Repeat each row of ``x`` to the length of the corresponding sequence of ``y``.

    Args:
        x: one row for every sequence of ``y``, ``(sequences, ...)``.
        y: only its sequences are used; one level.
        name: prefix of names.

    Returns:
        ``(rows of y, ...)`` with the sequences of ``y``. Source: Paddle op
        ``sequence_expand_as``.

    Raises:
        TypeError: ``x`` is no variable of type float32, float64, int32 or int64.
        EnforceNotMet: ``x`` has one dimension only.

    See Also:
        :func:`sequence_expand`: by the sequences of another variable.
        :func:`expand`: by factors.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x, y = fluid.data("x", [None, 1]), fluid.data("y", [None, 1], lod_level=1)
        ...     out = fluid.layers.sequence_expand_as(x, y)
        ...     rows = np.zeros((3, 1), "float32")
        ...     rows = fluid.create_lod_tensor(rows, [[2, 1]], fluid.CPUPlace())
        ...     feed = {"x": np.array([[7], [8]], "float32"), "y": rows}
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
        >>> np.array(found).tolist(), found.recursive_sequence_lengths()
        ([[7.0], [7.0], [8.0]], [[2, 1]])
    """
    check_variable_and_dtype(x, "x", NO_HALF, "sequence_expand_as")
    check_type(y, "y", Variable, "sequence_expand_as")
    return add_op("sequence_expand_as", {"X": x, "Y": y}, x.dtype, name=name)


def sequence_reshape(input: Variable, new_dim: int) -> Variable:
    """Rearrange the numbers of every sequence to rows of another width.

    Args:
        input: ``(rows, width)`` with one level of sequences.
        new_dim: the new width; must divide the count of numbers of each sequence.

    Returns:
        ``(rows * width / new_dim, new_dim)``. Source: Paddle op ``sequence_reshape``.

    Raises:
        TypeError: ``input`` is no variable of type float32, float64, int32 or int64.
        EnforceNotMet: ``input`` is no matrix, or ``new_dim`` not positive.

    See Also:
        :func:`sequence_concat`: sequence by sequence.
        :func:`sequence_slice`: a part of each.
        :func:`sequence_reverse`: backwards.
        :func:`sequence_enumerate`: windows of ids.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 2], "float32", lod_level=1)
        ...     out = fluid.layers.sequence_reshape(x, new_dim=1)
        ...     rows = np.array([[1.0, 2.0], [3.0, 4.0]], "float32")
        ...     rows = fluid.create_lod_tensor(rows, [[1, 1]], fluid.CPUPlace())
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(feed={"x": rows}, fetch_list=[out], return_numpy=False)
        >>> np.array(found).ravel().tolist(), found.recursive_sequence_lengths()
        ([1.0, 2.0, 3.0, 4.0], [[2, 2]])
    """
    check_variable_and_dtype(input, "input", NO_HALF, "sequence_reshape")
    return add_op("sequence_reshape", {"X": input}, input.dtype, {"new_dim": new_dim})


def sequence_reverse(x: Variable, name: str | None = None) -> Variable:
    """Reverse every sequence.

    Args:
        x: ``(rows, ...)`` with sequences.
        name: prefix of names.

    Returns:
        The same shape and sequences. Source: Paddle op ``sequence_reverse``.

    Raises:
        TypeError: ``x`` is no variable of type int8, float32, float64, int32 or int64.
        EnforceNotMet: ``x`` has one dimension only.

    See Also:
        :func:`sequence_concat`: sequence by sequence.
        :func:`sequence_slice`: a part of each.
        :func:`sequence_enumerate`: windows of ids.
        :func:`sequence_reshape`: other row lengths.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 1], "float32", lod_level=1)
        ...     out = fluid.layers.sequence_reverse(x)
        ...     rows = np.array([[1.0], [2.0], [3.0]], "float32")
        ...     rows = fluid.create_lod_tensor(rows, [[2, 1]], fluid.CPUPlace())
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(feed={"x": rows}, fetch_list=[out], return_numpy=False)
        >>> np.array(found).ravel().tolist(), found.recursive_sequence_lengths()
        ([2.0, 1.0, 3.0], [[2, 1]])
    """
    check_variable_and_dtype(x, "x", ("int8", *NO_HALF), "sequence_reverse")
    return add_op("sequence_reverse", {"X": x}, x.dtype, slot="Y", name=name)
