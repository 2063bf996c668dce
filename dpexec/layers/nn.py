"""Common layers: fc, embedding, dropout, softmax and others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.checks import (
    FLOATS,
    SINGLE_DOUBLE,
    check_choice,
    check_dtype,
    check_type,
    check_variable_and_dtype,
)
from dpexec.engine.core.dtypes import as_var_type
from dpexec.engine.ir.variable import Variable
from dpexec.initializer import Constant
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs

__all__ = ["dropout", "embedding", "fc", "label_smooth", "log_softmax", "prelu", "softmax"]


def fc(
    input: Variable | Sequence[Variable],
    size: int,
    num_flatten_dims: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """A fully connected layer: ``act(x1 w1 + x2 w2 + ... + b)``.

    Args:
        input: one variable, or several; each gets its own weight.
        size: width of the output.
        num_flatten_dims: number of leading dimensions to keep; the others are flattened. -1 keeps
            all but the last.
        param_attr: attributes of the weight(s), one or a list.
        bias_attr: attributes of the bias; False for none.
        act: name of an activation.
        name: prefix of names.

    Returns:
        Shape ``input.shape[:num_flatten_dims] + (size,)``. Source: Paddle ops ``mul``, ``sum``.

    Raises:
        TypeError: ``input`` is no variable of type float16, float32 or float64.
        ValueError: the inputs have different types, or their number is not that of ``param_attr``.
        EnforceNotMet: ``num_flatten_dims`` leaves no dimension on one side.

    See Also:
        :func:`mul`: a product of two variables, as matrices.
        :func:`matmul`: a product of two variables, batch by batch.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 784])
        ...     digit = fluid.layers.fc(x, size=10, act="softmax")
        ...     [p.shape for p in fluid.default_main_program().all_parameters()], digit.shape
        ([(784, 10), (10,)], (-1, 10))
    """
    check_type(input, "input", (list, tuple, Variable), "fc")
    helper = LayerHelper(
        "fc", input=input, param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    dtype = helper.input_dtype()
    check_dtype(dtype, "input", FLOATS, "fc")
    products = []
    for var, attr in helper.iter_inputs_and_params():
        if num_flatten_dims == -1:
            num_flatten_dims = len(var.shape) - 1
        weight = helper.create_parameter(
            attr, [math.prod(var.shape[num_flatten_dims:]), size], dtype
        )
        attrs = {"x_num_col_dims": num_flatten_dims, "y_num_col_dims": 1}
        made = add_outputs(helper, {"X": var, "Y": weight}, {"Out": dtype}, attrs, op_type="mul")
        products.append(made["Out"])
    total = products[0]
    if len(products) > 1:
        total = add_outputs(helper, {"X": products}, {"Out": dtype}, op_type="sum")["Out"]
    return helper.append_activation(helper.append_bias_op(total, dim_start=num_flatten_dims))


def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Rows of a trainable table, for ids with a last dimension of 1, which the row replaces.

    Args:
        input: int64 ids ``(..., 1)``.
        size: ``[rows, width]`` of the table.
        is_sparse: make the gradient sparse: it holds only the rows that were read.
        is_distributed: keep the table on parameter servers only, not on trainers; needs is_sparse.
        padding_idx: this id (counted from the end if negative) gives zeros and gets no gradient.
        param_attr: attributes of the table.
        dtype: element type of the table.

    Returns:
        Shape ``(..., width)``. Source: Paddle op ``lookup_table``.

    Raises:
        TypeError: ``input`` does not hold int64, or ``size`` is not two integers.

    See Also:
        :func:`~dpexec.embedding`: the newer form, for ids of any shape.
        :func:`one_hot`: rows of zeros with a one.
        :func:`gather`: rows of a variable by index.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     words = fluid.data("words", [None, 1], "int64", lod_level=1)
        ...     fluid.layers.embedding(words, size=[1000, 16]).shape
        (-1, 16)
    """
    return lookup(
        "lookup_table", input, size, is_sparse, is_distributed, padding_idx, param_attr, dtype
    )


