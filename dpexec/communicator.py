"""``Communicator``: a trainer's connections with its parameter servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir.program import Program
from dpexec.engine.parameter_server.remote import remote_of

__all__ = ["Communicator"]


class Communicator:
    """Connects to a program's parameter servers before its first step.

    In fluid it also sends and receives on its own threads. Here every step does so itself: programs
    run without a communicator, and the program determines the mode and its options.

    Args:
        program: the trainer's program, made by ``DistributeTranspiler``.
        mode: ignored; accepted for compatibility.
        kwargs: ignored; accepted for compatibility.
        envs: ignored; accepted for compatibility.

    Raises:
        AssertionError: ``program`` is not a Program.
        EnforceNotMet: the program does not use parameter servers.

    Example:
        >>> import dpexec as fluid
        >>> try:
        ...     fluid.communicator.Communicator(fluid.Program())
        ... except fluid.core.EnforceNotMet as error:
        ...     print(str(error).splitlines()[0])
        Communicator is for a trainer's program that DistributeTranspiler made
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
        """Connect to the servers.

        Raises:
            RuntimeError: a server did not answer within ``FLAGS_rpc_deadline``.
        """
        self._servers.connect()
        self._running = True

    def stop(self) -> None:
        """Mark the communicator as stopped; the servers run until the executor is closed."""
        self._running = False

    def is_running(self) -> bool:
        """Whether it has been started and not stopped since."""
        return self._running
