"""State of replicas on their workers: how it is set, read, mirrored and moved.

The functions run on workers. Those with a parameter ``dask_worker`` run on the event loop, the
others are tasks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from distributed import get_worker

from dpexec.engine.cluster.gang_messages import Handover, OtherRun
from dpexec.engine.cluster.messages import Epoch, StepOf
from dpexec.engine.cluster.worker.departure import hold_until_closed
from dpexec.engine.cluster.worker.gang import leave
from dpexec.engine.cluster.worker.gpus import require_gpu
from dpexec.engine.cluster.worker.log import leave_out_told_errors
from dpexec.engine.cluster.worker.nannies import end_at_once, leave_interrupts_to_nanny
from dpexec.engine.cluster.worker.versions import StaleTaskError, StepArrays, Versions
from dpexec.engine.cluster.worker.worker import (
    Kind,
    WorkerReplicas,
    at_work,
    keep,
    release,
    replicas_at,
    state_at,
)
from dpexec.engine.compile.plans.compilation import Compilation
from dpexec.engine.core.copies import values_on
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.core.variable_values import digest
from dpexec.engine.run.fetch import host_copy

__all__ = [
    "Held",
    "advance",
    "digests",
    "give",
    "hand_over",
    "mirror",
    "settle",
    "setup",
    "store",
    "take",
    "values",
]

_POLL = 0.002  # seconds between looks at whether tasks have ended
_PATIENCE = 0.5  # seconds that an answer may wait for tasks to end


class Held(NamedTuple):
    """The state that a worker has.

    Args:
        steps: by what the state is there, and by replica, the steps whose state is known.
        running: how many tasks of earlier epochs have not ended yet.
        has_room: whether it can run replicas; if not, it keeps what closed workers left.
    """

    steps: Mapping[Kind, Mapping[int, tuple[int, ...]]]
    running: int
    has_room: bool


# ---- homes change


def setup(epoch: Epoch, step: int, spec: Compilation, peers: Sequence[str], keeps: bool) -> None:
    """Prepare a worker for replicas of a run, whose state comes later.

    Args:
        epoch: the epoch that begins.
        step: number of the last complete step.
        spec: how program and plans are compiled.
        peers: addresses of all workers with replicas.
        keeps: whether the worker keeps the state that closed workers left with it.

    Raises:
        RuntimeError: replicas are on GPUs, and the worker has no suitable one.
    """
    leave_out_told_errors()
    worker = get_worker()
    if worker.nanny:
        leave_interrupts_to_nanny(worker)
        end_at_once()
    require_gpu(spec, worker.address)
    keep(WorkerReplicas(epoch, spec, peers), worker.address, keeps)
    hold_until_closed(worker)


async def advance(epoch: Epoch, dask_worker: Any) -> Held | None:
    """Refuse tasks of earlier epochs, end the gang, and wait for tasks that still run.

    It does not wait long, so that a worker with a long task does not seem to be lost.

    Returns:
        The state that the worker has; None if it has none of the run.
    """
    try:
        state = state_at(epoch.token, dask_worker.address)
    except StaleTaskError:
        return None
    state.epoch = epoch
    leave(epoch.token, dask_worker)
    until = time.monotonic() + _PATIENCE
    while state.running and time.monotonic() < until:
        await asyncio.sleep(_POLL)
    running = state.running  # read before the steps, which running tasks may still change
    steps = {
        kind: {device: versions.steps for device, versions in known.items()}
        for kind, known in state.kinds.items()
    }
    return Held(steps, running, isinstance(state, WorkerReplicas))


def settle(
    epoch: Epoch,
    step: int,
    stored: Mapping[str, Collection[int]],
    mirrored: Mapping[str, Collection[int]],
    dask_worker: Any,
) -> None:
    """Let all replicas go back to a step, and forget those that have moved.

    Args:
        epoch: the epoch that begins.
        step: number of the step.
        stored: the replicas that live on each worker.
        mirrored: the replicas that each worker mirrors.
        dask_worker: the dask worker of this process.
    """
    address = dask_worker.address
    if not stored.get(address):
        release(epoch.token, dask_worker)
        return
    replicas = replicas_at(epoch.token, address)
    replicas.peers = list(stored)
    replicas.stores = _kept(replicas.stores, step, stored[address])
    replicas.mirrors = _kept(replicas.mirrors, step, mirrored.get(address, ()))
    replicas.left, replicas.left_own = {}, {}


def _kept(
    known: Mapping[int, Versions], step: int, devices: Collection[int]
) -> dict[int, Versions]:
    kept = {device: versions for device, versions in known.items() if device in devices}
    for versions in kept.values():
        versions.stand_at(step)
    for versions in kept.values():
        versions.settle()
    return kept


def take(
    epoch: Epoch,
    step: int,
    device: int,
    kind: Kind,
    names: Collection[str] | None = None,
    but: Collection[str] = (),
) -> dict[str, Any]:
    """State of a replica, for its new home or its mirror.

    Values on the host are not copied: no step runs before they have arrived, so nothing writes to
    them.

    Args:
        epoch: the epoch that begins.
        step: the step after which the state is wanted.
        device: the replica.
        kind: what the state is on this worker.
        names: names of the wanted variables; None: all.
        but: names of variables that are not wanted.
    """
    state = state_at(epoch.token, get_worker().address)
    with state.working(epoch):
        known = state.kinds[kind][device].at(step)
        wanted = [name for name in known if (names is None or name in names) and name not in but]
        return values_on(CPUPlace(), {name: known[name] for name in wanted})


def give(
    epoch: Epoch, step: int, mirrored: bool, parts: Mapping[int, Sequence[Mapping[str, Any]]]
) -> None:
    """Make a worker the home or the mirror of replicas.

    An array that several replicas of the worker have in common is stored once.

    Args:
        epoch: the epoch that begins.
        step: the step whose state the replicas have.
        mirrored: whether the worker mirrors them; if not, it becomes their home.
        parts: the state of each replica, in parts.
    """
    arrays = StepArrays()
    with at_work(epoch) as replicas:
        for versions in replicas.stores.values():
            if step in versions.steps:
                for name, array in versions.at(step).items():
                    arrays.lend(versions, name, array)
        for device, found in parts.items():
            versions = _new_versions(replicas, step, mirrored)
            for values in found:
                versions.set(values, arrays)
            (replicas.mirrors if mirrored else replicas.stores)[device] = versions


# ---- mirrors


def mirror(step: StepOf, device: int, made: Mapping[str, Any]) -> None:
    """Store a step's new own state of a replica that this worker mirrors."""
    with at_work(step.epoch) as replicas:
        versions = replicas.mirrors[device]
        versions.stand_at(step.base)
        versions.commit(step.number, made, StepArrays())


