"""Buckets that NCCL adds up, and the sums that it cannot add up.

Ranks of NCCL are the members, in the order of their replicas. A member adds up the values of its
own replicas first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpexec.engine.compile.plans.collectives import combined
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.places import CUDAPlace, array_module, on_device
from dpexec.engine.exchange.buckets import Bucket, Sum
from dpexec.engine.exchange.payload import checked, hand_out
from dpexec.engine.exchange.wire import Tag
from dpexec.engine.gpu.nccl import TYPES, NcclCall, call_of

if TYPE_CHECKING:
    from dpexec.engine.exchange.group import GpuExchange, Group
    from dpexec.engine.exchange.reducers import Reducer

__all__ = ["ByNccl", "divided"]


def divided(bucket: Bucket, group: Group) -> tuple[Bucket, Bucket]:
    """The part of a bucket that NCCL adds up, and the rest."""
    served = tuple(total for total in bucket.sums if _is_served(total, group))
    rest = tuple(total for total in bucket.sums if total not in served)
    return replace(bucket, sums=served), replace(bucket, sums=rest)


def _is_served(total: Sum, group: Group) -> bool:
    """Whether NCCL can add up a value: a dense one that all members have or get.

    It comes from all members for all or for one, or from one member for all.
    """
    sources, targets = _ranks(total.sources, group), _ranks(total.targets, group)
    everybody = {*range(len(group.members))}
    if total.height is not None or total.dtype.name not in TYPES:
        return False
    if len(sources) == 1:
        return targets == sources or targets | sources == everybody
    return sources == everybody and (len(targets) == 1 or targets == everybody)


def _ranks(devices: Sequence[int], group: Group) -> set[int]:
    return {group.home[device] for device in devices}


class ByNccl:
    """Adds up dense values on the GPUs; a member adds up its own replicas first.

    Args:
        group: the gang.
        bucket: the sums that NCCL can add up, see :func:`divided`.
        exchange: makes the calls.
        place: the GPU of this member.
        rest: adds up the other sums of the same task; None: there are none.
    """

    def __init__(
        self,
        group: Group,
        bucket: Bucket,
        exchange: GpuExchange,
        place: CUDAPlace,
        rest: Reducer | None,
    ) -> None:
        self._group, self._bucket, self._exchange = group, bucket, exchange
        self._place, self._rest = place, rest
        self._mine = group.members[group.rank].devices

    def run(self, envs: Sequence[Env], tag: Tag) -> None:
        """Begin to add up the bucket; its sums are complete when the exchange has finished."""
        calls: list[NcclCall] = []
        with on_device(self._place):
            for total in self._bucket.sums:
                hand_out(self._group, [(total, self._begun(total, envs, calls))], envs)
        if calls:
            self._exchange.enqueue(calls, tag)
        if self._rest is not None:
            self._rest.run(envs, tag)

    def _begun(self, total: Sum, envs: Sequence[Env], calls: list[NcclCall]) -> Any:
        """The array that takes a sum; appends the call of NCCL that writes it to ``calls``."""
        xp, rank = array_module(self._place), self._group.rank
        sources, targets = _ranks(total.sources, self._group), _ranks(total.targets, self._group)
        found = [checked(envs[d], total, d) for d in total.sources if d in self._mine]
        given = xp.ascontiguousarray(combined(total.reduction, found, xp)) if found else None
        if len(sources) == 1:
            if targets == sources:
                return given
            given = made = xp.empty(total.shape, total.dtype) if given is None else given
        else:
            made = xp.empty_like(given) if rank in targets else None
        calls.append(NcclCall(given, made, *call_of(sources, targets, total.reduction)))
        return made
