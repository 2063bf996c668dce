"""Losses."""

from __future__ import annotations

from typing import Any

from dpexec.checks import FLOATS, SINGLE_DOUBLE, check_choice, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs
from dpexec.layers.comparisons import equal
from dpexec.layers.indexing import one_hot
from dpexec.layers.joining import expand
from dpexec.layers.manipulation import reshape, transpose
from dpexec.layers.products import matmul
from dpexec.layers.reductions import reduce_mean, reduce_sum

__all__ = [
    "cross_entropy",
    "dice_loss",
    "kldiv_loss",
    "log_loss",
    "npair_loss",
    "sigmoid_cross_entropy_with_logits",
    "softmax_with_cross_entropy",
    "teacher_student_sigmoid_loss",
]


def cross_entropy(
    input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = -100
) -> Variable:
    """Cross entropy: the negative log probability of the label.

    Args:
        input: probabilities ``(..., classes)``, such as the result of softmax.
        label: class indices, int64 ``(..., 1)`` or ``(...)``; or probabilities in the shape of
            ``input``.
        soft_label: whether labels are probabilities.
        ignore_index: samples with this label have loss 0.

    Returns:
        Losses in the shape of the class indices, or ``(..., 1)`` for soft labels. Source: Paddle
        ops ``cross_entropy2``, ``cross_entropy``.

    Raises:
        TypeError: ``input`` is no variable of type float16, float32 or float64.
        EnforceNotMet: ``label`` does not have a row for each row of ``input``, or holds no integers
            without ``soft_label``.

    See Also:
        :func:`softmax_with_cross_entropy`: from scores, in one exact operator.
        :func:`sigmoid_cross_entropy_with_logits`: for several labels per row.
        :func:`sampled_softmax_with_cross_entropy`: with sampled classes, for very many classes.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0.5, 0.5], [0.1, 0.9]], "float32"))
        ...     label = fluid.data("label", [None, 1], "int64")
        ...     feed = {"label": np.array([[0], [1]])}
        ...     loss = fluid.layers.cross_entropy(x, label)
        ...     fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[loss])[0].round(4)
        array([[0.6931],
               [0.1054]], dtype=float32)
    """
    op_type = "cross_entropy" if soft_label else "cross_entropy2"
    check_variable_and_dtype(input, "input", FLOATS, op_type)
    slots = ["Y"] if soft_label else ["Y", "XShape", "MatchX"]
    attrs: dict[str, Any] = {"ignore_index": ignore_index}
    if soft_label:
        attrs["soft_label"] = True
    inputs, dtypes = {"X": input, "Label": label}, dict.fromkeys(slots, input.dtype)
    return add_outputs(LayerHelper(op_type), inputs, dtypes, attrs)["Y"]


def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = -100,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Any:
    """Softmax and cross entropy in one numerically stable step.

    Args:
        logits: unnormalised scores ``(..., classes, ...)``.
        label: class indices, with size 1 in place of ``classes`` (which may be left out if it is
            the last axis); or probabilities in the shape of ``logits``.
        soft_label: whether labels are probabilities.
        ignore_index: samples with this label have loss 0.
        numeric_stable_mode: ignored; the computation is always stable.
        return_softmax: return ``(loss, probabilities)``.
        axis: axis of the classes.

    Returns:
        Losses in the shape of the class indices; for soft labels with 1 in place of ``classes``.
        Source: Paddle op ``softmax_with_cross_entropy``.

    Raises:
        EnforceNotMet: ``label`` does not have a row for each row of ``logits``.

    See Also:
        :func:`cross_entropy`: from probabilities.
        :func:`sigmoid_cross_entropy_with_logits`: for several labels per row.
        :func:`sampled_softmax_with_cross_entropy`: with sampled classes, for very many classes.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     scores = fluid.layers.assign(np.array([[2.0, 0.0], [0.0, 1.0]], "float32"))
        ...     label = fluid.layers.assign(np.array([[0], [0]], "int64"))
        ...     out = fluid.layers.softmax_with_cross_entropy(scores, label)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([[0.1269],
               [1.3133]], dtype=float32)
    """
    helper = LayerHelper("softmax_with_cross_entropy")
    attrs = {
        "soft_label": soft_label,
        "ignore_index": ignore_index,
        "numeric_stable_mode": numeric_stable_mode,
        "axis": axis,
    }
    dtypes = {"Softmax": logits.dtype, "Loss": logits.dtype}
    made = add_outputs(helper, {"Logits": logits, "Label": label}, dtypes, attrs)
    return (made["Loss"], made["Softmax"]) if return_softmax else made["Loss"]


