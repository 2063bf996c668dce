"""Sections of tensors."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from dpexec.checks import NO_HALF, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, mixed, numbers_or_tensors, seed_variable

__all__ = ["crop", "crop_tensor", "random_crop"]

Numbers = Sequence[int | Variable] | Variable


def crop(
    x: Variable,
    shape: Sequence[int] | Variable | None = None,
    offsets: Sequence[int] | Variable | None = None,
    name: str | None = None,
) -> Variable:
    """The section of a tensor with a given shape that begins at ``offsets``.

    Args:
        x: float32.
        shape: numbers, or a variable whose shape is used. If it begins with -1, the section has
            all rows.
        offsets: numbers, or a variable with all offsets; 0 by default.
        name: prefix of names.

    Returns:
        The section. Source: Paddle op ``crop``.

    Raises:
        TypeError: ``x`` is no variable of type float32.
        EnforceNotMet: ``shape`` or ``offsets`` does not have a number for each dimension, or the
            cut reaches beyond ``x``.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     fluid.layers.crop(fluid.data("x", [3, 5]), shape=[2, 3], offsets=[0, 1]).shape
        (2, 3)
    """
    check_variable_and_dtype(x, "x", ("float32",), "crop")
    check_type(shape, "shape", (list, tuple, Variable), "crop")
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    for value, slot, attr in (
        (shape, "Y", "shape"),
        ([0] * len(x.shape) if offsets is None else offsets, "Offsets", "offsets"),
    ):
        if isinstance(value, Variable):
            inputs[slot] = value
        else:
            attrs[attr] = value
    return add_op("crop", inputs, x.dtype, attrs, name=name)


def crop_tensor(
    x: Variable,
    shape: Numbers | None = None,
    offsets: Numbers | None = None,
    name: str | None = None,
) -> Variable:
    """The section of a tensor with a given shape that begins at ``offsets``.

    Args:
        x: float32, float64, int32 or int64.
        shape: numbers, one-element variables, or a variable with all sizes; -1 for the rest.
        offsets: likewise, without -1; 0 by default.
        name: prefix of names.

    Returns:
        The section. Source: Paddle op ``crop_tensor``.

    Raises:
        TypeError: a number is not an integer.
        ValueError: a number is out of range.

    See Also:
        :func:`slice`: a range of each axis.
        :func:`strided_slice`: with steps.
        :func:`split`: all parts.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     out = fluid.layers.crop_tensor(x, shape=[1, 2], offsets=[1, 0])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[3., 4.]], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", NO_HALF, "crop_tensor")
    check_type(shape, "shape", (list, tuple, Variable), "crop_tensor")
    check_type(offsets, "offsets", (list, tuple, Variable, type(None)), "crop_tensor")
    offsets = [0] * len(x.shape) if offsets is None else offsets
    helper = LayerHelper("crop_tensor", name=name)
    out = helper.create_variable_for_type_inference(x.dtype)
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    _check_numbers(offsets, "offsets", lambda n: n >= 0)
    _check_numbers(shape, "shape", lambda n: n > 0 or n == -1)
    numbers_or_tensors(helper, offsets, ("Offsets", "OffsetsTensor"), "offsets", inputs, attrs)
    numbers_or_tensors(helper, shape, ("Shape", "ShapeTensor"), "shape", inputs, attrs)
    if mixed(shape):
        attrs["shape"] = [max(n, 0) for n in attrs["shape"]]
    helper.append_op(type="crop_tensor", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def _check_numbers(values: Any, name: str, allowed: Any) -> None:
    for value in [] if isinstance(values, Variable) else values:
        if isinstance(value, Variable):
            continue
        check_type(value, f"a number of {name}", int, "crop_tensor")
        if not allowed(value):
            raise ValueError(f"{name} of crop_tensor cannot hold {value}: {values}")


def random_crop(x: Variable, shape: Sequence[int], seed: int | Variable | None = None) -> Variable:
    """A section of every sample, at a random place.

    The seed advances from run to run in a persistable variable, which the startup program sets.

    Args:
        x: float32, float64, uint8, int16 or int32; any shape.
        shape: the size of the section in the last dimensions.
        seed: the first seed, or an int64 variable to use instead.

    Returns:
        The last dimensions replaced by ``shape``. Source: Paddle op ``random_crop``.

    Raises:
        ValueError: the seed is neither a number nor a variable.

    See Also:
        :func:`dropout`: sets elements to zero in training.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 32, 32])
        ...     fluid.layers.random_crop(x, shape=[3, 24, 24]).shape
        (-1, 3, 24, 24)
    """
    numbers = ("float32", "float64", "uint8", "int16", "int32")
    check_variable_and_dtype(x, "x", numbers, "random_crop")
    check_type(shape, "shape", list, "random_crop")
    helper = LayerHelper("random_crop")
    out = helper.create_variable_for_type_inference(x.dtype)
    attrs: dict[str, Any] = {"shape": shape}
    if seed is None:
        seed = random.randrange(-65536, 65536)
    if isinstance(seed, int):
        attrs["startup_seed"] = seed
        seed = seed_variable(helper, seed)
    elif not isinstance(seed, Variable):
        raise ValueError(f"seed of random_crop must be a Variable or an int, but is {seed!r}")
    helper.append_op(
        type="random_crop",
        inputs={"X": x, "Seed": seed},
        outputs={"Out": out, "SeedOut": seed},
        attrs=attrs,
    )
    return out
