"""``Communicator``: a trainer's connections with its parameter servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir.program import Program
from dpexec.engine.parameter_server.remote import remote_of

__all__ = ["Communicator"]


class Communicator:
    """Meets the parameter servers of a program before its first step does.

    In fluid it also sends and receives, on threads of its own. Here that is a part of every step,
    so programs run without one, too, and ``mode`` and its options are what the program says.

    Args:
        program: a trainer's, made by ``DistributeTranspiler``.
        mode: accepted for fluid's sake.
        kwargs: accepted for fluid's sake.
        envs: accepted for fluid's sake.

    Raises:
        AssertionError: ``program`` is none.
        EnforceNotMet: it is not for parameter servers.
    """

    def __init__(
        self,
        program: Program,
        mode: int | None = None,
        kwargs: Mapping[str, Any] | None = None,
        envs: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(program, Program):
            raise AssertionError(f"program must be a Program, not {program!r}")
        remote = remote_of(program)
        if remote is None or remote.serves:
            raise EnforceNotMet(
                "Communicator is for a trainer's program that DistributeTranspiler made"
            )
        self._servers = remote.servers
        self._running = False

    def start(self) -> None:
        """Meet the servers.

        Raises:
            RuntimeError: one did not answer within ``FLAGS_rpc_deadline``.
        """
        self._servers.connect()
        self._running = True

    def stop(self) -> None:
        """Nothing is sent after the last step; the servers go on until the executor is closed."""
        self._running = False

    def is_running(self) -> bool:
        """Whether it was started, and not stopped."""
        return self._running
