"""``fluid.parallel_executor``."""

from dpexec.runtime.parallel_executor import ParallelExecutor

__all__ = ["ParallelExecutor"]
