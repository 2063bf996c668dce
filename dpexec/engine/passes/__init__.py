"""Passes: small steps that rewrite a program, each switched by a field of BuildStrategy.

A pass rewrites either the operators before replication, or the graph of the replicas. Users add
their own passes with ``BuildStrategy.append_pass``; `pairs` and `fused` help to write them.
"""

from dpexec.engine.passes.addto import AddTo
from dpexec.engine.passes.auto_fusion import AutoFusion
from dpexec.engine.passes.base import OperatorPass, Pass, PassManager, PassRecord
from dpexec.engine.passes.common_subexpressions import CommonSubexpressions
from dpexec.engine.passes.constant_folding import ConstantFolding
from dpexec.engine.passes.dead_code import needed_nodes
from dpexec.engine.passes.fuse_add_activation import FuseAddActivation
from dpexec.engine.passes.fuse_all_reduce import FuseAllReduce
from dpexec.engine.passes.fuse_batch_norm_activation import FuseBatchNormActivation
from dpexec.engine.passes.fuse_broadcast import FuseBroadcast
from dpexec.engine.passes.fuse_gemm_epilogue import FuseGemmEpilogue
from dpexec.engine.passes.fuse_optimizer import FuseOptimizer
from dpexec.engine.passes.fuse_relu_depthwise_conv import FuseReluDepthwiseConv
from dpexec.engine.passes.fuse_softmax_cross_entropy import FuseSoftmaxCrossEntropy
from dpexec.engine.passes.identities import RemoveIdentities
from dpexec.engine.passes.pairs import fused, pairs
from dpexec.engine.passes.sequential_execution import SequentialExecution
from dpexec.engine.passes.sync_batch_norm import SyncBatchNorm

__all__ = [
    "PASSES",
    "REWRITES",
    "OperatorPass",
    "Pass",
    "PassManager",
    "PassRecord",
    "fused",
    "needed_nodes",
    "pairs",
]

REWRITES: tuple[type[OperatorPass], ...] = (
    SyncBatchNorm,
    ConstantFolding,
    CommonSubexpressions,
    RemoveIdentities,
    FuseSoftmaxCrossEntropy,
    FuseReluDepthwiseConv,
    FuseBatchNormActivation,
    FuseGemmEpilogue,
    AutoFusion,
    FuseAddActivation,
    AddTo,
)
"""The passes over operators, in the order in which they run."""

PASSES: tuple[type[Pass], ...] = (
    FuseOptimizer,
    FuseAllReduce,
    FuseBroadcast,
    SequentialExecution,
)
"""The passes over the graph of the replicas, in the order in which they run."""
