"""Small networks that are used as one layer: ``fluid.nets``.

Example:
    >>> import dpexec as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     image = fluid.data("image", shape=[None, 1, 28, 28])
    ...     pooled = fluid.nets.simple_img_conv_pool(
    ...         image, num_filters=20, filter_size=5, pool_size=2, pool_stride=2, act="relu"
    ...     )
    >>> pooled.shape
    (-1, 20, 12, 12)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec import layers
from dpexec.checks import FLOATS, check_variable_and_dtype, convert_dtype
from dpexec.engine.ir.undo import whole
from dpexec.engine.ir.variable import Variable

__all__ = [
    "glu",
    "img_conv_group",
    "scaled_dot_product_attention",
    "sequence_conv_pool",
    "simple_img_conv_pool",
]


@whole
def simple_img_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int | Sequence[int],
    pool_size: int | Sequence[int],
    pool_stride: int | Sequence[int],
    pool_padding: Any = 0,
    pool_type: str = "max",
    global_pooling: bool = False,
    conv_stride: int | Sequence[int] = 1,
    conv_padding: Any = 0,
    conv_dilation: int | Sequence[int] = 1,
    conv_groups: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    use_cudnn: bool = True,
) -> Variable:
    """A convolution followed by a pooling.

    Args:
        input: images ``(N, C, H, W)``.
        num_filters: channels of the result.
        filter_size: of the convolution, as for ``layers.conv2d``.
        pool_size: of the pooling, as for ``layers.pool2d``.
        pool_stride: of the pooling.
        pool_padding: of the pooling.
        pool_type: ``"max"`` or ``"avg"``.
        global_pooling: one window that covers the image.
        conv_stride: of the convolution.
        conv_padding: of the convolution.
        conv_dilation: of the convolution.
        conv_groups: of the convolution.
        param_attr: attributes of the filters.
        bias_attr: attributes of the bias; False for none.
        act: activation after the convolution.
        use_cudnn: ignored; accepted for compatibility.

    Returns:
        ``(N, num_filters, H', W')``.

    Raises:
        TypeError: ``input`` is no variable of floats.
        ValueError: ``conv_groups`` does not divide the channels, or ``pool_type`` is unknown.
        EnforceNotMet: ``input`` does not have four dimensions.

    See Also:
        :func:`~dpexec.nets.img_conv_group`: several convolutions and a pooling.
        :func:`~dpexec.nets.sequence_conv_pool`: the same for sequences.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     image = fluid.data("image", [None, 1, 28, 28])
        ...     fluid.nets.simple_img_conv_pool(image, 8, 5, pool_size=2, pool_stride=2).shape
        (-1, 8, 12, 12)
    """
    conv = layers.conv2d(
        input,
        num_filters=num_filters,
        filter_size=filter_size,
        stride=conv_stride,
        padding=conv_padding,
        dilation=conv_dilation,
        groups=conv_groups,
        param_attr=param_attr,
        bias_attr=bias_attr,
        act=act,
        use_cudnn=use_cudnn,
    )
    return layers.pool2d(
        conv,
        pool_size=pool_size,
        pool_type=pool_type,
        pool_stride=pool_stride,
        pool_padding=pool_padding,
        global_pooling=global_pooling,
        use_cudnn=use_cudnn,
    )


@whole
def img_conv_group(
    input: Variable,
    conv_num_filter: Sequence[int],
    pool_size: int | Sequence[int],
    conv_padding: Any = 1,
    conv_filter_size: Any = 3,
    conv_act: str | None = None,
    param_attr: Any = None,
    conv_with_batchnorm: bool | Sequence[bool] = False,
    conv_batchnorm_drop_rate: float | Sequence[float] = 0.0,
    pool_stride: int | Sequence[int] = 1,
    pool_type: str = "max",
    use_cudnn: bool = True,
) -> Variable:
    """Several convolutions, each optionally with batch norm and dropout, then a pooling (VGG).

    Args:
        input: images ``(N, C, H, W)``.
        conv_num_filter: channels after each convolution.
        pool_size: as for ``layers.pool2d``.
        conv_padding: one, or one per convolution.
        conv_filter_size: one, or one per convolution.
        conv_act: activation after each convolution (after its batch norm, if it has one).
        param_attr: attributes of the filters; one, or one per convolution.
        conv_with_batchnorm: one, or one per convolution.
        conv_batchnorm_drop_rate: dropout after batch norm; one, or one per convolution.
        pool_stride: of the pooling.
        pool_type: ``"max"`` or ``"avg"``.
        use_cudnn: ignored; accepted for compatibility.

    Returns:
        ``(N, conv_num_filter[-1], H', W')``. Source: Simonyan, Zisserman, 2014.

    Raises:
        AssertionError: a list does not have one entry per convolution.

    See Also:
        :func:`~dpexec.nets.simple_img_conv_pool`: one convolution and a pooling.
        :func:`~dpexec.nets.sequence_conv_pool`: the same for sequences.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     image = fluid.data("image", [None, 1, 28, 28])
        ...     fluid.nets.img_conv_group(image, [8, 8], pool_size=2, pool_stride=2).shape
        (-1, 8, 14, 14)
    """
    if not isinstance(conv_num_filter, (list, tuple)):
        raise AssertionError("conv_num_filter must be a list or tuple")

    def each(name: str, value: Any) -> Sequence[Any]:
        if not isinstance(value, (list, tuple)):
            return [value] * len(conv_num_filter)
        if len(value) != len(conv_num_filter):
            raise AssertionError(f"{name} has {len(value)} entries, not {len(conv_num_filter)}")
        return value

    out = input
    for filters, padding, size, attr, norm, drop in zip(
        conv_num_filter,
        each("conv_padding", conv_padding),
        each("conv_filter_size", conv_filter_size),
        each("param_attr", param_attr),
        each("conv_with_batchnorm", conv_with_batchnorm),
        each("conv_batchnorm_drop_rate", conv_batchnorm_drop_rate),
        strict=True,
    ):
        out = layers.conv2d(
            out,
            num_filters=filters,
            filter_size=size,
            padding=padding,
            param_attr=attr,
            act=None if norm else conv_act,
            use_cudnn=use_cudnn,
        )
        if norm:
            out = layers.batch_norm(out, act=conv_act)
            if abs(drop) > 1e-5:
                out = layers.dropout(out, dropout_prob=drop)
    return layers.pool2d(
        out,
        pool_size=pool_size,
        pool_type=pool_type,
        pool_stride=pool_stride,
        use_cudnn=use_cudnn,
    )


@whole
def sequence_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int,
    param_attr: Any = None,
    act: str = "sigmoid",
    pool_type: str = "max",
    bias_attr: Any = None,
) -> Variable:
    """A convolution along every sequence, then a pooling of each sequence to one row.

    Args:
        input: float32 or float64 ``(rows, width)`` with one level of sequences.
        num_filters: width of the result.
        filter_size: number of rows in the convolution's window.
        param_attr: attributes of the weight.
        act: activation of the convolution.
        pool_type: how rows are reduced to one, as for ``layers.sequence_pool``.
        bias_attr: attributes of the bias; False for none.

    Returns:
        ``(sequences, num_filters)``.

    Raises:
        TypeError: ``input`` is no variable of floats.
        EnforceNotMet: ``input`` is no matrix with sequences, or ``pool_type`` is unknown.

    See Also:
        :func:`~dpexec.nets.simple_img_conv_pool`: one convolution and a pooling.
        :func:`~dpexec.nets.img_conv_group`: several convolutions and a pooling.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 8], lod_level=1)
        ...     fluid.nets.sequence_conv_pool(x, num_filters=16, filter_size=3).shape
        (-1, 16)
    """
    check_variable_and_dtype(input, "input", ("float32", "float64"), "sequence_conv_pool")
    out = layers.sequence_conv(
        input, num_filters, filter_size, param_attr=param_attr, bias_attr=bias_attr, act=act
    )
    return layers.sequence_pool(out, pool_type)


@whole
def glu(input: Variable, dim: int = -1) -> Variable:
    """A gated linear unit: the first half times the sigmoid of the second.

    Args:
        input: float32 or float64; the size of dimension ``dim`` must be even.
        dim: the dimension that is halved.

    Returns:
        ``input`` with half the size in ``dim``. Source: Dauphin and others, 2017.

    Raises:
        TypeError: ``input`` is no variable of type float16, float32 or float64.
        AssertionError: the size of dimension ``dim`` is odd.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     fluid.nets.glu(fluid.data("x", [None, 8])).shape
        (-1, 4)
    """
    check_variable_and_dtype(input, "input", FLOATS, "glu")
    value, gate = layers.split(input, num_or_sections=2, dim=dim)
    return layers.elementwise_mul(value, layers.sigmoid(gate))


@whole
def scaled_dot_product_attention(
    queries: Variable,
    keys: Variable,
    values: Variable,
    num_heads: int = 1,
    dropout_rate: float = 0.0,
) -> Variable:
    """Attention: means of ``values``, weighted by the similarity of ``keys`` and ``queries``.

    Args:
        queries: ``(N, M, D)``.
        keys: ``(N, L, D)``.
        values: ``(N, L, V)``.
        num_heads: divides D and V; with more than one, all three go through an fc layer first.
        dropout_rate: dropout on the weights.

    Returns:
        ``(N, M, V)``. Source: Vaswani and others, 2017.

    Raises:
        TypeError: data types differ.
        ValueError: shapes do not fit.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 5, 8])
        ...     fluid.nets.scaled_dot_product_attention(x, x, x, num_heads=2).shape
        (-1, 5, 8)
    """
    _check_attention(queries, keys, values, num_heads)
    if num_heads > 1:
        queries, keys, values = (
            layers.fc(part, size=part.shape[-1], num_flatten_dims=2)
            for part in (queries, keys, values)
        )
    q, k, v = (_split_heads(part, num_heads) for part in (queries, keys, values))
    scaled = layers.scale(q, scale=(keys.shape[-1] // num_heads) ** -0.5)
    product = layers.matmul(scaled, k, transpose_y=True)
    rows = layers.reshape(product, shape=[-1, product.shape[-1]], act="softmax")
    weights = layers.reshape(rows, shape=list(product.shape))
    if dropout_rate:
        weights = layers.dropout(weights, dropout_prob=dropout_rate, is_test=False)
    mixed = layers.matmul(weights, v)
    if num_heads == 1:
        return mixed
    joined = layers.transpose(mixed, perm=[0, 2, 1, 3])
    n, m, heads, width = joined.shape
    return layers.reshape(joined, shape=[n, m, heads * width])


def _split_heads(x: Variable, num_heads: int) -> Variable:
    if num_heads == 1:
        return x
    parts = layers.reshape(x, shape=[*x.shape[:-1], num_heads, x.shape[-1] // num_heads])
    return layers.transpose(parts, perm=[0, 2, 1, 3])


def _check_attention(queries: Variable, keys: Variable, values: Variable, heads: int) -> None:
    layer = "scaled_dot_product_attention"
    parts = {"queries": queries, "keys": keys, "values": values}
    for name, part in parts.items():
        check_variable_and_dtype(part, name, ("float32", "float64"), layer)
    if len({part.dtype for part in parts.values()}) > 1:
        shown = ", ".join(f"{name}: {convert_dtype(p.dtype)}" for name, p in parts.items())
        raise TypeError(f"{layer} takes one data type, but received {shown}")
    shapes = ", ".join(f"{name} {part.shape}" for name, part in parts.items())
    if any(len(part.shape) != 3 for part in parts.values()):
        raise ValueError(f"{layer} takes three dimensions each, but received {shapes}")
    if queries.shape[-1] != keys.shape[-1]:
        raise ValueError(f"{layer} needs one width of queries and keys, but received {shapes}")
    if keys.shape[-2] != values.shape[-2]:
        raise ValueError(f"{layer} needs one length of keys and values, but received {shapes}")
    if keys.shape[-1] % heads or values.shape[-1] % heads:
        raise ValueError(f"{layer}: {heads} heads do not divide the widths of {shapes}")
