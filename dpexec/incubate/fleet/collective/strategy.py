"""The strategy of trainers without servers: a ``BuildStrategy`` with more fields."""

from __future__ import annotations

from typing import Any

from dpexec.engine.strategy.fields import Field
from dpexec.engine.strategy.strategies import BuildStrategy, ExecutionStrategy

__all__ = ["DistributedStrategy"]


def _any(name: str, value: Any) -> Any:
    return value


class DistributedStrategy(BuildStrategy):
    """How a program is divided between trainers, compiled and run.

    ``use_local_sgd`` sets the modes; ``minimize`` rejects ``use_dist_fc``, which is not supported.

    Example:
        >>> from dpexec.incubate.fleet.collective import DistributedStrategy
        >>> strategy = DistributedStrategy()
        >>> strategy.use_amp = True
        >>> strategy.exec_strategy.num_threads = 2
        >>> strategy.mode, strategy.use_local_sgd
        ('nccl2', False)
    """

    use_local_sgd = Field(False, bool, "Trainers update their own parameters, then take the mean.")
    use_dist_fc = Field(False, bool, "Not supported.")
    dist_fc_config = Field(None, _any, "Belongs to use_dist_fc.")
    mode = Field("nccl2", str, "'nccl2': compiled programs; 'collective': Executor.run trains.")
    collective_mode = Field(None, _any, "'grad_allreduce' in mode 'collective'.")
    forward_recompute = Field(False, bool, "Compute activations again in the backward pass.")
    recompute_checkpoints = Field([], list, "From these variables, or their names.")
    use_amp = Field(False, bool, "Train with mixed precision.")
    amp_loss_scaling = Field(2**15, _any, "First factor of the loss with use_amp.")
    exec_strategy = Field(None, ExecutionStrategy, "How the compiled program is run.")

    def __init__(self) -> None:
        super().__init__()
        self._values["recompute_checkpoints"] = []
        self._values["exec_strategy"] = ExecutionStrategy()
