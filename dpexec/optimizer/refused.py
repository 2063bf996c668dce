"""Optimizers of fluid that dpexec does not have: they say so when they are made."""

from __future__ import annotations

from typing import Any

from dpexec.core.places import is_compiled_with_cuda


class DGCMomentumOptimizer:
    """Not available; in fluid it needs several NVIDIA GPUs.

    Raises:
        AssertionError: always on a machine without GPU, as in fluid.
        NotImplementedError: always else.
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any,
        rampup_begin_step: Any,
        rampup_step: Any = 1,
        sparsity: Any = (0.999,),
        parameter_list: Any = None,
        use_nesterov: bool = False,
        num_trainers: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        assert is_compiled_with_cuda(), (
            "DGCMomentumOptimizer works on GPUs only, and dpexec finds none; use Momentum, which "
            "gives its numbers without compressing gradients"
        )
        raise NotImplementedError(
            "DGCMomentumOptimizer (compressed gradients) is not supported; use Momentum"
        )


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
