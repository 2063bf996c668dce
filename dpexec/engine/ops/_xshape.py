"""``XShape``: how Paddle's reshaping operators remember the shape of their input.

It is an empty tensor of the shape (0, *shape of X); the gradient reads its shape instead of
keeping X alive.
"""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import OpDef, Spec


def xshape_spec(x: Spec) -> Spec:
    """The spec of ``XShape`` for an input."""
    return x.replace(shape=(0, *x.shape))


def xshape_array(xp: Any, x: Any) -> Any:
    """The value of ``XShape`` for an input."""
    return xp.empty((0, *x.shape), x.dtype)


def infer_from_xshape(xshape: Spec, d_out: Spec) -> Spec:
    """The gradient of X has the shape that ``XShape`` remembers."""
    return d_out.replace(shape=xshape.shape[1:], lod_level=xshape.lod_level)


def restored(xshape: Any, d_out: Any) -> Any:
    """The gradient in the shape of X."""
    return d_out.reshape(xshape.shape[1:])


def with_double_gradient(gradient: OpDef) -> None:
    """Declare the gradient of the gradient of an operator that reshapes."""

    @gradient.double_grad("DOut", "DDX", outputs="DDOut", infer=lambda d_out, ddx: d_out)
    def double(xp: Any, d_out: Any, ddx: Any) -> Any:
        """The incoming gradient in the shape of the output, as a view."""
        return ddx.reshape(d_out.shape)
