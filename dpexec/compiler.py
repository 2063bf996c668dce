"""``fluid.compiler``."""

from dpexec.runtime.compiled_program import CompiledProgram
from dpexec.runtime.strategy import BuildStrategy, ExecutionStrategy

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy"]
