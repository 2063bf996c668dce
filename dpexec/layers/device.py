"""``fluid.layers.device``: the devices of a ParallelDo."""

from dpexec.layers.parallel_do import get_places

__all__ = ["get_places"]