# ---- values come and go


def store(epoch: Epoch, step: int, mirrored: bool, values: Mapping[int, Mapping[str, Any]]) -> None:
    """Set persistable variables of devices; an array that several of them share stays shared.

    Args:
        epoch: the present epoch.
        step: number of the last complete step.
        mirrored: whether the worker mirrors the devices; if not, it is their home.
        values: the values by device and name.
    """
    arrays = StepArrays()
    with at_work(epoch) as replicas:
        known = replicas.mirrors if mirrored else replicas.stores
        for device, found in values.items():
            if device not in known:
                known[device] = _new_versions(replicas, step, mirrored)
            known[device].stand_at(step)
            known[device].set(found, arrays)


def _new_versions(replicas: WorkerReplicas, step: int, mirrored: bool) -> Versions:
    """Empty versions for a replica: on its device, or on the host for a mirror."""
    return Versions(step, place=None if mirrored else replicas.place)


def values(epoch: Epoch, step: int, device: int, names: Sequence[str]) -> dict[str, Any]:
    """Persistable variables of a device after a step; variables without a value are left out."""
    with at_work(epoch) as replicas:
        versions = replicas.stores[device]
        known = versions.at(step)
        found = {name: host_copy(known[name]) for name in names if name in known}
        _require_same(versions, step, known)
        return found


def _require_same(versions: Versions, step: int, known: Mapping[str, Any]) -> None:
    """Check, after values were read, that no step has overwritten them meanwhile.

    Raises:
        StaleTaskError: a step may have overwritten them.
    """
    if versions.at(step) is not known:
        raise StaleTaskError(f"a step overwrote the values after step {step} while they were read")


def hand_over(replicas: WorkerReplicas, address: str, order: Handover) -> dict[int, dict[str, Any]]:
    """Read or set variables of the replicas, between steps.

    Args:
        replicas: of this worker; the caller works with them.
        address: of this worker.
        order: what to do.

    Returns:
        What was read, by device and name.

    Raises:
        StaleTaskError: a step may have overwritten the values meanwhile.
    """
    for versions in (*replicas.stores.values(), *replicas.mirrors.values()):
        versions.stand_at(order.base)
    read = {}
    for device, names in order.read.items():
        known = replicas.stores[device].at(order.base)
        read[device] = {name: host_copy(known[name]) for name in names if name in known}
    arrays, stores = StepArrays(), replicas.stores
    if order.copied is not None:
        _copy(stores, order.copied, replicas_at(order.copied.epoch.token, address), arrays)
    for kept, given in (stores, order.values), (replicas.mirrors, order.mirrored):
        for device, values in given.items():
            kept[device].set(values, arrays)
    return read


def _copy(
    stores: Mapping[int, Versions], copied: OtherRun, others: WorkerReplicas, arrays: StepArrays
) -> None:
    """Copy variables from the replicas of another run on this worker."""
    with others.working(copied.epoch):
        versions = others.stores[copied.device]
        known = versions.at(copied.step)
        for device, names in copied.names.items():
            stores[device].set({name: known[name] for name in names}, arrays)
        _require_same(versions, copied.step, known)


def digests(epoch: Epoch, step: int, device: int, names: Sequence[str]) -> dict[str, bytes]:
    """Digests of a device's variables, by which they are compared with those of other devices."""
    with at_work(epoch) as replicas:
        versions = replicas.stores[device]
        known = versions.at(step)
        found = values_on(CPUPlace(), {name: known[name] for name in names if name in known})
        digests = {name: digest(value) for name, value in found.items()}
        _require_same(versions, step, known)
        return digests
