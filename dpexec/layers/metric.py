"""Metrics of classifiers."""

from __future__ import annotations

from dpexec.checks import FLOATS, INTEGERS, SINGLE_DOUBLE, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.initializer import Constant
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs
from dpexec.layers.ordering import topk

__all__ = ["accuracy", "auc", "mean_iou"]


def accuracy(
    input: Variable,
    label: Variable,
    k: int = 1,
    correct: Variable | None = None,
    total: Variable | None = None,
) -> Variable:
    """The share of samples whose label is among the ``k`` highest scores.

    Args:
        input: scores ``(N, classes)``.
        label: class indices, int64 ``(N, 1)``.
        k: number of highest scores to look at.
        correct: variable to write the number of correct samples to.
        total: variable to write the number of samples to.

    Returns:
        float32 ``(1,)``. Source: Paddle op ``accuracy``.

    Raises:
        TypeError: ``input`` is no variable of type float16, float32 or float64.
        EnforceNotMet: ``input`` is not ``(samples, classes)``, or ``label`` not ``(samples, 1)``.

    See Also:
        :class:`~dpexec.metrics.Accuracy`: over many batches, outside of the program.
        :func:`auc`: in the program, over many batches.
        :func:`mean_iou`: for segmentation.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0.8, 0.2], [0.1, 0.9]], "float32"))
        ...     label = fluid.data("label", [None, 1], "int64")
        ...     feed = {"label": np.array([[0], [0]])}
        ...     right = fluid.layers.accuracy(x, label)
        ...     fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[right])
        [array([0.5], dtype=float32)]
    """
    check_variable_and_dtype(input, "input", FLOATS, "accuracy")
    helper = LayerHelper("accuracy")
    values, indices = topk(input, k=k)
    out = helper.create_variable_for_type_inference("float32")
    if correct is None:
        correct = helper.create_variable_for_type_inference("int32")
    if total is None:
        total = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        type="accuracy",
        inputs={"Out": values, "Indices": indices, "Label": label},
        outputs={"Accuracy": out, "Correct": correct, "Total": total},
    )
    return out


def auc(
    input: Variable,
    label: Variable,
    curve: str = "ROC",
    num_thresholds: int = 4095,
    topk: int = 1,
    slide_steps: int = 1,
) -> tuple[Variable, Variable, list[Variable]]:
    """The area under the ROC curve, over all batches so far and over the latest ones.

    Scores are counted in ``num_thresholds + 1`` buckets; the counts are persistable variables
    that the startup program sets to 0.

    Args:
        input: probabilities ``(N, 2)``, float32 or float64; the last column is the score.
        label: int32 or int64 ``(N, 1)``; positive numbers are hits.
        curve: ignored, as in the real Paddle.
        num_thresholds: resolution of the scores' histogram.
        topk: ignored, as in the real Paddle.
        slide_steps: number of latest batches that the second area covers; 0 for all.

    Returns:
        Area over all batches, float64 ``(1,)``; area over the latest batches; and a list of counts:
        positive and negative ones of the latest batches, then of all batches. Source: Paddle op
        ``auc``.

    Raises:
        TypeError: ``input`` is no variable of type float32 or float64; ``label`` is no variable of
            type int32 or int64.
        EnforceNotMet: ``input`` is not ``(samples, 2)`` or ``(samples, 1)``, or ``label`` does not
            fit it.

    See Also:
        :class:`~dpexec.metrics.Auc`: outside of the program.
        :func:`accuracy`: in the program.
        :func:`mean_iou`: for segmentation.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     guess = fluid.data("guess", [None, 2])
        ...     label = fluid.data("label", [None, 1], "int64")
        ...     area, of_batch, states = fluid.layers.auc(guess, label)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     guesses = np.array([[0.1, 0.9], [0.8, 0.2]], "float32")
        ...     feed = {"guess": guesses, "label": np.array([[1], [0]])}
        ...     exe.run(main, feed=feed, fetch_list=[area])
        [array([1.])]
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "auc")
    check_variable_and_dtype(label, "label", INTEGERS, "auc")
    helper = LayerHelper("auc")
    areas = [helper.create_variable_for_type_inference("float64") for _ in range(2)]
    buckets = num_thresholds + 1
    recent, total = [(1 + slide_steps) * buckets + 1], [1, buckets]
    counts = [
        helper.create_global_variable(persistable=True, dtype="int64", shape=shape)
        for shape in (recent, recent, total, total)
    ]
    for var in counts:
        helper.set_variable_initializer(var, Constant(0.0))
    for out, steps, (positive, negative) in (
        (areas[1], slide_steps, counts[:2]),
        (areas[0], 0, counts[2:]),
    ):
        helper.append_op(
            type="auc",
            inputs={"Predict": input, "Label": label, "StatPos": positive, "StatNeg": negative},
            outputs={"AUC": out, "StatPosOut": positive, "StatNegOut": negative},
            attrs={"curve": curve, "num_thresholds": num_thresholds, "slide_steps": steps},
        )
    return areas[0], areas[1], counts


def mean_iou(
    input: Variable, label: Variable, num_classes: int
) -> tuple[Variable, Variable, Variable]:
    """Intersection over union of predicted and true regions, the mean over the classes.

    Args:
        input: predicted classes, int32 or int64.
        label: true classes of the same shape.
        num_classes: number of classes.

    Returns:
        The mean ``(1,)``, and the numbers of wrong and of right elements per class, int32. Source:
        Paddle op ``mean_iou``.

    Raises:
        EnforceNotMet: ``num_classes`` is not positive.

    See Also:
        :func:`accuracy`: in the program.
        :func:`auc`: in the program, over many batches.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     guess = fluid.layers.assign(np.array([0, 1, 1], "int32"))
        ...     label = fluid.layers.assign(np.array([0, 1, 0], "int32"))
        ...     out = fluid.layers.mean_iou(guess, label, num_classes=2)[0]
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([0.5], dtype=float32)
    """
    check_variable_and_dtype(input, "Predictions", INTEGERS, "mean_iou")
    check_variable_and_dtype(label, "Labels", INTEGERS, "mean_iou")
    helper = LayerHelper("mean_iou")
    inputs = {"Predictions": input, "Labels": label}
    dtypes = {"OutMeanIou": "float32", "OutWrong": "int32", "OutCorrect": "int32"}
    made = add_outputs(helper, inputs, dtypes, {"num_classes": num_classes})
    return made["OutMeanIou"], made["OutWrong"], made["OutCorrect"]
