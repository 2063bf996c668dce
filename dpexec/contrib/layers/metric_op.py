"""Metrics of click-through rates that the program accumulates."""

from __future__ import annotations

from dpexec.engine.ir.variable import Variable
from dpexec.initializer import Constant
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op
from dpexec.layers.constants import fill_constant_batch_size_like
from dpexec.layers.reductions import reduce_sum

__all__ = ["ctr_metric_bundle"]


def ctr_metric_bundle(input: Variable, label: Variable) -> tuple[Variable, ...]:
    """Sums over all batches, from which metrics of click-through rates are computed.

    Args:
        input: predicted probabilities, float32 ``(samples, 1)``.
        label: true labels, 0 or 1, float32 ``(samples, 1)``.

    Returns:
        Sums, persistable ``(1,)`` each, of squared errors, absolute errors, predictions, the
        sigmoid of predictions, labels, and samples. The first four divided by the last are squared
        RMSE, MAE, predicted rate and q. Every device has its own sums. Source:
        ``fluid.contrib.layers.ctr_metric_bundle``.

    Raises:
        AssertionError: the shapes of ``input`` and ``label`` differ.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     said, label = fluid.data("said", [None, 1]), fluid.data("label", [None, 1])
        ...     sums = fluid.contrib.layers.ctr_metric_bundle(said, label)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     rows = [np.array(values, "float32") for values in ([[0.75], [0.5]], [[1], [0]])]
        ...     feed = dict(zip(["said", "label"], rows))
        ...     for _ in range(2):
        ...         found = exe.run(main, feed=feed, fetch_list=list(sums))
        >>> errors, _, predicted, _, clicks, samples = (float(value[0]) for value in found)
        >>> samples, errors / samples, predicted / samples, clicks  # over both batches
        (4.0, 0.15625, 0.625, 2.0)
    """
    if input.shape != label.shape:
        raise AssertionError(f"input {input.shape} and label {label.shape} must be alike")
    helper = LayerHelper("ctr_metric_bundle")
    absolute, squared, *others = (
        helper.create_global_variable(persistable=True, dtype="float32", shape=[1])
        for _ in range(6)
    )  # in the original's order, which their names in saved states depend on
    sums = (squared, absolute, *others)
    for total in sums:
        helper.set_variable_initializer(total, Constant(0.0))
    errors = input - label
    ones = fill_constant_batch_size_like(label, [-1, 1], "float32", 1.0)
    parts = [add_op(norm, {"X": errors}, "float32") for norm in ("squared_l2_norm", "l1_norm")]
    likely = add_op("sigmoid", {"X": input}, "float32")
    parts += [reduce_sum(part) for part in (input, likely, label, ones)]
    for part, total in zip(parts, sums, strict=True):
        helper.append_op(
            type="elementwise_add", inputs={"X": part, "Y": total}, outputs={"Out": total}
        )
    return sums
