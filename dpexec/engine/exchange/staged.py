"""Collectives of replicas on GPUs: copies on the host are added up, and the sums come back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.copies import value_on, values_on
from dpexec.engine.core.places import CPUPlace, CUDAPlace
from dpexec.engine.exchange.buckets import Bucket
from dpexec.engine.exchange.payload import Item
from dpexec.engine.exchange.reducers import Reducer
from dpexec.engine.exchange.wire import Tag

__all__ = ["Staged", "on_host"]


def on_host(envs: Sequence[Env], items: Iterable[Item]) -> list[Env]:
    """Envs with some values alone, which lie on the host.

    Args:
        envs: values per device.
        items: which of them.
    """
    wanted = {(device, total.name): envs[device][total.name] for total, device in items}
    found = [Env() for _ in envs]
    for (device, name), value in values_on(CPUPlace(), wanted).items():
        found[device][name] = value
    return found


class Staged:
    """Adds up a bucket of values that lie on a GPU.

    Args:
        bucket: what.
        devices: the replicas at home here.
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
        on_gpu = {id(copy): (copy, value) for copy, value in copies}  # what is sent stays here
        self._reducer.run(host, tag)
        for name, device in self._made:
            made = host[device][name]
            if id(made) not in on_gpu:
                on_gpu[id(made)] = made, value_on(self._place, made)
            envs[device][name] = on_gpu[id(made)][1]