def _table_size(size: Any) -> Any:
    """A table's size, converted from an array to a list; the parameter checks None."""
    numbers = size.tolist() if isinstance(size, np.ndarray) else size
    listed = isinstance(numbers, Sequence) and all(hasattr(n, "__index__") for n in numbers)
    if size is not None and not listed:
        raise TypeError(f"size of embedding must be integers [rows, width], but is {size!r}")
    return numbers


def lookup(
    op_type: str,
    ids: Variable,
    size: Sequence[int],
    is_sparse: bool,
    is_distributed: bool,
    padding_idx: int | None,
    param_attr: Any,
    dtype: Any,
) -> Variable:
    """The part that both embedding layers share; arguments as for :func:`embedding`."""
    helper = LayerHelper("embedding", param_attr=param_attr)
    check_variable_and_dtype(ids, "input", ("int64",), "embedding")
    check_dtype(dtype, "dtype", FLOATS, "embedding")
    if is_sparse and not is_distributed and not isinstance(is_sparse, bool):
        raise AssertionError(f"is_sparse of embedding must be a bool, but received {is_sparse!r}")
    size = _table_size(size)
    table = helper.create_parameter(helper.param_attr, size, dtype)
    if padding_idx is None:
        padding_idx = -1
    elif padding_idx < 0:
        padding_idx += size[0]
    attrs = {
        "is_sparse": is_sparse,
        "is_distributed": is_distributed,
        "remote_prefetch": is_sparse and not is_distributed,
        "padding_idx": padding_idx,
    }
    inputs = {"Ids": ids, "W": table}
    return add_outputs(helper, inputs, {"Out": dtype}, attrs, op_type=op_type)["Out"]


