"""Where a program runs: on which scheduler, on how many devices, and on which workers."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import dask
from dask.base import named_schedulers

from dpexec.engine.core import places
from dpexec.engine.core.places import CPUPlace, CUDAPlace
from dpexec.engine.graph.parallel_do import parallel_dos
from dpexec.engine.ir.callsite import warn
from dpexec.engine.ir.program import Program
from dpexec.engine.strategy.strategies import DEFAULTS, ExecutionStrategy

__all__ = [
    "active_client",
    "collectives_in_force",
    "cpu_places",
    "cpu_places_on",
    "cuda_places_on",
    "place_replicas",
    "scheduler_in_force",
    "threads_configured",
    "warn_of_one_thread",
    "workers_of",
]

_logger = logging.getLogger(__name__)
_told: set[str] = set()  # reasons for running steps as dask tasks that were already logged

_OURS = {named_schedulers[name]: name for name in ("threads", "sync")}
"""Our names of dask's schedulers within one process, which have several names there."""


def scheduler_in_force(asked: Any = None) -> Any:
    """The scheduler that runs a program, chosen as dask chooses it.

    Args:
        asked: ``ExecutionStrategy.scheduler``. None takes the scheduler of ``dask.config``, else
            the active client, else threads.

    Returns:
        ``"threads"``, ``"sync"``, or a ``distributed.Client``.

    Raises:
        RuntimeError: ``"distributed"`` was asked for without an active client, or this is the
            thread of an asynchronous client's event loop.
        ValueError: dask knows no scheduler of the name in ``dask.config``.
    """
    asked = _configured() if asked is None else asked
    if asked is None:
        found = active_client() or "threads"
    elif asked == "distributed":
        found = active_client()
        if found is None:
            raise RuntimeError(
                "the scheduler of ExecutionStrategy or dask.config is 'distributed', but there is "
                "no active client: create a dask.distributed.Client first"
            )
    else:
        found = asked
    if not isinstance(found, str) and found.asynchronous:
        raise RuntimeError(
            f"{found} is asynchronous, but a run of a program blocks its event loop: let a thread "
            "run it, as in await asyncio.to_thread(executor.run, program, ...), or make a Client "
            "without asynchronous=True"
        )
    return found


def _configured() -> Any:
    """The scheduler in ``dask.config``; None if there is none, or if it cannot run steps.

    Dask takes names of schedulers, and their functions, such as ``dask.get`` or ``client.get``.
    """
    named = dask.config.get("scheduler", None)
    if named is None:
        return None
    distributed, owner = sys.modules.get("distributed"), getattr(named, "__self__", named)
    if distributed is not None and isinstance(owner, distributed.Client):
        return owner
    if isinstance(named, ThreadPoolExecutor):
        return "threads"
    if isinstance(named, str):
        if named.lower() in ("distributed", "dask.distributed"):
            inside = distributed is not None and _inside_a_task(distributed)
            return "threads" if inside else "distributed"  # a client of the worker has set it
        if named.lower() not in named_schedulers:
            known = ", ".join(["distributed", *sorted(named_schedulers)])
            raise ValueError(f"scheduler={named!r} of dask.config is none that dask knows: {known}")
        found = _OURS.get(named_schedulers[named.lower()])
    else:
        found = _OURS.get(named) if callable(named) else None
    if found is None and str(named) not in _told:
        _told.add(str(named))
        text = "steps run on a Client or on threads: scheduler=%r of dask.config makes none"
        _logger.warning(text, named)
    return found


def threads_configured() -> int | None:
    """The number of threads in ``dask.config``: ``num_workers``, or the size of its thread pool."""
    for name in ("num_workers", "pool", "scheduler"):
        found = dask.config.get(name, None)
        if isinstance(found, int):
            return found
        if isinstance(found, ThreadPoolExecutor):
            return found._max_workers
        if isinstance(found, ThreadPool):
            return len(found._pool)  # type: ignore[attr-defined]
    return None


def collectives_in_force(
    strategy: ExecutionStrategy | None, scheduler: Any, program: Program
) -> str | None:
    """How the workers of a cluster exchange values.

    ``"auto"`` takes a gang unless it cannot run the program. A gang cannot divide batches inside a
    step (ParallelDo), and its members connect by sockets, which workers within one process support
    on Linux only.

    Args:
        strategy: the strategy with the requested kind.
        scheduler: the scheduler that runs the program, see :func:`scheduler_in_force`.
        program: the program.

    Returns:
        ``"tasks"`` or ``"gang"``; None if the scheduler is no cluster.
    """
    if strategy is None or isinstance(scheduler, str):
        return None
    if strategy.collectives != "auto":
        return str(strategy.collectives)
    address = str(getattr(scheduler.scheduler, "address", ""))
    why_not = ""
    if parallel_dos(program):
        why_not = "ParallelDo divides batches inside of a step"
    elif address.startswith("inproc:") and sys.platform != "linux":
        why_not = "workers of one process meet at sockets on Linux alone"
    if why_not and why_not not in _told:
        _told.add(why_not)
        _logger.warning("steps are dask tasks, as no gang can make them: %s", why_not)
    return "tasks" if why_not else "gang"


