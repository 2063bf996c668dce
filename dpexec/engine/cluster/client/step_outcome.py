"""Steps that are made together on a cluster: the request, and the outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from dpexec.engine.cluster.worker.versions import StaleTaskError
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.exchange.wire import GangError

if TYPE_CHECKING:
    from dpexec.engine.cluster.gang_messages import Outcome
    from dpexec.engine.cluster.messages import BindingKey, Noted
    from dpexec.engine.compile.bindings.binding import Binding
    from dpexec.engine.compile.regions.env import Shard
    from dpexec.engine.feeds.splitting import Feeds
    from dpexec.engine.trace.live import Counter

__all__ = ["BoundBatch", "StepOutcome", "StepRequest", "count_made", "counted", "requests"]

BoundBatch: TypeAlias = "tuple[Binding, Feeds]"
"""The binding of a step, and the feeds of its devices."""


@dataclass(slots=True)
class StepRequest:
    """A step that is to be made.

    Args:
        binding: the binding that runs.
        key: the name of the binding on the workers.
        feeds: the feeds of the devices.
        shards: the devices' parts of the run.
    """

    binding: Binding
    key: BindingKey
    feeds: Feeds
    shards: Sequence[Shard]


def requests(
    steps: Sequence[BoundBatch], keys: Sequence[BindingKey], shards: Sequence[Sequence[Shard]]
) -> list[StepRequest]:
    """The requests for some steps.

    Args:
        steps: the steps.
        keys: the names of their bindings on the workers.
        shards: the devices' parts of each.
    """
    found = zip(steps, keys, shards, strict=True)
    return [StepRequest(binding, key, feeds, parts) for (binding, feeds), key, parts in found]


@dataclass
class StepOutcome:
    """The outcome of some steps.

    Args:
        done: how many steps all replicas completed.
        fetched: the fetched values of the last step, per device.
        noted: the notes of recorded steps, per device.
        bytes_sent: bytes that all members of a gang sent through sockets.
        error: why the steps ended early; None: they did not.
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
        """Whether the steps ended early because workers are gone or silent."""
        return isinstance(self.error, GangError | StaleTaskError)


def error_of(outcomes: Sequence[Outcome | None], names: Sequence[str]) -> BaseException | None:
    """The error to raise: an operator's error comes before those that followed from it.

    Args:
        outcomes: of the members of a gang; None: that member is gone.
        names: of the members.
    """
    errors = [o.error for o in outcomes if o is not None and o.error is not None]
    for error in errors:
        if not isinstance(error, GangError):
            return error
    if errors:
        return errors[0]
    lost = [name for name, outcome in zip(names, outcomes, strict=True) if outcome is None]
    return GangError(f"{', '.join(lost)} did not answer") if lost else None


def count_made(
    counter: Counter, steps: Sequence[BoundBatch], done: int, results: Sequence[Any] | None
) -> None:
    """Tell a counter of steps that workers made together; it was told that the first one began.

    Args:
        counter: the counter.
        steps: the steps that were requested.
        done: how many of them are complete.
        results: the fetches of the last step; None: a step failed.
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


def counted(
    counter: Counter | None, steps: Sequence[BoundBatch], runs: Any, make: Callable[[], list[Any]]
) -> list[Any]:
    """Make some steps together, and tell a counter of them; returns their fetches.

    Args:
        counter: the counter; None: nothing counts.
        steps: the steps.
        runs: the count of the program's runs.
        make: makes them.
    """
    if counter is None:
        return make()
    before, results = runs.number, None
    counter.begin(steps[0][0])
    try:
        results = make()
        return results
    finally:
        count_made(counter, steps, runs.number - before, results)
