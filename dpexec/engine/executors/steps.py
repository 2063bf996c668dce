"""Many steps of a program in one call, each with a batch of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from dpexec.engine.core.errors import WorkerLostError
from dpexec.engine.dispatch.engine import Engine
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.parameter_server.remote import Remote
from dpexec.engine.run.fetch import as_tensors

__all__ = ["ProgramSteps"]

Batch = Mapping[str, Any]

_AT_ONCE = 256  # steps of a call; each has feeds and shards of its own, here and on workers


class ProgramSteps:
    """Steps of a program that are each fed a batch, see :class:`Steps`.

    Args:
        engine: the engine of the program.
        remote: its exchange with parameter servers after every step, if there are any.

    Attributes:
        most: how many steps can run in one call.
    """

    def __init__(self, engine: Engine, remote: Remote | None) -> None:
        self._engine, self._remote = engine, remote
        alone = remote is None and engine.runner.agreement is None  # others send as many at once
        self.most = _AT_ONCE if alone else 1
        self._coming: dict[int, tuple[Batch, Feeds]] = {}

    def ahead(self, batches: Sequence[Batch]) -> None:
        """Send what workers lack of the next batches there, while steps run on others."""
        if self._engine.contact is not None:
            feeds = [self._engine.feeding.feeds_of(dict(batch)) for batch in batches]
            with contextlib.suppress(WorkerLostError):  # the run that is fed them sends them again
                self._engine.ahead(feeds)
            self._coming.update((id(b), (b, f)) for b, f in zip(batches, feeds, strict=True))

    def run(self, batches: Sequence[Batch], names: Sequence[str]) -> list[Any]:
        """Run a step with each batch; returns the last step's values of some names."""
        feeds = [self._feeds(batch) for batch in batches]
        if self._remote is not None:
            return as_tensors(self._remote.run(self._engine, feeds, names, merged=True))
        return as_tensors(self._engine.run(feeds, names))

    def _feeds(self, batch: Batch) -> Feeds:
        _, feeds = self._coming.pop(id(batch), (batch, None))
        return self._engine.feeding.feeds_of(dict(batch)) if feeds is None else feeds
