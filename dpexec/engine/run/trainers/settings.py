"""The trainers of a program, from strategy, program and environment."""

from __future__ import annotations

import os

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.exchange.endpoints import parse_endpoints
from dpexec.engine.exchange.party import Party, party_of
from dpexec.engine.ir.program import Program
from dpexec.engine.strategy.strategies import BuildStrategy

__all__ = ["party_for"]

_VARIABLE = "PADDLE_TRAINER_ENDPOINTS"


def party_for(strategy: BuildStrategy, program: Program) -> Party:
    """The trainers that a program trains with.

    Their endpoints are those of the program (``DistributeTranspiler`` in mode "nccl2" writes them
    there), else ``BuildStrategy.trainers_endpoints``, else PADDLE_TRAINER_ENDPOINTS of the
    environment.

    Args:
        strategy: a strategy with more than one trainer.
        program: the program to train.

    Raises:
        EnforceNotMet: number, endpoints and id do not fit together.
    """
    given = program._trainers_endpoints or list(strategy.trainers_endpoints)
    endpoints = parse_endpoints(",".join(given) or os.environ.get(_VARIABLE, ""))
    number, rank = strategy.num_trainers, strategy.trainer_id
    if len(endpoints) != number:
        raise EnforceNotMet(
            f"BuildStrategy.num_trainers is {number}, but there are {len(endpoints)} endpoints "
            f"({', '.join(map(str, endpoints)) or 'none'}): set BuildStrategy.trainers_endpoints "
            f"or the environment variable {_VARIABLE} to one ip:port per trainer"
        )
    if rank >= number:
        raise EnforceNotMet(f"BuildStrategy.trainer_id is {rank}; there are {number} trainers")
    return party_of(endpoints, rank)
