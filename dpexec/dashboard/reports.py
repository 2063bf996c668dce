"""A trainer's reports: plain values, which can also be sent to a cluster's scheduler."""

from __future__ import annotations

from typing import Any, TypedDict

__all__ = ["Box", "Current", "Report", "Sample", "Slice"]

Slice = list[Any]
"""An event of a recorded step: device (None for all devices), role ("" for a task), kind, name, key
of the task, begin and end in seconds since the step began."""


class Box(TypedDict):
    """One box of the live graph: a task, or several tasks drawn as one."""

    keys: list[str]
    """The keys of the tasks."""
    label: str
    device: int | None
    """None for all devices."""
    roles: dict[str, int]
    """The number of operators of each role."""
    row: int
    """One more than the largest row of the boxes it waits for."""
    ops: int
    """The number of operators."""
    most: list[str]
    """The most frequent operators, as texts."""
    bytes: int
    """The bytes that collectives read."""


class Sample(TypedDict):
    """A recorded step."""

    step: int
    """The number of the step, from 1."""
    seconds: float
    """The duration of the step."""
    slices: list[Slice]
    left_out: int
    """How many slices are left out; these are the shortest."""


class Current(TypedDict):
    """The running step."""

    step: int
    """The number of the step, from 1."""
    since: float
    """Seconds since it began."""
    done: list[str] | None
    """Keys of the tasks that ended; None if unknown."""
    running: list[str] | None
    """Keys of the tasks that run; None if they must be derived from ``done``."""


class Report(TypedDict):
    """The state of a training, and the news since the last report."""

    run: str
    """The name of the run."""
    time: float
    """The time of the report, in seconds since 1970."""
    trains: bool
    """Whether the program has gradients."""
    devices: list[str]
    mode: str
    graph: list[Box] | None
    """The boxes; None if they have not changed since the last report."""
    loss_name: str
    steps: int
    """Steps that ended without an error since the first watcher came. ``samples``, ``seconds`` and
    ``bytes`` are sums over these steps. ``bytes`` counts what collectives read; if other processes
    reduce sparse values, they count with an upper bound."""
    failed: int
    """Steps that raised an error."""
    samples: int
    bytes: int
    seconds: float
    loss: list[list[float]]
    """New points: number of the step, loss."""
    sample: Sample | None
    """The latest recorded step; None if there is no new one."""
    current: Current | None
    """None between steps, and while a step has not run for long."""