def sigmoid_cross_entropy_with_logits(
    x: Variable,
    label: Variable,
    ignore_index: int = -100,
    name: str | None = None,
    normalize: bool = False,
) -> Variable:
    """Cross entropy of independent yes/no labels.

    Args:
        x: logits of any shape.
        label: probabilities of yes, same shape.
        ignore_index: elements with this label have loss 0.
        name: prefix of names.
        normalize: divide by the number of elements that are not ignored.

    Returns:
        Losses of the same shape. Source: Paddle op ``sigmoid_cross_entropy_with_logits``.

    Raises:
        TypeError: ``x`` is no variable of type float16, float32 or float64.
        EnforceNotMet: ``label`` does not have the shape of ``x``.

    See Also:
        :func:`cross_entropy`: from probabilities.
        :func:`softmax_with_cross_entropy`: from scores, in one exact operator.
        :func:`sampled_softmax_with_cross_entropy`: with sampled classes, for very many classes.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0.0, 2.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[1.0, 1.0]], "float32"))
        ...     out = fluid.layers.sigmoid_cross_entropy_with_logits(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([[0.6931, 0.1269]], dtype=float32)
    """
    op_type = "sigmoid_cross_entropy_with_logits"
    check_variable_and_dtype(x, "x", FLOATS, op_type)
    attrs = {"ignore_index": ignore_index, "normalize": normalize}
    return add_op(op_type, {"X": x, "Label": label}, x.dtype, attrs, name=name)


def log_loss(
    input: Variable, label: Variable, epsilon: float = 1e-4, name: str | None = None
) -> Variable:
    """Negative log likelihood of yes/no labels.

    Args:
        input: probabilities of yes, float32 ``(N, 1)``.
        label: 1 or 0, float32 ``(N, 1)``.
        epsilon: added inside the logarithms.
        name: prefix of names.

    Returns:
        Losses ``(N, 1)``. Source: Paddle op ``log_loss``.

    Raises:
        TypeError: ``input`` or ``label`` is no variable of type float32.
        EnforceNotMet: ``label`` does not have the shape of ``input``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0.5], [0.9]], "float32"))
        ...     y = fluid.layers.assign(np.array([[1.0], [1.0]], "float32"))
        ...     out = fluid.layers.log_loss(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([[0.6929],
               [0.1052]], dtype=float32)
    """
    check_variable_and_dtype(input, "input", ("float32",), "log_loss")
    check_variable_and_dtype(label, "label", ("float32",), "log_loss")
    inputs = {"Predicted": input, "Labels": label}
    return add_op("log_loss", inputs, input.dtype, {"epsilon": epsilon}, slot="Loss", name=name)