def active_client() -> Any:
    """The ``distributed.Client`` that dask itself would use here, or None.

    Inside a dask task it is None: a worker's thread that waits for tasks on the same workers could
    wait for itself.
    """
    distributed = sys.modules.get("distributed")  # without this import there can be no client
    if distributed is None or _inside_a_task(distributed):
        return None
    try:
        return distributed.Client.current()
    except ValueError:
        return None


def _inside_a_task(distributed: Any) -> bool:
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """One ``CPUPlace`` per CPU device.

    With an active dask client, or one set by ``dpexec run --scheduler``, these are the devices of
    its cluster: one per worker, or ``CPU_NUM`` per worker.

    Args:
        device_count: number of devices; None takes ``CPU_NUM``, else the CPUs available to the
            process, or all devices of the cluster.

    Returns:
        The places, all alike.

    Raises:
        ValueError: ``CPU_NUM`` is not an integer.
        RuntimeError: the cluster has no workers.

    See Also:
        :class:`~dpexec.CPUPlace`: a processor.
        :class:`~dpexec.CUDAPlace`: a GPU.
        :func:`~dpexec.cuda_places`: several GPUs.

    Example:
        >>> import dpexec as fluid
        >>> len(fluid.cpu_places(2))
        2
    """
    if device_count is not None:
        return places.cpu_places(device_count)
    return cpu_places_on(scheduler_in_force(DEFAULTS.scheduler))


def cpu_places_on(scheduler: Any) -> list[CPUPlace]:
    """All CPU devices of a scheduler, see :func:`cpu_places`.

    Args:
        scheduler: the result of :func:`scheduler_in_force`.
    """
    if isinstance(scheduler, str):
        return places.cpu_places()
    return [CPUPlace()] * (len(workers_of(scheduler)) * places.cpu_num(1))


def cuda_places_on(scheduler: Any) -> list[CUDAPlace]:
    """All GPUs of a scheduler: one per worker of a cluster, or those of this process.

    Args:
        scheduler: the result of :func:`scheduler_in_force`.

    Raises:
        AssertionError: no GPU can be used in this process.
        RuntimeError: the cluster has no workers.
    """
    if isinstance(scheduler, str):
        return places.cuda_places()
    return places.cuda_places(0) * len(workers_of(scheduler))


def workers_of(client: Any) -> list[str]:
    """Addresses of the workers that a run may use, in the order in which replicas are placed.

    Args:
        client: a connected ``distributed.Client``.

    Raises:
        RuntimeError: there are no workers, or the scheduler does not answer.
        ClusterError: no worker fulfils the restrictions of ``dask.annotate``, or none has dpexec.
    """
    from dpexec.engine.dask.annotations import those_wanted, wanted_here
    from dpexec.engine.dask.fitness import fitting
    from dpexec.engine.dask.waiting import Contact  # distributed loads with a client only

    contact = Contact(client, float(ExecutionStrategy.collective_timeout.default))
    addresses = contact.workers()
    if not addresses:
        raise RuntimeError(
            f"the cluster of {client} has no workers, so the number of replicas is not known: "
            "call client.wait_for_workers(n) first, or say how many places there are"
        )
    return those_wanted(client, wanted_here(), fitting(contact, addresses))


def place_replicas(count: int, workers: Sequence[str]) -> list[str]:
    """The worker of each replica: blocks of neighbours, as equal as possible.

    Gradients are summed in the order of the replicas, so a worker can sum those of its own block
    before anything is sent. With fewer replicas than workers, the last workers get none.

    Args:
        count: number of replicas.
        workers: addresses of the workers.

    Example:
        >>> place_replicas(5, ["a", "b"])
        ['a', 'a', 'a', 'b', 'b']
    """
    share, more = divmod(count, len(workers))
    sizes = [share + (number < more) for number in range(len(workers))]
    return [worker for worker, size in zip(workers, sizes, strict=True) for _ in range(size)]


def warn_of_one_thread(threads: int, devices: int) -> None:
    """Warn of replicas that would run one after another.

    Args:
        threads: of the pool.
        devices: number of devices of this process.
    """
    if threads < 2 <= devices:
        warn(
            f"ExecutionStrategy.num_threads = 1 runs the {devices} replicas one after another; "
            "leave it at 0, or set it to the number of processors"
        )
