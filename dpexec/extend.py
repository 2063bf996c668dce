"""The door for what people add: operators, passes, machine code.

Everything below ``dpexec.engine`` may change from one version to the next; what is here stays.

An operator is declared by its shapes, its kernel and its gradient::

    from dpexec.extend import op, same_as

    @op("squared_relu", inputs="X", outputs="Out", infer=same_as("X"))
    def squared_relu(xp, x):
        return xp.square(xp.maximum(x, 0))

    @squared_relu.grad("X", "Out@GRAD")
    def squared_relu_grad(xp, x, d_out):
        return d_out * 2 * xp.maximum(x, 0)

A pass has a name and one method, ``rewrite(operators)`` before replication or ``apply(graph)``
after it; ``BuildStrategy.append_pass`` takes it. A lowering says how an operator becomes calls of
kernels in machine code. ``notebooks/06_your_own_op_and_your_own_pass.ipynb`` shows an operator and
a pass at work.
"""

from dpexec.engine.core.lod import Lod
from dpexec.engine.graph.operators import Operators
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.ir.opdef import InvalidOp, OpDef, Sample, Spec, op, require, same_as
from dpexec.engine.kernels.lowering import lowering
from dpexec.engine.passes import OperatorPass, Pass, fused, pairs

__all__ = [
    "InvalidOp",
    "Lod",
    "OpDef",
    "OperatorPass",
    "Operators",
    "Pass",
    "SSAGraph",
    "Sample",
    "Spec",
    "fused",
    "lowering",
    "op",
    "pairs",
    "require",
    "same_as",
]
