"""Trainers that exchange gradients themselves: the modes ``"nccl2"`` and ``"collective"``."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.errors import EnforceNotMet
from dpexec.ir.program import Program
from dpexec.transpiler.config import DistributeTranspilerConfig

__all__ = ["transpile_collective"]


def transpile_collective(
    config: DistributeTranspilerConfig,
    program: Program,
    trainer_id: int,
    trainers: str | Sequence[str],
    current_endpoint: str,
) -> None:
    """Let a program know who trains it.

    In mode ``"nccl2"`` it is then run by a ParallelExecutor or CompiledProgram with as many
    trainers; in mode ``"collective"`` by ``Executor.run``, on one device of each trainer. Trainers
    meet at the first step, so the startup program stays as it is.

    Args:
        config: with the mode.
        program: what is trained.
        trainer_id: number of this trainer.
        trainers: endpoints of all, ``"ip:port,ip:port"``.
        current_endpoint: of this trainer.

    Raises:
        EnforceNotMet: the mode is not supported.
        ValueError: endpoints and number of this trainer do not fit.
    """
    endpoints = trainers.split(",") if isinstance(trainers, str) else list(trainers)
    endpoints = [endpoint.strip() for endpoint in endpoints]
    if not 0 <= trainer_id < len(endpoints) or endpoints[trainer_id] != current_endpoint:
        raise ValueError(
            f"current_endpoint {current_endpoint!r} must be number {trainer_id} (trainer_id) of "
            f"the trainers {', '.join(endpoints)}"
        )
    _check_mode(config, len(endpoints))
    if config.mode == "collective":
        program._trainer_id = trainer_id
    program._trainers_endpoints = endpoints


def _check_mode(config: DistributeTranspilerConfig, trainers: int) -> None:
    if config.mode == "collective":
        if trainers == 1:
            raise ValueError("invalid trainer number in distributed: 1")
        if config.collective_mode != "grad_allreduce":
            raise EnforceNotMet(
                f"DistributeTranspilerConfig.collective_mode {config.collective_mode!r} is not "
                "supported; there is 'grad_allreduce'"
            )
    elif config.mode != "nccl2":
        raise EnforceNotMet(
            f"DistributeTranspilerConfig.mode {config.mode!r} is not supported; there are "
            "'pserver', 'nccl2' and 'collective'"
        )
