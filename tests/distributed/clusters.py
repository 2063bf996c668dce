"""Clusters of processes that tests kill, stop and start."""

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.forkserver import ensure_running
from pathlib import Path

import dask
from distributed import Client, LocalCluster, Status
from distributed.utils import get_mp_context

from tests.waiting import until

_ROOT = Path(__file__).parents[2]
CHEAP = {
    "distributed.worker.multiprocessing-method": "forkserver",
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.gil.enabled": False,
}
"""Settings of dask with which processes that wait take little of a processor."""


def make_workers_cheap() -> None:
    """From now on workers are forked from a process that has imported what they need.

    That takes tenths of a second, where a new process takes seconds. And dask hardly measures what
    they do: ten workers that wait would take a quarter of a processor, beside all other tests.
    """
    dask.config.set(CHEAP)
    get_mp_context().set_forkserver_preload(["tests.distributed.preloaded"])
    with contextlib.chdir(_ROOT):  # where it is found
        ensure_running()


class Workers:
    """The workers of a cluster on this machine, each a process of its own.

    Args:
        cluster: what starts them.
        client: is connected to them.
        restart: whether nannies start those again that were killed.
    """

    def __init__(self, cluster: LocalCluster, client: Client, restart: bool) -> None:
        self.cluster, self.client, self._restart = cluster, client, restart
        self._stopped: set[str] = set()

    def addresses(self) -> list[str]:
        """Those that are known to the scheduler and to their nannies, and are to stay.

        A nanny learns of a new worker after the scheduler, and is confused if it ends in between.
        """
        ready = Status.running if self._restart else Status.closing_gracefully
        wanted = self.cluster.worker_spec
        nannies = [nanny for name, nanny in self.cluster.workers.items() if name in wanted]
        for nanny in nannies:
            if nanny.status == Status.running and not self._restart:
                nanny.close_gracefully()  # it starts none again
        known = {nanny.worker_address for nanny in nannies if nanny.status == ready}
        return sorted(known & set(self.client.nthreads()))

    def replace(self, count: int) -> None:
        """Start workers in the place of those that are gone.

        Args:
            count: how many there are then.
        """
        for name, nanny in list(self.cluster.workers.items()):
            if nanny.status == Status.closed:  # dask would wait for it
                self.cluster.worker_spec.pop(name, None)
                self.cluster.workers.pop(name, None)
        self.cluster.scale(count)

    def kill(self, address: str) -> None:
        """Kill a worker at once."""
        os.kill(self.pid(address), signal.SIGKILL)

    def lose(self, address: str) -> None:
        """Kill a worker, and wait until the scheduler knows."""
        self.kill(address)
        until(lambda: address not in self.client.nthreads())

    def stop(self, address: str) -> None:
        """Let a worker do nothing any more, with its connections open."""
        self.will_stop(address)
        os.kill(self.pid(address), signal.SIGSTOP)

    def will_stop(self, address: str) -> None:
        """Let :meth:`wake` wake a worker that may stop itself."""
        self._stopped.add(address)

    def go_on(self, address: str) -> None:
        """Let a stopped worker go on."""
        os.kill(self.pid(address), signal.SIGCONT)
        self._stopped.discard(address)

    def wait_for(self, count: int) -> list[str]:
        """Wait for so many workers; returns their addresses."""

        def complete() -> list[str] | None:
            if not self._restart:
                self.replace(count)
            return found if len(found := self.addresses()) == count else None

        return until(complete)

    def pid(self, address: str) -> int:
        """The process of a worker; the latest one, if an earlier one had that address, too.

        Raises:
            ProcessLookupError: there is none any more.
        """
        for nanny in reversed(list(self.cluster.workers.values())):
            if nanny.worker_address == address and nanny.pid:
                return nanny.pid
        raise ProcessLookupError(f"there is no worker {address}")

    def wake(self) -> None:
        """Let all go on that were stopped."""
        for address in list(self._stopped):
            with contextlib.suppress(ProcessLookupError):  # it was killed since
                self.go_on(address)


@contextmanager
def workers(count: int, restart: bool = False, **options: object) -> Iterator[Workers]:
    """A cluster of worker processes.

    Args:
        count: how many workers.
        restart: whether nannies start those again that were killed.
        options: of ``LocalCluster``.
    """
    make_workers_cheap()
    with (
        LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=50,
            death_timeout="60s",  # else closing waits for ever for one that finds no scheduler
            **options,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        found = Workers(cluster, client, restart)
        found.wait_for(count)
        try:
            yield found
        finally:
            found.wake()  # so that they can end
