"""Shared code of recurrent operators: activations in place, and their derivatives."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpexec.engine.core.cache import limit_of
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, require
from dpexec.engine.ops._shapes import require_same_dtype, same_dims
from dpexec.engine.ops._steps import Steps
from dpexec.engine.ops.sigmoid import sigmoid_array

ACTIVATIONS = ("identity", "sigmoid", "tanh", "relu")
"""Names of activations, in the order of their numbers in ``gru_unit``."""

LOGISTIC = "logistic"
"""A sigmoid without bounds on its argument, for ``gru_unit``, ``lstm_unit`` and projections."""

SATURATED = -40.0, 13.0
"""Bounds of a sigmoid's argument in Paddle's operators over sequences. The result is between
4.2e-18 and 1 - 2.3e-6, so that no gate closes or opens completely, and gradients pass."""

THREE, EMPTY = Lod([[0, 2, 6, 7]]), Lod([[0, 1, 1, 4, 7]])
"""Offsets of sequences in samples; EMPTY contains a sequence without rows."""


UNSET = (
    "leaves the gradients of initial states of empty sequences unset; dpexec gives the derivative"
)
_WRONG = (
    "has wrong gradients for sizes that are multiples of 8 on processors with AVX, from "
    "separate code; dpexec gives the derivatives"
)


def deviating(size: int, slots: Sequence[str], unset: bool) -> dict[str, str]:
    """The reasons why samples of LSTMs differ from Paddle, by slot.

    Args:
        size: number of cells.
        slots: inputs with a gradient.
        unset: whether there are initial states of empty sequences.
    """
    if unset:
        return {"*": UNSET}
    return {} if size % 8 else {f"{slot}@GRAD": _WRONG for slot in slots}


def saturated(r: SampleRng, sample: Sample, gates: str, *states: str) -> Sample:
    """A sample with saturated gates and large states.

    Finite differences do not give its gradients: they are 0 where the argument is at its bound.

    Args:
        r: random numbers.
        sample: the sample to take other inputs from.
        gates: the slot with the gates before activation.
        states: slots of states, or cells.
    """
    inputs = {**sample.inputs, gates: r.uniform(-70.0, 70.0, sample.inputs[gates].shape)}
    inputs |= {slot: r.uniform(5.0, 9.0, sample.inputs[slot].shape) for slot in states}
    return replace(sample, inputs=inputs, smooth=False)


@dataclass(frozen=True)
class Loops:
    """An implementation of a recurrent operator's loops: array operations, or a faster one.

    Args:
        forward: computes all steps.
        backward: computes their gradients.
        products: ``a.T @ b``, for the gradients of weights.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    products: Callable[[Any, Any], Any] = lambda a, b: a.T @ b


def activate(xp: Any, x: Any, kind: str) -> Any:
    """Overwrite an array with its activation and return it.

    Args:
        xp: NumPy, or a module with its interface.
        x: the array.
        kind: one of ``ACTIVATIONS``, where ``sigmoid`` saturates (``SATURATED``); or ``LOGISTIC``.
    """
    if kind == "sigmoid":
        x[...] = sigmoid_array(xp, xp.clip(x, *SATURATED))
    elif kind == LOGISTIC:
        x[...] = sigmoid_array(xp, x)
    elif kind == "tanh":
        xp.tanh(x, out=x)
    elif kind == "relu":
        xp.maximum(x, 0, out=x)
    return x


def unbounded(kind: str) -> str:
    """The activation with sigmoids that have no bounds."""
    return LOGISTIC if kind == "sigmoid" else kind


def times_slope(grad: Any, out: Any, kind: str) -> Any:
    """Overwrite the gradient of an activation's result with the gradient of its argument.

    Args:
        grad: the gradient, which is returned.
        out: the result of the activation.
        kind: as for :func:`activate`.
    """
    if kind in ("sigmoid", LOGISTIC):
        grad *= out
        grad *= 1 - out
    elif kind == "tanh":
        grad *= 1 - out * out
    elif kind == "relu":
        grad *= out > 0
    return grad


def gate_and_slope(xp: Any, x: Any) -> Any:
    """The sigmoid in a new array; ``x`` becomes the derivative, exact also where it is tiny."""
    xp.negative(x, out=x)
    xp.minimum(x, math.log(np.finfo(x.dtype).max) - 1, out=x)
    xp.exp(x, out=x)
    gate = 1 / (1 + x)
    x *= gate
    x *= gate
    return gate


def tanh_slope(xp: Any, x: Any) -> Any:
    """The derivative of the hyperbolic tangent, exact also where the tangent is nearly 1."""
    rest = 2 / (xp.exp(2 * xp.abs(x)) + 1)
    return rest * (2 - rest)


def require_activations(**kinds: str) -> None:
    """Reject unknown activations.

    Args:
        kinds: activation by name of the attribute.
    """
    for name, kind in kinds.items():
        require(kind in ACTIVATIONS, f"{name} must be {', '.join(ACTIVATIONS)}, but is {kind!r}")


def require_shape(name: str, spec: Spec | None, shape: tuple[int, ...], like: Spec) -> None:
    """Check shape and data type of a parameter or a state.

    Args:
        name: name of the slot.
        spec: spec of the variable; None is accepted.
        shape: the required shape.
        like: the input, which has the required data type.
    """
    if spec is None:
        return
    require(
        same_dims(spec.shape, shape),
        f"{name} {spec} must have the shape {list(shape)}",
    )
    require_same_dtype(spec, like, f"{name} and Input")


def one_level(lod: Spec | None) -> int:
    """The number of sequences, -1 if unknown; nested sequences are rejected.

    Args:
        lod: spec of the offsets; None while a program is built.
    """
    if lod is None:
        return -1
    require(lod.rank == 1, f"sequences must not be nested, but Input has {lod.rank} levels of them")
    return max(lod.shape[0] - 1, -1)


def steps_of(lod: Lod, is_reverse: bool) -> Steps:
    """The time steps through concatenated sequences."""
    return _steps(lod.offsets.tobytes(), is_reverse)


@functools.lru_cache(limit_of("steps of sequences"))
def _steps(offsets: bytes, is_reverse: bool) -> Steps:
    bounds = np.frombuffer(offsets, np.int64)
    return Steps(bounds[:-1], np.diff(bounds), is_reverse)
