"""Error classes for programs to catch. The first two are in ``fluid.core``, too."""

from dpexec.engine.core.errors import (
    ClusterError,
    EnforceNotMet,
    EOFException,
    MissingGradientError,
    MissingKernelError,
    SchedulerLostError,
    StateLostError,
    WorkerLostError,
)

__all__ = [
    "ClusterError",
    "EOFException",
    "EnforceNotMet",
    "MissingGradientError",
    "MissingKernelError",
    "SchedulerLostError",
    "StateLostError",
    "WorkerLostError",
]
