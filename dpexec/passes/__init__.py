"""Passes: small steps that rewrite a program, each switched by a field of BuildStrategy.

Some rewrite the operators before they are replicated, others the graph of the replicas. Passes of
one's own run with ``BuildStrategy.append_pass``; `pairs` and `fused` help to write them.
"""

from dpexec.passes.addto import AddTo
from dpexec.passes.auto_fusion import AutoFusion
from dpexec.passes.base import OperatorPass, Pass, PassManager, PassRecord
from dpexec.passes.common_subexpressions import CommonSubexpressions
from dpexec.passes.constant_folding import ConstantFolding
from dpexec.passes.dead_code import needed_nodes
from dpexec.passes.fuse_add_activation import FuseAddActivation
from dpexec.passes.fuse_all_reduce import FuseAllReduce
from dpexec.passes.fuse_batch_norm_activation import FuseBatchNormActivation
from dpexec.passes.fuse_broadcast import FuseBroadcast
from dpexec.passes.fuse_gemm_epilogue import FuseGemmEpilogue
from dpexec.passes.fuse_optimizer import FuseOptimizer
from dpexec.passes.fuse_relu_depthwise_conv import FuseReluDepthwiseConv
from dpexec.passes.fuse_softmax_cross_entropy import FuseSoftmaxCrossEntropy
from dpexec.passes.identities import RemoveIdentities
from dpexec.passes.pairs import fused, pairs
from dpexec.passes.sequential_execution import SequentialExecution
from dpexec.passes.sync_batch_norm import SyncBatchNorm

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
"""What rewrites operators, in the order in which it runs."""

PASSES: tuple[type[Pass], ...] = (
    FuseOptimizer,
    FuseAllReduce,
    FuseBroadcast,
    SequentialExecution,
)
"""What rewrites the graph of the replicas, in the order in which it runs."""
