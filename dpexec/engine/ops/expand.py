"""``expand`` and ``expand_as``: tensors repeated along their dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._kept_rows import with_rows
from dpexec.engine.ops._shapes import integers


def _infer(
    x: Spec, tensor: Spec | None, parts: list[Spec], *, expand_times: Sequence[int] = ()
) -> Spec:
    if parts or tensor is not None:
        known = expand_times if parts and len(expand_times) == x.rank else (-1,) * x.rank
        pairs = zip(x.shape, known, strict=True)
        made = tuple(-1 if d < 0 or times < 0 else d * times for d, times in pairs)
        return with_rows(x, made)
    require(
        len(expand_times) == x.rank and all(times > 0 for times in expand_times),
        f"expand_times is {list(expand_times)}, but must hold a positive number for every "
        f"dimension of X {x}",
    )
    shape = tuple(d if d < 0 else d * times for d, times in zip(x.shape, expand_times, strict=True))
    return with_rows(x, shape)


def _rows_stay(op: Operator, x: Spec, out: Spec) -> bool:
    """Whether the rows are not repeated; Paddle sees the attribute alone."""
    return not op.inputs.get("ExpandTimes") and op.attr("expand_times")[0] == 1


@op(
    "expand",
    inputs="X ExpandTimes? expand_times_tensor?[]",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3))}, {"expand_times": [2, 3]}),
        Sample({"X": r.normal((2, 3)), "ExpandTimes": np.array([1, 2], np.int32)}),
        Sample({"X": r.normal((2,)), "expand_times_tensor": [np.array([3], np.int32)]}),
        Sample(
            {"X": np.array([[1.0, 2.0]])},
            {"expand_times": [2, 2]},
            expected={"Out": np.array([[1.0, 2.0, 1.0, 2.0]] * 2)},
        ),
    ],
    host_inputs="ExpandTimes expand_times_tensor",
    rows_stay=_rows_stay,
    flops=0,
)
def expand(
    xp: Any, x: Any, tensor: Any, parts: list[Any], *, expand_times: Sequence[int] = ()
) -> Any:
    """``x`` repeated ``expand_times[i]`` times along dimension ``i``.

    The variables replace the attribute. Source: Paddle op ``expand``.
    """
    return xp.tile(x, integers(expand_times, tensor, parts))


@expand.grad("X ExpandTimes? expand_times_tensor?[] Out@GRAD", outputs="X@GRAD", dense=True)
def expand_grad(
    xp: Any,
    x: Any,
    tensor: Any,
    parts: list[Any],
    d_out: Any,
    *,
    expand_times: Sequence[int] = (),
) -> Any:
    """The gradients of all repetitions, added up."""
    return _folded(x, d_out, integers(expand_times, tensor, parts))


expand_grad.grad_is(expand)


def _folded(x: Any, d_out: Any, times: Sequence[int]) -> Any:
    split = [part for pair in zip(times, x.shape, strict=True) for part in pair]
    return d_out.reshape(split).sum(axis=tuple(range(0, len(split), 2)))


def _infer_as(x: Spec, target: Spec) -> Spec:
    require(
        x.rank == target.rank
        and all(a < 0 or b < 0 or (a and b % a == 0) for a, b in _pairs(x, target)),
        f"the dimensions of target_tensor {target} must be multiples of those of X {x}",
    )
    return x.replace(shape=target.shape, lod_level=0)


def _pairs(x: Spec, target: Spec) -> Any:
    return zip(x.shape, target.shape, strict=True)


@op(
    "expand_as",
    inputs="X target_tensor",
    infer=_infer_as,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3)), "target_tensor": r.normal((4, 3))}, grad=("X",)),
        Sample({"X": r.normal((3,)), "target_tensor": r.normal((6,))}, grad=("X",)),
        Sample({"X": r.normal((1, 2, 2)), "target_tensor": r.normal((3, 2, 4))}, grad=("X",)),
    ],
    capturable=True,
    flops=0,
)
def expand_as(xp: Any, x: Any, target: Any) -> Any:
    """``x`` repeated to the shape of ``target_tensor``, whose values are not read.

    Source: Paddle op ``expand_as``.
    """
    return xp.tile(x, [b // a for a, b in zip(x.shape, target.shape, strict=True)])


@expand_as.grad("X", "target_tensor", "Out@GRAD", outputs="X@GRAD", dense=True)
def expand_as_grad(xp: Any, x: Any, target: Any, d_out: Any) -> Any:
    """The gradients of all repetitions, added up."""
    return _folded(x, d_out, [b // a for a, b in zip(x.shape, target.shape, strict=True)])
