"""``fluid.contrib.mixed_precision``: products in float16, delicate operators in float32."""

from dpexec.contrib.mixed_precision.decorator import decorate
from dpexec.contrib.mixed_precision.fp16_lists import AutoMixedPrecisionLists
from dpexec.engine.ir.undo import build_whole as _build_whole

__all__ = ["AutoMixedPrecisionLists", "decorate"]

_build_whole(globals(), __all__, __name__)
