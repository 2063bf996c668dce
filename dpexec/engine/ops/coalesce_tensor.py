"""``coalesce_tensor``: several tensors concatenated in one long buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type, to_numpy
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require

ALIGNMENT = 4096
"""Bytes: each tensor begins at a multiple of this in the long one, as in Paddle on CPUs."""


def _places(sizes: Sequence[int], width: int) -> tuple[list[int], int]:
    """The position of each tensor, given its number of elements, and the total size."""
    step, starts, end = ALIGNMENT // width, [], 0
    for size in sizes:
        starts.append(end)
        end += -(-size // step) * step
    return starts, end


def _infer(x: Sequence[Spec], *, dtype: int) -> tuple[list[Spec], Spec]:
    kind = as_var_type(dtype)
    for spec in x:
        require(
            spec.kind == VarType.LOD_TENSOR and spec.dtype == kind,
            f"Input {spec} must be a LoDTensor of {Spec((), kind)}, which attribute dtype names",
        )
    sizes = [spec.size for spec in x]
    total = -1 if min(sizes) < 0 else _places(sizes, to_numpy(kind).itemsize)[1]
    return [spec.replace(lod_level=0) for spec in x], Spec((total,), kind)


def _samples(r: SampleRng) -> list[Sample]:
    tensors = [r.integers(0, 9, shape).astype(np.int32) for shape in ((2, 3), (5,), (1, 1200))]
    integers: dict[str, Any] = {"dtype": VarType.INT32}
    return [
        Sample({"Input": tensors}, {"copy_data": True, **integers}),
        Sample({"Input": tensors[:2]}, {"set_constant": True, "constant": 3.0, **integers}),
        Sample({"Input": tensors[1:]}, integers),
        Sample({"Input": tensors[:1]}, {"copy_data": True, **integers}),
    ]


@op(
    "coalesce_tensor",
    inputs="Input[]",
    outputs="Output[] FusedOutput",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def coalesce_tensor(
    xp: Any,
    x: list[Any],
    *,
    names: Mapping[str, Sequence[str]],
    dtype: int,
    copy_data: bool = False,
    set_constant: bool = False,
    constant: float = 0.0,
    check_name: bool = False,
) -> tuple[list[Any], Any]:
    """The inputs or ``constant`` in their shapes, and one vector that has all of them.

    Without ``copy_data`` and ``set_constant`` the values are zeros (Paddle leaves them undefined).
    The gaps between tensors are zeros, too. In Paddle the outputs are parts of ``FusedOutput``, so
    an operator that overwrites one also changes the other; here each has its own values.
    Source: Paddle op ``coalesce_tensor``.
    """
    if check_name:
        require(
            list(names["Input"]) == list(names["Output"]),
            f"check_name: Output {list(names['Output'])} must be Input {list(names['Input'])}",
        )
    kind = to_numpy(dtype)
    starts, total = _places([array.size for array in x], kind.itemsize)
    fill = 0 if copy_data or not set_constant else constant
    fused = xp.full(total, fill, kind)
    made = []
    for start, array in zip(starts, x, strict=True):
        part = fused[start : start + array.size]
        if copy_data:
            part[:] = array.reshape(-1)
        made.append(part.reshape(array.shape).copy())
    return made, fused
