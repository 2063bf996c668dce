"""Assigning blocks of parameters to servers."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

__all__ = ["HashName", "PSDispatcher", "RoundRobin"]


class PSDispatcher:
    """Base class: assigns blocks to servers.

    Args:
        pserver_endpoints: endpoints of the servers.

    Example:
        >>> from dpexec.transpiler.ps_dispatcher import PSDispatcher
        >>> class First(PSDispatcher):
        ...     def dispatch(self, varlist):
        ...         return [self.eps[0] for _ in varlist]
        >>> First(["a:6174", "b:6174"]).dispatch([None, None])
        ['a:6174', 'a:6174']
    """

    def __init__(self, pserver_endpoints: Sequence[str]) -> None:
        self._eps = list(pserver_endpoints)
        self._step = 0

    @property
    def eps(self) -> list[str]:
        """The servers."""
        return self._eps

    def reset(self) -> None:
        """Start with the first server again."""
        self._step = 0

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """The server of each block; blocks of one parameter must get different ones.

        Args:
            varlist: blocks of parameters, as variables.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method dispatch")


class RoundRobin(PSDispatcher):
    """Assigns blocks to the servers in turn.

    Args:
        pserver_endpoints: addresses of the parameter servers, ``host:port``.

    Raises:
        ZeroDivisionError: in ``dispatch``: there is no endpoint.

    Example:
        >>> import dpexec as fluid
        >>> servers = fluid.transpiler.RoundRobin(["127.0.0.1:6174", "127.0.0.1:6175"])
        >>> servers.dispatch([None, None, None])
        ['127.0.0.1:6174', '127.0.0.1:6175', '127.0.0.1:6174']
    """

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """The server of each block.

        Args:
            varlist: blocks of parameters.
        """
        chosen = [self._eps[(self._step + at) % len(self._eps)] for at in range(len(varlist))]
        self._step = (self._step + len(varlist)) % len(self._eps)
        return chosen


class HashName(PSDispatcher):
    """Chooses a server by a checksum of the parameter's name; its blocks go to consecutive servers.

    Fluid uses Python's ``hash``, which differs from process to process.

    Args:
        pserver_endpoints: addresses of the parameter servers, ``host:port``.

    Raises:
        ZeroDivisionError: in ``dispatch``: there is no endpoint.

    Example:
        >>> import dpexec as fluid
        >>> servers = fluid.transpiler.HashName(["a:6174", "b:6174"])
        >>> with fluid.program_guard(fluid.Program()):
        ...     blocks = [fluid.data(name, [1]) for name in ("fc.w.block0", "fc.w.block1")]
        >>> servers.dispatch(blocks)  # the same in every process
        ['b:6174', 'a:6174']
    """

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """The server of each block.

        Args:
            varlist: blocks of parameters.
        """
        return [self._server(var.name) for var in varlist]

    def _server(self, name: str) -> str:
        param, _, block = name.partition(".block")
        number = int(block) if block else 0
        return self._eps[(zlib.crc32(param.encode()) + number) % len(self._eps)]
