"""``fluid.transpiler``: converts programs of one process to programs of several processes."""

from dpexec.engine.ir.undo import build_whole as _build_whole
from dpexec.transpiler import collective, details
from dpexec.transpiler.config import DistributeTranspilerConfig
from dpexec.transpiler.distribute_transpiler import DistributeTranspiler
from dpexec.transpiler.memory_optimization_transpiler import memory_optimize, release_memory
from dpexec.transpiler.ps_dispatcher import HashName, RoundRobin

__all__ = [
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "HashName",
    "RoundRobin",
    "collective",
    "details",
    "memory_optimize",
    "release_memory",
]

_build_whole(globals(), __all__, __name__)
