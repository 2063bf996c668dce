"""``fluid.parallel_executor``."""

from dpexec.engine.executors.parallel_executor import ParallelExecutor

__all__ = ["ParallelExecutor"]
