"""The faults that tests cause during training, and their times."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from tests.distributed.clusters import Workers


def disturbed(feeds: list[Any], faults: Mapping[int, Callable[[], object]]) -> Iterator[Any]:
    """Batches, with something that happens before some of them.

    Args:
        feeds: the batches.
        faults: what happens, by the number of the step that comes then.
    """
    for step, feed in enumerate(feeds):
        if step in faults:
            faults[step]()
        yield feed


def die(found: Workers, address: str, where: str, calls: int = 1) -> None:
    """Let a worker be killed when it calls a function of dpexec.

    Args:
        found: the cluster.
        address: of the worker.
        where: the function, as "package.module:function" or "package.module:Class.method".
        calls: at which call.
    """
    found.client.run(_instead, where, calls, _killed, workers=[address])


def fill_memory(found: Workers, address: str, where: str, megabytes: int) -> None:
    """Let a worker use more memory than it may when it calls a function of dpexec."""
    found.client.run(_instead, where, 1, _full, megabytes, workers=[address])


def fail(client: Any, address: str, where: str, calls: int) -> None:
    """Let a call of a function of dpexec raise an error on a worker."""
    client.run(_instead, where, calls, _error, workers=[address])


def _instead(where: str, calls: int, act: Callable[..., None], *args: Any) -> None:
    module, _, name = where.partition(":")
    *path, last = name.split(".")
    owner = import_module(module)
    for part in path:
        owner = getattr(owner, part)
    original, left = getattr(owner, last), [calls]

    def and_then(*given: Any, **named: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            act(*args)
        return original(*given, **named)

    setattr(owner, last, and_then)


def _error() -> None:
    raise ValueError("failed on purpose")


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _full(megabytes: int) -> None:
    taken = [bytearray(1 << 20) for _ in range(megabytes)]
    time.sleep(60)  # its nanny looks at it now and then
    del taken
