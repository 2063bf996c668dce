"""The interface for extensions: operators, passes, collectives, kernels in machine code.

Names in this module are stable; those below ``dpexec.engine`` may change with every version.

An operator is declared by its shapes, its kernel and its gradient::

    from dpexec.extend import op, same_as

    @op("squared_relu", inputs="X", outputs="Out", infer=same_as("X"))
    def squared_relu(xp, x):
        return xp.square(xp.maximum(x, 0))

    @squared_relu.grad("X", "Out@GRAD")
    def squared_relu_grad(xp, x, d_out):
        return d_out * 2 * xp.maximum(x, 0)

A faster kernel of an operator is registered for CPUs (``host``) or GPUs (``gpu``). For arrays that
it does not support it returns None, and the operator's declared kernel runs::

    from dpexec.extend import implementation

    @implementation("squared_relu", backend="gpu")
    def squared_relu_on_gpu(cupy, x):
        return square_of_positive(x) if x.dtype == "float32" else None

A lowering translates an operator into calls of kernels, typed functions that numba compiles to
machine code. For values that it does not support it returns False::

    from dpexec.extend import Count, Floats, kernel, lowering

    @kernel
    def square(n: Count, x: Floats, out: Floats) -> int:
        for i in range(n):
            out[i] = x[i] * x[i] if x[i] > 0 else 0
        return 0

    @lowering("squared_relu")
    def lower(code, x, out):
        if x.dtype != "float32":
            return False
        code.emit(square, x.size, x, out)

A pass has a name and one method, ``rewrite(operators)`` before replication or
``apply(graph)`` after it; ``BuildStrategy.append_pass`` takes it.
``notebooks/06_your_own_op_and_your_own_pass.ipynb`` shows an operator and a pass at work.

A collective is declared by its properties and put into the graph by a pass; it then runs on
threads, clusters, trainers and GPUs::

    from dpexec.extend import Kind, Reduction

    LARGEST = Reduction("max", "largest value", "maximum", "NCCL_MAX")
    MAX_REDUCE = Kind(
        "max_reduce", "combines", "all", "all", of_gradients=True, reduction=LARGEST
    )

    class TakeLargest:
        name = "take_largest"

        def apply(self, graph):
            for node in graph.ops:
                if node.does.of_gradients:
                    node.does, node.name = MAX_REDUCE, MAX_REDUCE.name
            return True
"""

import importlib
from typing import TYPE_CHECKING, Any

from dpexec.engine.core.lod import Lod
from dpexec.engine.core.reductions import Reduction
from dpexec.engine.graph.kinds import Kind
from dpexec.engine.graph.operators import Operators
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.ir.opdef import InvalidOp, OpDef, Sample, Spec, op, require, same_as
from dpexec.engine.kernels import load
from dpexec.engine.kernels.implementations import implementation
from dpexec.engine.kernels.lowering import lowering
from dpexec.engine.passes import OperatorPass, Pass, fused, pairs

if TYPE_CHECKING:
    from dpexec.engine.kernels.machine import Count, Floats, Integers, Number, kernel

__all__ = [
    "Count",
    "Floats",
    "Integers",
    "InvalidOp",
    "Kind",
    "Lod",
    "Number",
    "OpDef",
    "OperatorPass",
    "Operators",
    "Pass",
    "Reduction",
    "SSAGraph",
    "Sample",
    "Spec",
    "fused",
    "implementation",
    "kernel",
    "lowering",
    "op",
    "pairs",
    "require",
    "same_as",
]

_NATIVE = frozenset(["Count", "Floats", "Integers", "Number", "kernel"])


def __getattr__(name: str) -> Any:
    if name not in _NATIVE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    load()  # these need numba
    return getattr(importlib.import_module("dpexec.engine.kernels.machine"), name)
