"""The SSA graph: a program replicated over devices, every write a new version."""

from dpexec.engine.graph.build import build_ssa_graph
from dpexec.engine.graph.ssa import OpNode, SSAGraph, VarNode

__all__ = ["OpNode", "SSAGraph", "VarNode", "build_ssa_graph"]
