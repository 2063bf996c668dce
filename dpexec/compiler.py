"""``fluid.compiler``."""

from dpexec.engine.executors.compiled_program import CompiledProgram
from dpexec.engine.strategy.strategies import BuildStrategy, ExecutionStrategy

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy"]
