"""How members of a gang exchange values of GPUs: by NCCL, or through the host.

Members tell the client about their GPUs when a gang forms; the client chooses for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.copies import value_on, values_on
from dpexec.engine.core.flags import asks_for_equal_runs
from dpexec.engine.core.places import CPUPlace, CUDAPlace, Place, array_module
from dpexec.engine.exchange.buckets import Bucket
from dpexec.engine.exchange.payload import Item
from dpexec.engine.exchange.reducers import Reducer
from dpexec.engine.exchange.rendezvous import Gpu, Member
from dpexec.engine.exchange.wire import Tag
from dpexec.engine.gpu.nccl import library

__all__ = ["Staged", "gpu_of", "how_exchanged", "on_host", "why_not_nccl"]


def gpu_of(place: Place) -> Gpu | None:
    """What a member tells about its device; None if it is no GPU."""
    if not isinstance(place, CUDAPlace):
        return None
    cupy = array_module(place)
    nccl = library(cupy)
    slot = cupy.cuda.Device(place.device_id).pci_bus_id
    return Gpu(slot, nccl.get_version() if nccl.available else 0)


def why_not_nccl(members: Sequence[Member]) -> str:
    """Why a gang does not exchange values by NCCL; empty if it does."""
    gpus = [member.gpu for member in members]
    if None in gpus:
        return "replicas are not on GPUs"
    if len(members) < 2:
        return "there is one worker"
    if asks_for_equal_runs():
        return "FLAGS_cudnn_deterministic keeps the order of the replicas"
    if any(member.worker.startswith("tls:") for member in members):
        return "NCCL does not encrypt"
    without = [m.worker for m in members if m.gpu is not None and not m.gpu.nccl]
    if without:
        return f"NCCL is not installed at {', '.join(without)}"
    versions = {gpu.nccl for gpu in gpus if gpu is not None}
    if len(versions) > 1:
        return f"workers have different versions of NCCL: {sorted(versions)}"
    places = Counter((m.host or m.worker, m.gpu.slot) for m in members if m.gpu is not None)
    if len(places) < len(members):
        return "workers share a GPU"
    return ""


def how_exchanged(members: Sequence[Member], why_not: str) -> str:
    """The sentence for users about how values get from GPU to GPU; empty for replicas on CPUs.

    Args:
        members: the members of the gang.
        why_not: the result of :func:`why_not_nccl`.
    """
    for member in members:
        if member.gpu is None:
            return ""
    if why_not:
        return f"through the host: {why_not}"
    return "by NCCL, rows of sparse ones through the host"


# ---- through the host: copies are added up, and the sums come back


def on_host(envs: Sequence[Env], items: Iterable[Item]) -> list[Env]:
    """Copy some values to the host.

    Args:
        envs: values per device.
        items: the values to copy.

    Returns:
        An env per device, with the copies only.
    """
    wanted = {(device, total.name): envs[device][total.name] for total, device in items}
    found = [Env() for _ in envs]
    for (device, name), value in values_on(CPUPlace(), wanted).items():
        found[device][name] = value
    return found


class Staged:
    """Adds up values of a GPU through the host.

    Args:
        bucket: the sums.
        devices: the replicas of this member.
        place: their GPU.
        reducer: adds up values of the host.
    """

    def __init__(
        self, bucket: Bucket, devices: Collection[int], place: CUDAPlace, reducer: Reducer
    ) -> None:
        self._place, self._reducer = place, reducer
        self._items = [(t, d) for t in bucket.sums for d in t.sources if d in devices]
        self._made = [(t.made, d) for t in bucket.sums for d in t.targets if d in devices]

    def run(self, envs: Sequence[Env], tag: Tag) -> None:
        """Add up the bucket, see :meth:`Reducer.run`."""
        host = on_host(envs, self._items)
        copies = [(host[d][t.name], envs[d][t.name]) for t, d in self._items]
        # a sum that is the copy of a value, as a broadcast's is, needs no way back to the GPU
        on_gpu = {id(copy): (copy, value) for copy, value in copies}
        self._reducer.run(host, tag)
        for name, device in self._made:
            made = host[device][name]
            if id(made) not in on_gpu:
                on_gpu[id(made)] = made, value_on(self._place, made)
            envs[device][name] = on_gpu[id(made)][1]
