"""Steps that are made together on a cluster: what is wanted, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from dpexec.engine.cluster.worker.versions import StaleTaskError
from dpexec.engine.exchange.wire import GangError

if TYPE_CHECKING:
    from dpexec.engine.cluster.messages import BindingKey, Noted
    from dpexec.engine.compile.bindings.binding import Binding
    from dpexec.engine.compile.regions.env import Shard
    from dpexec.engine.feeds.splitting import Feeds
    from dpexec.engine.trace.live import Counter

__all__ = ["BoundBatch", "StepOutcome", "StepRequest", "count_made"]

BoundBatch: TypeAlias = "tuple[Binding, Feeds]"
"""What runs in a step, and what the devices are fed."""


@dataclass(slots=True)
class StepRequest:
    """A step that is to be made.

    Args:
        binding: what runs.
        key: what the workers know it by.
        feeds: what the devices are fed.
        shards: their parts of it.
    """

    binding: Binding
    key: BindingKey
    feeds: Feeds
    shards: Sequence[Shard]


@dataclass
class StepOutcome:
    """Steps that were made, and what the last of them gave.

    Args:
        done: how many steps all replicas completed.
        fetched: what is fetched of the last one, per device.
        noted: what was recorded, per device.
        bytes_sent: by all members of a gang, through sockets.
        error: why it ended early.
        missing: what is wrong with workers that did not answer, by address.
    """

    done: int
    fetched: list[dict[str, Any]]
    noted: list[Noted | None] = field(default_factory=list)
    bytes_sent: int = 0
    error: BaseException | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def lost(self) -> bool:
        """Whether it ended early because members are gone or silent."""
        return isinstance(self.error, GangError | StaleTaskError)


def count_made(
    counter: Counter, steps: Sequence[BoundBatch], done: int, results: Sequence[Any] | None
) -> None:
    """Tell a counter, who knows that the first step began, of steps that workers made together.

    Args:
        counter: who.
        steps: what was to run, on what.
        done: how many steps are complete.
        results: what the last one gave; None: a step failed.
    """
    if results is not None and len(steps) == done == 1:
        counter.end(steps[0][1].samples, results)
        return
    for index, (binding, feeds) in enumerate(steps[: done + (results is None)]):
        if index:
            counter.begin(binding)
        unknown = [None for _ in binding.plan.fetch]
        last = results is not None and index == done - 1
        counter.end(feeds.samples, results if last else unknown if index < done else None)
