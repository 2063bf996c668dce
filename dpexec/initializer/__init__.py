"""``fluid.initializer``: initial values of parameters.

An initializer is called with a variable of the startup program and its block, and inserts the op
that fills the variable. As in fluid these ops are inserted *in front*, so a startup program lists
them in reverse order of creation. Random initializers read their program's seed when called.

Example:
    >>> import dpexec as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     attr = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(0.5))
    ...     w = fluid.layers.create_parameter([2], "float32", attr=attr)
    ...     executor = fluid.Executor(fluid.CPUPlace())
    ...     executor.run(fluid.default_startup_program(), fetch_list=[w])
    [array([0.5, 0.5], dtype=float32)]
"""

from dpexec.engine.ir.undo import build_whole as _build_whole
from dpexec.initializer.base import Initializer  # noqa: F401  fluid's
from dpexec.initializer.random import (
    NormalInitializer,
    TruncatedNormalInitializer,
    UniformInitializer,
)
from dpexec.initializer.scaled import MSRAInitializer, XavierInitializer
from dpexec.initializer.values import (
    BilinearInitializer,
    ConstantInitializer,
    NumpyArrayInitializer,
)

__all__ = [
    "MSRA",
    "Bilinear",
    "BilinearInitializer",
    "Constant",
    "ConstantInitializer",
    "MSRAInitializer",
    "Normal",
    "NormalInitializer",
    "NumpyArrayInitializer",
    "TruncatedNormal",
    "TruncatedNormalInitializer",
    "Uniform",
    "UniformInitializer",
    "Xavier",
    "XavierInitializer",
]

Constant = ConstantInitializer
Uniform = UniformInitializer
Normal = NormalInitializer
TruncatedNormal = TruncatedNormalInitializer
Xavier = XavierInitializer
MSRA = MSRAInitializer
Bilinear = BilinearInitializer

_build_whole(globals(), __all__, __name__)