def dropout(
    x: Variable,
    dropout_prob: float,
    is_test: bool = False,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Variable:
    """Set random elements to zero while training.

    Args:
        x: any shape.
        dropout_prob: probability that an element is dropped.
        is_test: drop nothing.
        seed: makes the masks reproducible; None takes the seed of the program. Each step has
            another mask, while the real Paddle then repeats the first one.
        name: prefix of names.
        dropout_implementation: ``"downgrade_in_infer"`` multiplies by ``1 - dropout_prob`` when
            testing, ``"upscale_in_train"`` divides by it when training.

    Returns:
        The same shape. Source: Paddle op ``dropout``; Srivastava and others, 2014.

    Raises:
        TypeError: ``x`` is no variable of type float16, float32 or float64.
        EnforceNotMet: ``dropout_prob`` is not between 0 and 1, or ``dropout_implementation`` is
            unknown.

    See Also:
        :func:`random_crop`: cuts a random part of images.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[4.0, 8.0]], "float32"))
        ...     out = fluid.layers.dropout(x, dropout_prob=0.25, is_test=True)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[3., 6.]], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", FLOATS, "dropout")
    helper = LayerHelper("dropout", name=name)
    seed = seed or helper.main_program.random_seed or seed
    attrs = {
        "dropout_prob": dropout_prob,
        "is_test": is_test,
        "fix_seed": seed is not None,
        "seed": 0 if seed is None else seed,
        "dropout_implementation": dropout_implementation,
    }
    made = add_outputs(helper, {"X": x}, {"Out": x.dtype, "Mask": "uint8"}, attrs)
    made["Mask"].stop_gradient = True
    return made["Out"]


def softmax(
    input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1
) -> Variable:
    """Probabilities ``exp(x) / sum(exp(x))`` along an axis.

    Args:
        input: any shape.
        use_cudnn: ignored; accepted for compatibility.
        name: prefix of names.
        axis: axis along which the results sum to 1.

    Returns:
        The same shape. Source: Paddle op ``softmax``.

    Raises:
        TypeError: ``input`` is no variable of type float16, float32 or float64.
        EnforceNotMet: ``axis`` is not one of ``input``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0.0, 0.0], [1.0, 3.0]], "float32"))
        ...     out = fluid.layers.softmax(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([[0.5   , 0.5   ],
               [0.1192, 0.8808]], dtype=float32)
    """
    check_variable_and_dtype(input, "input", FLOATS, "softmax")
    attrs = {"axis": axis, "use_cudnn": use_cudnn}
    return add_op("softmax", {"X": input}, input.dtype, attrs, name=name)


def log_softmax(
    input: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Logarithm of the softmax along an axis.

    Args:
        input: any shape.
        axis: axis along which probabilities sum to 1; None for the last.
        dtype: type to convert the input to.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle ops ``softmax`` and ``log``.

    Raises:
        TypeError: ``input`` is no variable of type float16, float32 or float64.
        EnforceNotMet: ``axis`` is not one of ``input``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0.0, 0.0], [1.0, 3.0]], "float32"))
        ...     out = fluid.layers.log_softmax(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([[-0.6931, -0.6931],
               [-2.1269, -0.1269]], dtype=float32)
    """
    helper = LayerHelper("log_softmax", name=name)
    if dtype is None:
        check_variable_and_dtype(input, "input", FLOATS, "log_softmax")
    else:
        check_dtype(dtype, "dtype", SINGLE_DOUBLE, "log_softmax")
        types = {"in_dtype": input.dtype, "out_dtype": as_var_type(dtype)}
        input = add_outputs(helper, {"X": input}, {"Out": dtype}, types, op_type="cast")["Out"]
    attrs = {"axis": -1 if axis is None else axis, "use_cudnn": False}
    dtypes = {"Out": input.dtype}
    softmaxed = add_outputs(helper, {"X": input}, dtypes, attrs, op_type="softmax")["Out"]
    return add_outputs(helper, {"X": softmaxed}, dtypes, op_type="log")["Out"]


def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Mix labels with a prior: ``(1 - epsilon) * label + epsilon * prior``.

    Args:
        label: probabilities ``(..., classes)``.
        prior_dist: the prior ``(1, classes)``; None for ``1 / classes``.
        epsilon: between 0 and 1.
        dtype: element type.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``label_smooth``; Szegedy and others, 2016.

    Raises:
        ValueError: ``epsilon`` is not between 0 and 1.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0.0, 1.0]], "float32"))
        ...     out = fluid.layers.label_smooth(x, epsilon=0.1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[0.05, 0.95]], dtype=float32)]
    """
    if not 0.0 <= epsilon <= 1.0:
        raise ValueError(f"epsilon of label_smooth must be between 0 and 1, but is {epsilon}")
    check_variable_and_dtype(label, "label", SINGLE_DOUBLE, "label_smooth")
    label.stop_gradient = True
    inputs = {"X": label} if prior_dist is None else {"X": label, "PriorDist": prior_dist}
    return add_op("label_smooth", inputs, dtype, {"epsilon": float(epsilon)}, name=name)


def prelu(x: Variable, mode: str, param_attr: Any = None, name: str | None = None) -> Variable:
    """``x`` where positive, else ``alpha * x`` with a trainable ``alpha`` that starts at 0.25.

    Args:
        x: ``(N, C, ...)``.
        mode: ``"all"`` has one alpha, ``"channel"`` one per channel, ``"element"`` one per element
            of a sample.
        param_attr: attributes of alpha.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``prelu``; He and others, 2015.

    Raises:
        AssertionError: ``x`` has no channels, for mode ``"channel"``.
        ValueError: there is no such mode.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 32, 32])
        ...     fluid.layers.prelu(x, mode="channel").shape
        (-1, 3, 32, 32)
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "prelu")
    check_choice(mode, "mode", ("all", "channel", "element"), "prelu")
    helper = LayerHelper("prelu", param_attr=param_attr, name=name)
    shape = [1]
    if mode == "channel":
        if len(x.shape) < 2:
            raise AssertionError(f"prelu with mode 'channel' needs channels, x has {x.shape}")
        shape = [1, x.shape[1], 1, 1]
    elif mode == "element":
        shape = [1, *x.shape[1:]]
    alpha = helper.create_parameter(
        helper.param_attr, shape, "float32", default_initializer=Constant(0.25)
    )
    inputs = {"X": x, "Alpha": alpha}
    return add_outputs(helper, inputs, {"Out": x.dtype}, {"mode": mode})["Out"]
