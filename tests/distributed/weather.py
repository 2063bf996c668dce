"""Random faults of a cluster: all ways in which workers, links and schedulers fail."""

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tests.distributed.clusters import Workers, workers
from tests.distributed.hosts import Host, hosts
from tests.waiting import until

Undo = Callable[[], object]


class Weather:
    """A cluster, and what can happen to it.

    Attributes:
        client: is connected to it.
        ways: what happens to a worker, by name; each gives what puts it right again.
    """

    client: Any
    ways: dict[str, Callable[[str], Undo | None]]

    def living(self) -> list[str]:
        """The workers; the scheduler may not know yet that some are gone."""
        raise NotImplementedError

    def replace(self) -> None:
        """Start workers in the place of those that are gone."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait until all are there again."""
        raise NotImplementedError

    def _cut(self, _: str) -> None:
        """Break the client's connection to the scheduler."""
        held = self.client.scheduler_comm
        if held is not None:
            self.client.loop.add_callback(held.comm.abort)


class OneHost(Weather):
    """Workers of this host, which exchange gradients through memory.

    Args:
        found: the cluster.
    """

    def __init__(self, found: Workers) -> None:
        self._found, self.client = found, found.client
        self._least = self._count = len(found.addresses())
        self._killed: set[int] = set()
        self._is_over = False  # whether the scheduler has ended
        self.ways = {
            "kill": self._kill,
            "stop": self._stop,
            "join": self._join,
            "leave": self._leave,
            "cut": self._cut,
            "scheduler": self._end_scheduler,
        }

    def living(self) -> list[str]:
        """See :class:`Weather`; addresses come again, processes hardly ever."""
        living = []
        for address in self._found.addresses():
            with contextlib.suppress(ProcessLookupError):
                if self._found.pid(address) not in self._killed:
                    living.append(address)
        return living

    def replace(self) -> None:
        """See :class:`Weather`; not after the scheduler: steps of a gang go on without it.

        A worker that begins then looks for it for ever. Its nanny waits for the worker, and
        ``LocalCluster.close`` for the nanny: ``SpecCluster._correct_state_internal`` holds its lock
        meanwhile, and has no limit but the workers' ``death_timeout``.
        """
        if not self._is_over:
            self._found.replace(self._count)

    def wait(self) -> None:
        """See :class:`Weather`."""
        until(lambda: len(self.living()) == len(self._found.addresses()), 60)
        self._found.wait_for(self._count)

    def _kill(self, victim: str) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has left
            pid = self._found.pid(victim)
            self._killed.add(pid)
            os.kill(pid, signal.SIGKILL)

    def _stop(self, victim: str) -> Undo:
        self._found.stop(victim)
        return lambda: self._found.go_on(victim)

    def _join(self, _: str) -> Undo:
        self._count = self._least + 1
        self.replace()
        return self._shrink

    def _shrink(self) -> None:
        self._count = self._least
        self.replace()

    def _leave(self, victim: str) -> None:
        self.client.retire_workers([victim])

    def _end_scheduler(self, _: str) -> None:
        self._is_over = True
        self._found.cluster.sync(self._found.cluster.scheduler.close)


class ManyHosts(Weather):
    """Workers of hosts of their own, which exchange gradients through sockets.

    Args:
        client: of the cluster.
        made: the hosts.
        chosen: decides what is cut off.
    """

    def __init__(self, client: Any, made: list[Host], chosen: random.Random) -> None:
        self.client, self._hosts, self._chosen = client, made, chosen
        self.ways = {
            "kill": self._kill,
            "stop": self._stop,
            "part": self._part,
            "unplug": self._unplug,
            "leave": self._leave,
            "cut": self._cut,
        }

    def _host(self, worker: str) -> Host:
        return next(host for host in self._hosts if f"{host.address}:" in worker)

    def living(self) -> list[str]:
        """See :class:`Weather`."""
        return [w for w in sorted(self.client.nthreads()) if self._host(w).works]

    def replace(self) -> None:
        """See :class:`Weather`."""
        for host in self._hosts:
            if not host.works:
                host.start_again()

    def wait(self) -> None:
        """See :class:`Weather`."""
        self.replace()
        until(lambda: len(self.living()) == len(self._hosts), 60)

    def _kill(self, victim: str) -> None:
        self._host(victim).end()

    def _stop(self, victim: str) -> Undo:
        host = self._host(victim)
        host.signal(signal.SIGSTOP)
        return lambda: host.signal(signal.SIGCONT)

    def _part(self, victim: str) -> Undo:
        host = self._host(victim)
        other = self._chosen.choice([each for each in self._hosts if each is not host])
        pairs = [(host, other), (other, host)][: self._chosen.choice([1, 2])]
        for one, another in pairs:
            one.lose(another)
        return lambda: [one.find(another) for one, another in pairs]

    def _unplug(self, victim: str) -> Undo:
        host = self._host(victim)
        host.cut()
        return host.mend

    def _leave(self, victim: str) -> None:
        host = self._host(victim)
        if victim in self.client.retire_workers([victim]):  # or nobody can take what it has
            until(lambda: not host.works, 30)


@contextlib.contextmanager
def weather(place: str, count: int, chosen: random.Random) -> Iterator[Weather]:
    """A cluster for a storm.

    Args:
        place: "one host" or "many hosts".
        count: of workers.
        chosen: decides what is cut off.
    """
    if place == "one host":
        with workers(count) as found:
            yield OneHost(found)
    else:
        with hosts(count, 1000) as (client, there):
            yield ManyHosts(client, there, chosen)


def soon(seconds: float, act: Callable[[], object]) -> threading.Timer:
    """Do something a moment later, while others work."""
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer
