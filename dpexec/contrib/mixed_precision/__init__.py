"""``fluid.contrib.mixed_precision``: products in float16, everything delicate in float32."""

from dpexec.contrib.mixed_precision.decorator import decorate
from dpexec.contrib.mixed_precision.fp16_lists import AutoMixedPrecisionLists

__all__ = ["AutoMixedPrecisionLists", "decorate"]
