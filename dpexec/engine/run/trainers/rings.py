"""Rings of trainers, which ``c_gen_nccl_id`` and ``c_comm_init`` of a startup program set up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.scope import Scope
from dpexec.engine.exchange.endpoints import Endpoint
from dpexec.engine.exchange.party import Party, party_of
from dpexec.engine.ir.operator import Operator, op_error
from dpexec.engine.ir.program import Program
from dpexec.engine.strategy.strategies import ExecutionStrategy

__all__ = ["set_up_rings"]


class _PartyRing:
    """A ring whose members are the trainers of a party, which meet when they first need it.

    Args:
        party: the trainers.
        limit: seconds after which a silent trainer counts as lost.
    """

    def __init__(self, party: Party, limit: float) -> None:
        self._party, self._limit = party, limit
        self.rank, self.size = party.rank, party.size

    def gather(self, array: Any, senders: Sequence[int], text: str) -> list[Any]:
        """The arrays of some trainers; if that fails here, the others are told.

        Raises:
            EnforceNotMet: the array is on a GPU.
            GangError: a trainer did not come, is gone, or sent something else.
        """
        if not isinstance(array, np.ndarray):
            raise EnforceNotMet(f"{text}: trainers exchange values of CPU devices only")
        with self._party.together():
            self._party.meet(self._limit)
            return self._party.gather(array, senders, text, self._limit)


def set_up_rings(program: Program, scope: Scope) -> None:
    """Set up the rings that a startup program's operators describe.

    Args:
        program: the program, with such operators or without.
        scope: the scope in which programs use the rings.

    Raises:
        EnforceNotMet: the operators contradict each other.
    """
    made: dict[str, Operator] = {}
    for op in program.global_block().ops:
        if op.type == "c_gen_nccl_id":
            made[op.outputs["Out"][0]] = op
        elif op.type == "c_comm_init":
            (name,) = op.inputs["X"]
            if name not in made:
                raise op_error(op, f"no operator c_gen_nccl_id before it makes {name}", {})
            party = _party(op, made[name])
            limit = float(ExecutionStrategy().collective_timeout)
            scope.set_ring(op.attrs["ring_id"], _PartyRing(party, limit))


def _party(op: Operator, source: Operator) -> Party:
    rank, endpoint = source.attrs["rank"], source.attrs["endpoint"]
    endpoints = list(source.attrs["other_endpoints"])
    endpoints.insert(rank, endpoint)
    asked = op.attrs["rank"], op.attrs["nranks"]
    if asked != (rank, len(endpoints)):
        raise op_error(
            op,
            f"it is trainer {asked[0]} of {asked[1]}, but c_gen_nccl_id names {endpoint} as number "
            f"{rank} of {', '.join(endpoints)}",
            {},
        )
    return party_of([Endpoint.parse(item) for item in endpoints], rank)
