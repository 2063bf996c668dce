"""Every device's part of a run."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from dpexec.engine.compile.plans.parallel_do import parts_of_rows
from dpexec.engine.compile.regions.env import Shard
from dpexec.engine.core.rings import Ring
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.graph.ssa import SSAGraph

__all__ = ["make_shards"]


def make_shards(
    graph: SSAGraph,
    feeds: Feeds,
    run: int,
    before: int,
    total: int,
    scaled: bool,
    rings: Mapping[int, Ring],
) -> list[Shard]:
    """Every device's part of a run.

    Args:
        graph: the graph.
        feeds: what the devices are fed.
        run: number of the run.
        before: samples of the batch that other processes have before those of this one.
        total: samples of the whole batch.
        scaled: whether gradients are weighted by their device's share of the batch.
        rings: rings of trainers, by number.
    """
    entropy = secrets.randbits(62) + 1
    shards = []
    replicas, first = len(graph.replicas), before
    for device, parts in enumerate(parts_of_rows(graph, feeds.rows)):
        samples = feeds.samples[device]
        share = samples / max(total, 1)
        weight = share if scaled else 1.0
        begin = first if device < replicas else 0
        shards.append(Shard(run, entropy, begin, max(samples, 1), weight, parts, share, rings))
        first += samples
    return shards
