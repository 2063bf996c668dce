"""Passes: small steps that rewrite a program, each switched by a field of BuildStrategy.

Some rewrite the operators before they are replicated, others the graph of the replicas.
"""

from dpexec.passes.base import OperatorPass, Pass, PassManager, PassRecord
from dpexec.passes.fuse_add_activation import FuseAddActivation
from dpexec.passes.fuse_all_reduce import FuseAllReduce
from dpexec.passes.fuse_broadcast import FuseBroadcast
from dpexec.passes.fuse_optimizer import FuseOptimizer
from dpexec.passes.sequential_execution import SequentialExecution

__all__ = [
    "FuseAddActivation",
    "FuseAllReduce",
    "FuseBroadcast",
    "FuseOptimizer",
    "OperatorPass",
    "Pass",
    "PassManager",
    "PassRecord",
    "SequentialExecution",
]
