"""``fluid.contrib``: helpers beside the main interface."""

from dpexec.contrib.memory_usage_calc import memory_usage

__all__ = ["memory_usage"]
