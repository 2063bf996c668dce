"""``squeeze``, ``unsqueeze`` and ``flatten``: the first versions of ``squeeze2`` and others.

Old programs use them. Their gradients read X itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import OpDef, Sample, SampleRng, Spec, op
from dpexec.engine.ops import reshape2 as flattening
from dpexec.engine.ops import squeeze2 as squeezing
from dpexec.engine.ops._kept_rows import same_elements


def _with_gradient(definition: OpDef) -> None:
    @definition.grad("X", "Out@GRAD", outputs="X@GRAD", infer=lambda x, d_out: x)
    def kernel_grad(xp: Any, x: Any, d_out: Any) -> Any:
        """The gradient in the shape of X; a view."""
        return d_out.reshape(x.shape)


def _infer_squeeze(x: Spec, *, axes: Sequence[int] = ()) -> Spec:
    return squeezing.infer_squeeze(x, axes=axes)[0]


@op(
    "squeeze",
    inputs="X",
    infer=_infer_squeeze,
    samples=lambda r: [
        Sample({"X": r.normal((2, 1, 3, 1))}, {"axes": [1, -1]}),
        Sample({"X": r.normal((2, 1, 3, 1))}, {"axes": [3]}),
        Sample({"X": r.normal((2, 1, 3, 1))}),
    ],
    capturable=True,
    makes_numbers=True,
    grad_lod="own",
    quantized="inputs",
    rows_stay=squeezing.squeezed_rows_stay,
    flops=0,
)
def squeeze(xp: Any, x: Any, *, axes: Sequence[int] = ()) -> Any:
    """``x`` without axes of size 1. Source: Paddle op ``squeeze``.

    Args:
        axes: the axes to remove; none for all of size 1.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0]], "float32"))
        ...     out = fluid.layers.ops.squeeze(x, axes=[0])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([1., 2.], dtype=float32)]
    """
    return squeezing.squeeze2(xp, x, axes=axes)[0]


def _infer_unsqueeze(
    x: Spec, tensor: Spec | None, parts: list[Spec], *, axes: Sequence[int] = ()
) -> Spec:
    return squeezing.infer_unsqueeze(x, tensor, parts, axes=axes)[0]


@op(
    "unsqueeze",
    inputs="X AxesTensor? AxesTensorList?[]",
    infer=_infer_unsqueeze,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3))}, {"axes": [0, 2]}),
        Sample({"X": r.normal((2, 3))}, {"axes": [-1, 0]}),
        Sample({"X": r.normal((2, 3)), "AxesTensor": np.array([1])}),
    ],
    capturable=True,
    host_inputs="AxesTensor AxesTensorList",
    makes_numbers=True,
    grad_lod="own",
    rows_stay=squeezing.unsqueezed_rows_stay,
    flops=0,
)
def unsqueeze(xp: Any, x: Any, tensor: Any, parts: list[Any], *, axes: Sequence[int] = ()) -> Any:
    """As ``unsqueeze2``. Source: Paddle op ``unsqueeze``."""
    return squeezing.unsqueeze2(xp, x, tensor, parts, axes=axes)[0]


def _infer_flatten(x: Spec, *, axis: int = 1) -> Spec:
    return flattening.infer_flatten(x, axis=axis)[0]


def _flatten_samples(r: SampleRng) -> list[Sample]:
    return [Sample({"X": r.normal((2, 3, 4))}, {"axis": axis}) for axis in range(4)]


@op(
    "flatten",
    inputs="X",
    infer=_infer_flatten,
    samples=_flatten_samples,
    capturable=True,
    grad_lod="own",
    rows_stay=same_elements,
    flops=0,
)
def flatten(xp: Any, x: Any, *, axis: int = 1) -> Any:
    """As ``flatten2``. Source: Paddle op ``flatten``."""
    return flattening.flatten2(xp, x, axis=axis)[0]


for _definition in (squeeze, unsqueeze, flatten):
    _with_gradient(_definition)