def kldiv_loss(
    x: Variable, target: Variable, reduction: str = "mean", name: str | None = None
) -> Variable:
    """Kullback-Leibler divergence ``target * (log(target) - x)``.

    Args:
        x: logarithms of probabilities.
        target: probabilities, same shape.
        reduction: ``"none"``, ``"mean"``, ``"sum"`` or ``"batchmean"``.
        name: prefix of names.

    Returns:
        Losses of the same shape, or ``(1,)``. Source: Paddle op ``kldiv_loss``.

    Raises:
        TypeError: ``x`` or ``target`` is no variable of type float32 or float64.
        ValueError: ``reduction`` is unknown.
        EnforceNotMet: ``target`` does not have the shape of ``x``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[-1.0, -1.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[0.5, 0.5]], "float32"))
        ...     out = fluid.layers.kldiv_loss(x, y, reduction="sum")
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([0.3069], dtype=float32)
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "kldiv_loss")
    check_variable_and_dtype(target, "target", SINGLE_DOUBLE, "kldiv_loss")
    check_choice(reduction, "reduction", ("none", "mean", "sum", "batchmean"), "kldiv_loss")
    inputs, attrs = {"X": x, "Target": target}, {"reduction": reduction}
    return add_op("kldiv_loss", inputs, x.dtype, attrs, slot="Loss", name=name)


def dice_loss(
    input: Variable, label: Variable, epsilon: float = 1e-5, name: str | None = None
) -> Variable:
    """Dice loss (segmentation): one minus twice the overlap divided by the sum of sizes.

    Args:
        input: probabilities ``(N, ..., classes)``.
        label: class indices, int64 ``(N, ..., 1)``.
        epsilon: added to the sizes.
        name: ignored; accepted for compatibility.

    Returns:
        The mean over the samples, ``(1,)``. Source: Milletari and others, 2016.

    Raises:
        EnforceNotMet: ``label`` does not fit ``input``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0.9, 0.1], [0.2, 0.8]], "float32"))
        ...     label = fluid.layers.assign(np.array([[0], [1]], "int64"))
        ...     out = fluid.layers.dice_loss(x, label)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([0.15], dtype=float32)
    """
    wanted = one_hot(label, depth=input.shape[-1])
    dims = list(range(1, len(input.shape)))
    overlap = reduce_sum(input * wanted, dim=dims)
    sizes = reduce_sum(input, dim=dims) + reduce_sum(wanted, dim=dims)
    return reduce_mean(1 - overlap * 2 / (sizes + epsilon))


def npair_loss(
    anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002
) -> Variable:
    """N-pair loss: pulls embeddings of a class together, and those of different classes apart.

    Args:
        anchor: embeddings ``(N, width)``.
        positive: embeddings ``(N, width)``; each row has the class of the same row of ``anchor``.
        labels: classes ``(N,)``; N must be known when the program is built.
        l2_reg: weight of the L2 penalty on embeddings.

    Returns:
        The loss, ``(1,)``. Source: Sohn, 2016.

    Raises:
        TypeError: ``anchor`` or ``positive`` is no variable of type float32 or float64; ``labels``
            is no variable of type float32, float64 or int64.
        EnforceNotMet: ``anchor`` and ``positive`` are no matrices of the same width.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     anchor = fluid.layers.assign(np.array([[1.0, 0.0], [0.0, 1.0]], "float32"))
        ...     positive = fluid.layers.assign(np.array([[0.9, 0.1], [0.1, 0.9]], "float32"))
        ...     labels = fluid.layers.assign(np.array([0.0, 1.0], "float32"))
        ...     out = fluid.layers.npair_loss(anchor, positive, labels)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([0.372], dtype=float32)
    """
    check_variable_and_dtype(anchor, "anchor", SINGLE_DOUBLE, "npair_loss")
    check_variable_and_dtype(positive, "positive", SINGLE_DOUBLE, "npair_loss")
    check_variable_and_dtype(labels, "labels", (*SINGLE_DOUBLE, "int64"), "npair_loss")
    count = labels.shape[0]
    rows = expand(reshape(labels, [count, 1]), [1, count])
    same = equal(rows, transpose(rows, [1, 0])).astype("float32")
    targets = same / reduce_sum(same, dim=1, keep_dim=True)
    squares = [add_op("square", {"X": part}, part.dtype) for part in (anchor, positive)]
    sizes = [reduce_mean(reduce_sum(part, 1)) for part in squares]
    similarity = matmul(anchor, positive, transpose_y=True)
    losses = softmax_with_cross_entropy(similarity, targets, soft_label=True)
    return (sizes[0] + sizes[1]) * 0.25 * l2_reg + reduce_mean(reduce_sum(targets * losses, 0))


def teacher_student_sigmoid_loss(
    input: Variable,
    label: Variable,
    soft_max_up_bound: float = 15.0,
    soft_max_lower_bound: float = -15.0,
) -> Variable:
    """Cross entropy with both a click and a teacher's score, encoded in one label.

    Args:
        input: logits ``(N, 1)``.
        label: ``(N, 1)``. Without a score: -2 for no click, -1 for a click. With a score from 0 to
            1: the score, plus 1 for a click.
        soft_max_up_bound: logits above this get no gradient.
        soft_max_lower_bound: logits below this get no gradient.

    Returns:
        Losses ``(N, 1)``. Source: Paddle op ``teacher_student_sigmoid_loss``.

    Raises:
        TypeError: ``input`` or ``label`` is no variable of type float32 or float64.
        EnforceNotMet: ``input`` or ``label`` is not ``(samples, 1)``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0.5]], "float32"))
        ...     label = fluid.layers.assign(np.array([[1.5]], "float32"))
        ...     out = fluid.layers.teacher_student_sigmoid_loss(x, label)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([[1.1982]], dtype=float32)
    """
    layer = "teacher_student_sigmoid_loss"
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, layer)
    check_variable_and_dtype(label, "label", SINGLE_DOUBLE, layer)
    helper = LayerHelper(layer)
    out = helper.create_variable(dtype=input.dtype)
    helper.append_op(
        type=layer,
        inputs={"X": input, "Label": label},
        outputs={"Y": out},
        attrs={
            "soft_max_lower_bound": float(soft_max_lower_bound),
            "soft_max_up_bound": float(soft_max_up_bound),
        },
    )
    return out
