"""A worker that is closed while it asks other workers counts as lost."""

import asyncio
from types import SimpleNamespace

import pytest
from distributed.comm import CommClosedError
from distributed.core import ConnectionPool

from dpexec.engine.dask.reach import unreachable


def test_worker_that_is_closed_while_it_asks_others_is_lost():
    """What dask raises then is no error of a connection."""

    async def ask():
        connections = ConnectionPool()
        await connections.close()
        worker = SimpleNamespace(address="tcp://127.0.0.1:1", rpc=connections)
        await unreachable([worker.address, "tcp://127.0.0.1:2"], 5.0, worker)

    with pytest.raises(CommClosedError, match=r"worker tcp:.* is closed"):
        asyncio.run(ask())
