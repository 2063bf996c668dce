"""``fluid.clip``: clipping of parameters' gradients, and of gradients inside the network."""

from dpexec.clip.base import GradientClipBase  # noqa: F401  fluid's
from dpexec.clip.errors import ErrorClipByValue, error_clip_callback  # noqa: F401  fluid's
from dpexec.clip.gradients import (
    GradientClipByGlobalNorm,
    GradientClipByNorm,
    GradientClipByValue,
    append_gradient_clip_ops,  # noqa: F401  fluid's
    set_gradient_clip,
)
from dpexec.engine.ir.undo import build_whole as _build_whole

__all__ = [
    "ClipByGlobalNorm",
    "ClipByNorm",
    "ClipByValue",
    "ErrorClipByValue",
    "GradientClipByGlobalNorm",
    "GradientClipByNorm",
    "GradientClipByValue",
    "set_gradient_clip",
]

ClipByValue = GradientClipByValue
ClipByNorm = GradientClipByNorm
ClipByGlobalNorm = GradientClipByGlobalNorm

_build_whole(globals(), __all__, __name__)
