"""``fuse_all_reduce_ops``: one all-reduce for the gradients of one or several layers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from dpexec.engine.core.dtypes import to_numpy
from dpexec.engine.core.flags import globals as flags
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.graph.ssa import OpNode, SSAGraph
from dpexec.engine.ir import roles
from dpexec.engine.passes.merging import merge, mergeable, merged_collective

__all__ = ["FuseAllReduce"]


@dataclass(frozen=True, eq=False)
class FuseAllReduce:
    """Merge the all-reduces of parameters that share the name before the first dot.

    As in Paddle, weight and bias of a layer share an all-reduce, but gradients of different data
    types do not. With ``megabytes``, neighbouring layers are merged, too, up to that size. The
    order of additions does not change, so neither do the bits.

    Args:
        megabytes: an all-reduce takes layers until it has this size, in units of 2**20 bytes; 0 or
            less: one all-reduce per layer. By default ``FLAGS_fuse_parameter_memory_size``.
        parameters: an all-reduce with more parameters than this takes no further layer; 1 or less:
            no limit. By default ``FLAGS_fuse_parameter_groups_size``.
    """

    megabytes: float = field(
        default_factory=lambda: float(flags()["FLAGS_fuse_parameter_memory_size"])
    )
    parameters: int = field(
        default_factory=lambda: int(flags()["FLAGS_fuse_parameter_groups_size"])
    )

    name = "fuse_all_reduce_ops"

    def apply(self, graph: SSAGraph) -> bool:
        """Rewrite ``graph``; tell whether anything changed."""
        groups = mergeable(((_layer(graph, node), node) for node in graph.ops), least=1)
        if self.megabytes > 0:
            number = self._numbers(graph, groups)
            groups = mergeable(((number.get(node), node) for node in graph.ops), least=1)
        return merge(graph, ((group, merged_collective(group)) for group in groups))

    def _numbers(
        self, graph: SSAGraph, layers: Sequence[Sequence[OpNode]]
    ) -> dict[OpNode, Hashable]:
        """The key of the merged all-reduce that each node goes into."""
        numbers: dict[OpNode, Hashable] = {}
        number, filled, parameters = 0, 0.0, 0
        for layer in layers:
            for node in layer:
                spec = graph.program.global_block().vars[node.inputs[0].name].spec
                numbers[node] = node.does, number, spec.dtype
                filled += abs(spec.size) * to_numpy(spec.dtype).itemsize / (1 << 20)
            parameters += len(layer)
            if filled >= self.megabytes or 1 < self.parameters < parameters:
                number, filled, parameters = number + 1, 0.0, 0
        return numbers


def _layer(graph: SSAGraph, node: OpNode) -> Hashable:
    does = node.does
    if not does.of_gradients or does.has_root or node.name != does.name:
        return None  # it is none, or was merged before
    grad = node.inputs[0].name
    dtype = graph.program.global_block().vars[grad].dtype
    return does, grad.removesuffix(roles.GRAD_SUFFIX).split(".")[0], dtype
