"""``im2sequence``: the windows over an image as a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.errors import MissingGradientError
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import GradContext, GradOp, Sample, Spec, dims_match, op, require
from dpexec.engine.ir.signature import default_grad_op
from dpexec.engine.ops._sequences import offsets_spec, on_host
from dpexec.engine.ops._shapes import product
from dpexec.engine.ops.unfold import unfold, unfold_grad

Ints = Sequence[int]


def _counts(size: Any, kernel: int, padding: int, stride: int) -> Any:
    """Positions of a window along one axis.

    Rounded towards zero, as in Paddle: a window that is larger than the image by less than the
    stride has one position, and reads 0 beyond the image.
    """
    room = size + padding - kernel
    return np.where(room < 0, -(-room // stride), room // stride) + 1


def window_counts(size: Sequence[Any], kernels: Ints, paddings: Ints, strides: Ints) -> list[Any]:
    """Positions along height and width."""
    return [
        _counts(size[i], kernels[i], paddings[i] + paddings[i + 2], strides[i]).tolist()
        for i in (0, 1)
    ]


def _infer(
    x: Spec,
    sizes: Spec | None,
    *,
    kernels: Ints,
    strides: Ints = (1, 1),
    paddings: Ints = (0, 0, 0, 0),
) -> tuple[Spec, Spec]:
    require(x.rank == 4, f"X {x} must be images (N, C, H, W)")
    require(len(kernels) == len(strides) == 2, "kernels and strides must be two numbers each")
    require(len(paddings) == 4, f"paddings must be four numbers, but is {list(paddings)}")
    require(
        sizes is None or (sizes.rank == 2 and dims_match(sizes.shape[0], x.shape[0])),
        f"Y {sizes} must have a row (height, width) for every image of X {x}",
    )
    grid = window_counts(x.shape[2:], kernels, paddings, strides)
    require(
        all(n >= 0 or size < 0 for n, size in zip(grid, x.shape[2:], strict=True)),
        f"windows of {list(kernels)} do not fit images {x} with paddings {list(paddings)}",
    )
    rows = -1 if sizes is not None or min(x.shape[2:]) < 0 else product((x.shape[0], *grid))
    width = product((x.shape[1], *kernels))
    return x.replace(shape=(rows, width), lod_level=1), offsets_spec(x.shape[0])


def _unfolding(size: Ints, kernels: Ints, paddings: Ints, strides: Ints) -> dict[str, Ints]:
    """Attributes of ``unfold`` for the same windows, with padding for at least one position."""
    beyond = [max(0, kernels[i] - size[i] - paddings[i] - paddings[i + 2]) for i in (0, 1)]
    return {
        "kernel_sizes": kernels,
        "strides": strides,
        "paddings": [*paddings[:2], paddings[2] + beyond[0], paddings[3] + beyond[1]],
        "dilations": [1, 1],
    }


def _sample(r: Any, kernels: Ints, strides: Ints, paddings: Ints, **more: Any) -> Sample:
    attrs = {"kernels": kernels, "strides": strides, "paddings": paddings}
    return Sample({"X": r.normal((2, 2, 4, 5))}, attrs, **more)


@op(
    "im2sequence",
    inputs="X Y?",
    outputs="Out Out@LOD",
    infer=_infer,
    checks_values=True,
    samples=lambda r: [
        _sample(r, [2, 2], [1, 1], [0, 0, 0, 0]),
        _sample(r, [3, 1], [2, 2], [1, 0, 0, 2]),
        _sample(r, [2, 3], [3, 2], [1, 1, 1, 1]),
        _sample(r, [5, 2], [3, 1], [0, 0, 0, 0]),
        _sample(r, [3, 8], [1, 2], [1, 0, 0, 2]),
        Sample(
            {"X": r.normal((2, 1, 4, 5)), "Y": np.array([[8.0, 9.0], [3.0, 6.0]])},
            {"kernels": [2, 2], "strides": [1, 1], "paddings": [0] * 4, "out_stride": [2, 2]},
            grad=(),
        ),
        Sample(
            {"X": np.arange(6.0).reshape(1, 1, 2, 3)},
            {"kernels": [2, 2]},
            expected={
                "Out": np.array([[0.0, 1, 3, 4], [1.0, 2, 4, 5]]),
                "Out@LOD": Lod([[0, 2]]),
            },
        ),
    ],
)
def im2sequence(
    xp: Any,
    x: Any,
    sizes: Any,
    *,
    kernels: Ints,
    strides: Ints = (1, 1),
    paddings: Ints = (0, 0, 0, 0),
    out_stride: Ints = (1, 1),
) -> tuple[Any, Lod]:
    """Every window over an image as a row, all windows of an image as a sequence.

    ``Y`` has the height and width of each image before it was reduced by ``out_stride`` and padded
    to a common size; with ``Y``, only windows over the unpadded part are taken. Source: Paddle op
    ``im2sequence``.

    Raises:
        ValueError: an image is smaller than ``Y`` says.
    """
    grid = window_counts(x.shape[2:], kernels, paddings, strides)
    counts = np.tile(grid, (len(x), 1))
    if sizes is not None:
        real = on_host(sizes).reshape(-1, 2).astype(np.int64)
        small = -(-real // np.array(out_stride))
        counts = np.stack(window_counts(small.T, kernels, paddings, strides), axis=1)
        if (counts > grid).any() or (counts < 0).any():
            raise ValueError(f"Y is {real.tolist()}, but images have {list(x.shape[2:])} pixels")
    columns = unfold(xp, x, **_unfolding(x.shape[2:], kernels, paddings, strides))
    columns = columns.reshape(*columns.shape[:2], *(max(n, 1) for n in grid))
    rows = [
        image[:, :h, :w].reshape(len(image), -1).T
        for image, (h, w) in zip(columns, counts.tolist(), strict=True)
    ]
    return xp.concatenate(rows), Lod.of_lengths([counts.prod(axis=1)])


@im2sequence.grad("X", "Out@GRAD", outputs="X@GRAD", dense=True)
def im2sequence_grad(
    xp: Any,
    x: Any,
    d_out: Any,
    *,
    kernels: Ints = (),
    strides: Ints = (1, 1),
    paddings: Ints = (0, 0, 0, 0),
) -> Any:
    """Every element of a window is added to its pixel."""
    if not d_out.size:
        return xp.zeros_like(x)
    d_columns = d_out.reshape(len(x), -1, d_out.shape[1]).transpose(0, 2, 1)
    return unfold_grad(xp, x, d_columns, **_unfolding(x.shape[2:], kernels, paddings, strides))


@im2sequence.grad_maker
def _grad_maker(context: GradContext) -> list[GradOp]:
    """With sizes there is no gradient: Paddle's ignores them, and is wrong."""
    if any(context.op.inputs.get("Y", [])) and any(context.input_grads["X"]):
        raise MissingGradientError("im2sequence has no gradient if images have sizes of their own")
    return [default_grad_op(context, ("X", "Out@GRAD"), ("X@GRAD",))]
