"""``fluid.optimizer.PipelineOptimizer``, which dpexec does not have: it says so when made."""

from __future__ import annotations

from typing import Any


class PipelineOptimizer:
    """Not available: dpexec replicates whole programs.

    Raises:
        NotImplementedError: always.
    """

    def __init__(
        self,
        optimizer: Any,
        cut_list: Any = None,
        place_list: Any = None,
        concurrency_list: Any = None,
        queue_size: int = 30,
        sync_steps: int = 1,
        start_cpu_core_id: int = 0,
    ) -> None:
        raise NotImplementedError(
            "PipelineOptimizer (a program cut into sections) is not supported; use the inner "
            "optimizer with CompiledProgram.with_data_parallel"
        )
