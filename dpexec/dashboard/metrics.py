"""Metrics of training for Prometheus: counters that grow, and the latest loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol
from weakref import WeakSet

from dpexec.dashboard.board import Board

__all__ = ["Collector", "publish", "text"]


class _Plugin(Protocol):
    @property
    def boards(self) -> Mapping[str, Board]:
        """The boards of all reporting trainings."""


_plugins: WeakSet[_Plugin] = WeakSet()


class Collector:
    """The collector that ``prometheus_client`` queries at every scrape.

    Args:
        boards: function that returns the boards of the current trainings.
    """

    def __init__(self, boards: Callable[[], Iterable[Board]]) -> None:
        self.boards = boards

    def collect(self) -> Iterator[Any]:
        """Yield the metrics, each with a sample per run."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            SummaryMetricFamily,
        )

        boards = [board for board in self.boards() if board.run]
        labels = ["run", "mode", "devices"]
        rows = [([b.run, b.mode, str(len(b.devices))], b) for b in boards]
        for name, explanation, attribute in (
            ("dpexec_steps", "Steps that were trained", "steps"),
            ("dpexec_failed_steps", "Steps that raised an error", "failed"),
            ("dpexec_samples", "Samples that were trained on", "samples"),
            ("dpexec_bytes_moved", "Bytes that collectives read on all devices", "bytes"),
        ):
            counter = CounterMetricFamily(name, explanation, labels=labels)
            for label, board in rows:
                counter.add_metric(label, getattr(board, attribute))
            yield counter
        took = SummaryMetricFamily("dpexec_step_seconds", "How long steps took", labels=labels)
        loss = GaugeMetricFamily("dpexec_loss", "The latest loss that was fetched", labels=labels)
        for label, board in rows:
            took.add_metric(label, board.steps, board.seconds)
            if board.loss.points:
                loss.add_metric(label, board.loss.points[-1][1])
        yield took
        yield loss
        yield from _groups(boards)


def _groups(boards: Iterable[Board]) -> Iterator[Any]:
    """The metrics of groups of tasks, by worker."""
    from prometheus_client.core import CounterMetricFamily

    labels = ["run", "worker", "group"]
    what = "of each group of tasks, as far as measured steps tell"
    runs = CounterMetricFamily("dpexec_group_runs", f"Runs {what}", labels=labels)
    seconds = CounterMetricFamily("dpexec_group_seconds", f"Seconds {what}", labels=labels)
    for board in boards:
        for member in board.members.values():
            for name, group in member.groups.items():
                runs.add_metric([board.run, member.name, name], group.runs)
                seconds.add_metric([board.run, member.name, name], group.seconds)
    yield runs
    yield seconds


def publish(plugin: _Plugin) -> None:
    """Add the boards of a scheduler's plugin to the metrics of this process.

    All schedulers of a process share the registry of prometheus_client. Without that package there
    are no metrics, and ``/metrics`` says so.

    Args:
        plugin: the scheduler's plugin; its boards are read at every scrape.
    """
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return
    _plugins.add(plugin)
    if not _published:
        _published.append(Collector(lambda: [b for p in _plugins for b in p.boards.values()]))
        REGISTRY.register(_published[0])


_published: list[Collector] = []


def text(boards: Iterable[Board]) -> str:
    """The metrics of some trainings in Prometheus' text format.

    Args:
        boards: boards of the trainings.

    Raises:
        RuntimeError: ``prometheus_client`` is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError as error:
        raise RuntimeError(
            "metrics need prometheus_client: pip install 'dpexec[dashboard]'"
        ) from error
    found = list(boards)
    registry = CollectorRegistry()
    registry.register(Collector(lambda: found))
    return generate_latest(registry).decode()
