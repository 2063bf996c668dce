"""The layers after an estimator's net: predictions, and the loss of every sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dpexec as fluid
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.sklearn.inputs import InputSpec

__all__ = ["PROBABILITIES", "VALUES", "Head"]


@dataclass(frozen=True)
class Head:
    """The last layers of a training program.

    Args:
        target: function from the number of outputs to the declaration of the target.
        predict: function of the net's result ``(samples, width)`` and the number of outputs;
            returns the predictions.
        losses: function of the net's result and the target; returns losses ``(samples, 1)``.
    """

    target: Callable[[int], InputSpec]
    predict: Callable[[Any, int], Any]
    losses: Callable[[Any, Any], Any]


def _class(classes: int) -> InputSpec:
    return InputSpec((1,), "int64")


def _targets(count: int) -> InputSpec:
    return InputSpec((count,), "float32")


def _probabilities(found: Any, classes: int) -> Any:
    """Probabilities from one logit per class, or from a single logit for two classes.

    Raises:
        ValueError: the net returns another number of logits.
    """
    if found.shape[-1] == 1 and classes == 2:
        second = fluid.layers.sigmoid(found)
        return fluid.layers.concat([1.0 - second, second], axis=1)
    _check_width(found, classes, "classes")
    return fluid.layers.softmax(found)


def _cross_entropy(found: Any, label: Any) -> Any:
    if found.shape[-1] == 1:
        wanted = fluid.layers.cast(label, "float32")
        return fluid.layers.sigmoid_cross_entropy_with_logits(found, wanted)
    return fluid.layers.softmax_with_cross_entropy(found, label)


def _values(found: Any, targets: int) -> Any:
    """The net's result, one number per target.

    Raises:
        ValueError: the net returns another number of values.
    """
    _check_width(found, targets, "targets")
    return found


def _half_squares(found: Any, target: Any) -> Any:
    error = fluid.layers.square_error_cost(found, target)
    return fluid.layers.reduce_mean(error, dim=1, keep_dim=True) * 0.5


def _check_width(found: Any, count: int, what: str) -> None:
    if found.shape[-1] != count:
        raise ValueError(
            f"there are {count} {what}, but the net returns {found.shape[-1]} numbers for a sample "
            f"(shape {found.shape}); its argument 'outputs' would get their number"
        )


PROBABILITIES = Head(_class, _probabilities, _cross_entropy)
VALUES = Head(_targets, _values, _half_squares)
