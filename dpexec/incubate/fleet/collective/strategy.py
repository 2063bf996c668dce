"""How trainers without servers train: a ``BuildStrategy`` with more fields."""

from __future__ import annotations

from typing import Any

from dpexec.runtime.strategy import BuildStrategy, ExecutionStrategy, _Field

__all__ = ["DistributedStrategy"]


def _any(name: str, value: Any) -> Any:
    return value


class DistributedStrategy(BuildStrategy):
    """How a program is divided between trainers, compiled and run.

    ``use_local_sgd`` sets the modes; ``use_dist_fc`` is not supported, and refused by ``minimize``.
    """

    use_local_sgd = _Field(False, bool, "Trainers update their own parameters, then take the mean.")
    use_dist_fc = _Field(False, bool, "Not supported.")
    dist_fc_config = _Field(None, _any, "Belongs to use_dist_fc.")
    mode = _Field("nccl2", str, "'nccl2': compiled programs; 'collective': Executor.run trains.")
    collective_mode = _Field(None, _any, "'grad_allreduce' in mode 'collective'.")
    forward_recompute = _Field(False, bool, "Compute activations again in the backward pass.")
    recompute_checkpoints = _Field([], list, "From these variables, or their names.")
    use_amp = _Field(False, bool, "Train with mixed precision.")
    amp_loss_scaling = _Field(2**15, _any, "First factor of the loss with use_amp.")
    exec_strategy = _Field(None, ExecutionStrategy, "How the compiled program is run.")

    def __init__(self) -> None:
        super().__init__()
        self._values["recompute_checkpoints"] = []
        self._values["exec_strategy"] = ExecutionStrategy()

    @classmethod
    def fields(cls) -> dict[str, _Field]:
        """All fields by name."""
        own = {name: field for name, field in vars(cls).items() if isinstance(field, _Field)}
        return {**BuildStrategy.fields(), **own}
