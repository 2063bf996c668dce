"""``fluid.contrib.slim``: smaller nets, of which dpexec has quantization."""

from dpexec.contrib.slim import quantization

__all__ = ["quantization"]
