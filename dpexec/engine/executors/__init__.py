"""``Executor``, ``CompiledProgram`` and ``ParallelExecutor``."""
