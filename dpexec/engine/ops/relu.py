"""``relu``."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, op, same_as
from dpexec.engine.ops._shapes import require_float


def _infer(x: Spec) -> Spec:
    require_float(x)
    return x


@op(
    "relu",
    ulps=0,
    inputs="X",
    infer=_infer,
    attrs={"use_mkldnn": False, "use_cudnn": False},
    samples=lambda r: [
        Sample({"X": r.away_from(0.0, shape)}) for shape in ((3, 4), (5,), (2, 1, 3))
    ],
    capturable=True,
    grad_lod="flow",
    precision="gray",
    fuses=True,
    quantized="inputs outputs",
)
def relu(xp: Any, x: Any) -> Any:
    """Rectified linear unit, ``max(x, 0)``. Source: Paddle op ``relu``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.relu(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([0., 0., 1.], dtype=float32)]
    """
    return xp.maximum(x, 0)


@relu.grad("Out", "Out@GRAD", ulps=0)
def relu_grad(xp: Any, out: Any, d_out: Any) -> Any:
    """The gradient passes where the output is positive."""
    return xp.where(out > 0, d_out, 0)


@relu_grad.double_grad("Out", "DDX", outputs="DDOut", infer=same_as("Out"))
def relu_grad_grad(xp: Any, out: Any, ddx: Any) -> Any:
    """Like the gradient: ``ddx`` where the output is positive, else 0."""
    return xp.where(out > 0, ddx, 0)
