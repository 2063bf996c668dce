"""What is fed to the devices of an engine: by users, by loaders, and from the scope."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpexec.engine.compile.plans.kept_offsets import KeptOffsets
from dpexec.engine.compile.plans.parallel_do import splitter
from dpexec.engine.feeds.coming import Coming
from dpexec.engine.feeds.loaders import loaded
from dpexec.engine.feeds.splitter import Splitter
from dpexec.engine.feeds.splitting import Feeds, single_feed, split_feed
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.ir.program import Program

if TYPE_CHECKING:
    from dpexec.engine.dask.waiting import Contact

__all__ = ["Feeding"]


class Feeding:
    """Turns what users feed into the feeds of all devices.

    Args:
        program: declares what may be fed.
        graph: the program on its devices.
        kept: the sequences of persistable variables.
        begin: called before the scope is read; trainers have the variables of the first one then.
        contact: returns the connection to the cluster; None: the devices are in this process.
        steps_per_run: ``ExecutionStrategy.num_iteration_per_run``.
        alone: there is one device that gets every batch whole.

    Attributes:
        prepare: completes a device's batch of a loader; None: nothing is to be done.
    """

    def __init__(
        self,
        program: Program,
        graph: SSAGraph,
        kept: KeptOffsets,
        begin: Callable[[], None],
        contact: Callable[[], Contact | None] | None,
        steps_per_run: int,
        alone: bool,
    ) -> None:
        self._block, self._graph, self._kept = program.global_block(), graph, kept
        self._begin, self._contact = begin, contact
        self._steps, self._alone = steps_per_run, alone
        self._partial = not graph.is_training
        self.prepare = splitter(graph)

    @functools.cached_property
    def split(self) -> Splitter:
        """The splitter of a feed that has everything."""
        block = self._block
        whole = functools.partial(single_feed, block)
        return Splitter(whole if self._alone else self._divided, block)

    def _divided(self, feed: Any) -> Feeds:
        contact = None if self._contact is None else self._contact()
        return split_feed(self._block, feed, len(self._graph.replicas), self._partial, contact)

    def feeds_of(self, feed: Any) -> Feeds:
        """The feeds of all devices, with the sequences of persistable variables in the scope.

        Args:
            feed: what the user feeds, without what loaders give.

        Raises:
            EnforceNotMet: what is fed does not fit, or its sequences cannot be kept.
        """
        if not self._kept.names:
            return self.split(feed)
        self._begin()
        return self._kept.add(self.split(feed))

    def batches(self, program: Program, feed: Any) -> list[Feeds]:
        """The feeds of every step of a run. Readers may end before the last step.

        Args:
            program: whose readers are asked.
            feed: what the user feeds.

        Raises:
            EOFException: a reader has no more data.
        """
        feeds_of = self.feeds_of if self.coming is None else self.coming.feeds_of
        if not program._loaders:
            return [feeds_of({} if feed is None else feed)] * self._steps
        places = [self._graph.places[device] for device in self._graph.replicas]
        return loaded(program, feed, feeds_of, places, self.prepare, self._steps, self._partial)

    @functools.cached_property
    def coming(self) -> Coming | None:
        """The source of later batches; None if each run may change the offsets that it adds."""
        known = self._contact is not None and not self._kept.names
        return Coming(self.feeds_of, self._steps) if known else None
