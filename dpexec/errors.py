"""The errors that programs may want to catch. ``fluid.core`` has the first two, too."""

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
