"""``fluid.contrib.slim``: compression of nets; dpexec supports quantization."""

from dpexec.contrib.slim import quantization

__all__ = ["quantization"]
