"""The SSA graph: a program replicated over devices, every write a new version."""

from dpexec.graph.build import build_ssa_graph
from dpexec.graph.ssa import OpNode, SSAGraph, VarNode

__all__ = ["OpNode", "SSAGraph", "VarNode", "build_ssa_graph"]
