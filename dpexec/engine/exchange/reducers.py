"""How a bucket is added up: deterministic collectives between the members of a gang.

Sums go in device order, ``((g0 + g1) + g2) + ...``, wherever they are computed, so they have the
bits that they have in one process.

| values | on one host | elsewhere |
|---|---|---|
| large, from all for all | `DividedInMemory` | `Chained` or `DividedByWire`, whichever sends less |
| other large ones | `Direct`, through memory that all see | `Direct` |
| small or sparse ones | `Direct` | `Direct` |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dpexec.engine.compile.regions.env import Env
from dpexec.engine.exchange.buckets import Bucket
from dpexec.engine.exchange.chain import Chained, sends_less
from dpexec.engine.exchange.direct import Direct
from dpexec.engine.exchange.divided import DividedByWire, DividedInMemory
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.wire import Tag

__all__ = ["Reducer", "reducer_of"]


class Reducer(Protocol):
    """Adds up a bucket, at every step."""

    def run(self, envs: Sequence[Env], tag: Tag) -> None:
        """Add up the bucket.

        Args:
            envs: values per device; only those of devices at home here are read and written.
            tag: what the frames are called.

        Raises:
            GangError: a member failed, is gone, or does not answer.
        """


def reducer_of(group: Group, bucket: Bucket) -> Reducer:
    """What adds up a bucket; all members choose the same.

    Args:
        group: the gang.
        bucket: what is added up.
    """
    large = bucket.is_large and len(group.members) > 1
    if not (large and bucket.for_all(len(group.home))):
        return Direct(group, bucket, shared=large and group.on_one_host)
    if group.on_one_host:
        return DividedInMemory(group, bucket)
    if sends_less([member.devices for member in group.members], bucket):
        return Chained(group, bucket)
    return DividedByWire(group, bucket)
