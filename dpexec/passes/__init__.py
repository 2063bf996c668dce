"""Passes: small steps that rewrite the SSA graph, each switched by a field of BuildStrategy."""

from dpexec.passes.base import Pass, PassManager, PassRecord
from dpexec.passes.fuse_all_reduce import FuseAllReduce
from dpexec.passes.fuse_broadcast import FuseBroadcast
from dpexec.passes.fuse_optimizer import FuseOptimizer
from dpexec.passes.sequential_execution import SequentialExecution

__all__ = [
    "FuseAllReduce",
    "FuseBroadcast",
    "FuseOptimizer",
    "Pass",
    "PassManager",
    "PassRecord",
    "SequentialExecution",
]
