"""Every device's share of a run."""

from __future__ import annotations

import secrets

from dpexec.engine.compile.plans.parallel_do import parts_of_rows
from dpexec.engine.compile.regions.env import Shard
from dpexec.engine.core.scope import Scope
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.ir.program import Program
from dpexec.engine.run.parts import Agreement
from dpexec.engine.strategy.strategies import BuildStrategy

__all__ = ["Shards", "new_entropy"]


def new_entropy() -> int:
    """A number for the seeds of a run's random operators that have none of their own."""
    return secrets.randbits(62) + 1


class Shards:
    """Computes every device's share of a run.

    Args:
        graph: the graph.
        scope: of the user; it counts the runs.
        label: the program whose runs are counted.
        strategy: determines whether gradients are weighted by the device's share of the batch;
            None: yes.
        agreement: knows the shares of other processes; None: there are none.
        with_rings: whether operators meet other trainers in rings of the scope.
    """

    def __init__(
        self,
        graph: SSAGraph,
        scope: Scope,
        label: Program,
        strategy: BuildStrategy | None,
        agreement: Agreement | None,
        with_rings: bool,
    ) -> None:
        self._graph, self._scope, self._runs = graph, scope, scope.runs_of(label)
        self._agreement, self._with_rings = agreement, with_rings
        one = BuildStrategy.GradientScaleStrategy.One
        self._scaled = strategy is None or strategy.gradient_scale_strategy != one

    def __call__(self, feeds: Feeds, ahead: int = 0) -> list[Shard]:
        """The parts of a run.

        Args:
            feeds: the feeds of the devices.
            ahead: number of earlier runs that have not ended.
        """
        replicas, agreement = len(self._graph.replicas), self._agreement
        own = feeds.samples[:replicas]
        first, total = (0, sum(own)) if agreement is None else agreement.extent(own)
        rings = self._scope.rings() if self._with_rings else {}
        run = self._runs.number + ahead
        entropy, shards = new_entropy(), []
        for device, parts in enumerate(parts_of_rows(self._graph, feeds.rows)):
            samples = feeds.samples[device]
            share = samples / max(total, 1)
            weight = share if self._scaled else 1.0
            begin = first if device < replicas else 0
            shards.append(Shard(run, entropy, begin, max(samples, 1), weight, parts, share, rings))
            first += samples
        return shards
