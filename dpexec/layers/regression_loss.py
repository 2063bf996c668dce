"""Losses of numbers: squared, Huber and smooth L1 errors."""

from __future__ import annotations

from dpexec.checks import SINGLE_DOUBLE, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs
from dpexec.layers.reductions import reduce_mean

__all__ = ["huber_loss", "mse_loss", "smooth_l1", "square_error_cost"]


def square_error_cost(input: Variable, label: Variable) -> Variable:
    """``(input - label) ** 2``, element by element.

    Args:
        input: float32 or float64; any shape.
        label: the same shape and type.

    Returns:
        The same shape. Source: Paddle ops ``elementwise_sub``, ``square``.

    Raises:
        TypeError: ``input`` or ``label`` is no variable of type float32 or float64.
        EnforceNotMet: the shapes cannot be broadcast together.

    See Also:
        :func:`mse_loss`: their mean.
        :func:`huber_loss`: less weight for outliers.
        :func:`smooth_l1`: the same for rows, with weights.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0], [3.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[2.0], [3.0]], "float32"))
        ...     out = fluid.layers.square_error_cost(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[1.],
               [0.]], dtype=float32)]
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "square_error_cost")
    check_variable_and_dtype(label, "label", SINGLE_DOUBLE, "square_error_cost")
    helper = LayerHelper("square_error_cost")
    inputs, dtypes = {"X": input, "Y": label}, {"Out": input.dtype}
    minus = add_outputs(helper, inputs, dtypes, op_type="elementwise_sub")["Out"]
    return add_outputs(helper, {"X": minus}, dtypes, op_type="square")["Out"]


def mse_loss(input: Variable, label: Variable) -> Variable:
    """The mean of ``(input - label) ** 2``.

    Args:
        input: float32 or float64; any shape.
        label: the same shape and type.

    Returns:
        ``(1,)``. Source: Paddle ops ``elementwise_sub``, ``square``, ``reduce_mean``.

    Raises:
        TypeError: ``input`` or ``label`` is no variable of type float32 or float64.
        EnforceNotMet: the shapes cannot be broadcast together.

    See Also:
        :func:`square_error_cost`: squared differences, element by element.
        :func:`huber_loss`: less weight for outliers.
        :func:`smooth_l1`: the same for rows, with weights.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0], [3.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[2.0], [3.0]], "float32"))
        ...     out = fluid.layers.mse_loss(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([0.5], dtype=float32)]
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "mse_loss")
    check_variable_and_dtype(label, "label", SINGLE_DOUBLE, "mse_loss")
    return reduce_mean(square_error_cost(input, label))


def huber_loss(input: Variable, label: Variable, delta: float) -> Variable:
    """Huber loss: quadratic up to ``delta``, linear beyond.

    Args:
        input: predictions ``(N, 1)``.
        label: targets of the same shape.
        delta: where the loss turns linear.

    Returns:
        Losses of the same shape. Source: Paddle op ``huber_loss``.

    Raises:
        TypeError: ``input`` or ``label`` is no variable of type float32 or float64.
        EnforceNotMet: ``label`` does not have the shape of ``input``.

    See Also:
        :func:`square_error_cost`: squared differences, element by element.
        :func:`mse_loss`: their mean.
        :func:`smooth_l1`: the same for rows, with weights.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0], [3.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[1.5], [5.0]], "float32"))
        ...     out = fluid.layers.huber_loss(x, y, delta=1.0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[0.125],
               [1.5  ]], dtype=float32)]
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "huber_loss")
    check_variable_and_dtype(label, "label", SINGLE_DOUBLE, "huber_loss")
    inputs, dtypes = {"X": input, "Y": label}, {"Residual": input.dtype, "Out": input.dtype}
    return add_outputs(LayerHelper("huber_loss"), inputs, dtypes, {"delta": delta})["Out"]


def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
) -> Variable:
    """Smooth L1 loss per sample, summed over the other dimensions.

    Args:
        x: predictions ``(N, ...)``.
        y: targets of the same shape.
        inside_weight: multiplies ``x - y``.
        outside_weight: multiplies the loss of every element.
        sigma: quadratic below ``1 / sigma ** 2``; None means 1.

    Returns:
        Losses ``(N, 1)``. Source: Paddle op ``smooth_l1_loss``; Girshick, 2015.

    Raises:
        TypeError: ``x`` or ``y`` is no variable of type float32 or float64.
        EnforceNotMet: ``y`` does not have the shape of ``x``, or only one of the weights is given.

    See Also:
        :func:`square_error_cost`: squared differences, element by element.
        :func:`mse_loss`: their mean.
        :func:`huber_loss`: less weight for outliers.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0], [3.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[1.5], [5.0]], "float32"))
        ...     out = fluid.layers.smooth_l1(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[0.125],
               [1.5  ]], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "smooth_l1")
    check_variable_and_dtype(y, "y", SINGLE_DOUBLE, "smooth_l1")
    inputs = {"X": x, "Y": y, "InsideWeight": inside_weight, "OutsideWeight": outside_weight}
    attrs = {"sigma": 1.0 if sigma is None else sigma}
    dtypes = {"Diff": x.dtype, "Out": x.dtype}
    return add_outputs(LayerHelper("smooth_l1_loss"), inputs, dtypes, attrs)["Out"]
