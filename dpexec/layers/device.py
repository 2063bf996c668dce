"""``fluid.layers.device``: the devices that a ParallelDo runs on."""

from dpexec.layers.parallel_do import get_places

__all__ = ["get_places"]
