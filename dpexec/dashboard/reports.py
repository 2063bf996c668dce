"""A trainer's reports: plain values, which can also be sent to a cluster's scheduler."""

from __future__ import annotations

from typing import Any, TypedDict

__all__ = ["Box", "Current", "Report", "Sample", "Slice"]

Slice = list[Any]
"""An event of a recorded step: device (None: of all), role ("" for a task), kind, name, key of the
task, begin and end in seconds since the step began."""


class Box(TypedDict):
    """One box of the live graph: a task, or several tasks drawn as one."""

    keys: list[str]
    """Of the tasks."""
    label: str
    device: int | None
    """None: all of them."""
    roles: list[str]
    row: int
    """One more than that of every box it waits for."""
    ops: int
    """How many operators they have."""
    most: list[str]
    """The operators that there are most of, as texts."""
    bytes: int
    """What their collectives read."""


class Sample(TypedDict):
    """A recorded step."""

    step: int
    """Its number, from 1."""
    seconds: float
    """How long it took."""
    slices: list[Slice]
    left_out: int
    """How many slices, the shortest, are not there."""


class Current(TypedDict):
    """The running step."""

    step: int
    """Its number, from 1."""
    since: float
    """Seconds since it began."""
    done: list[str] | None
    """Keys of the tasks that ended; None where nobody knows."""
    running: list[str] | None
    """Keys of the tasks that run; None where only their order tells."""


class Report(TypedDict):
    """The state of a training, and the news since the last report."""

    run: str
    """Its identity."""
    time: float
    """Now, in seconds since 1970."""
    trains: bool
    """Whether the program has gradients."""
    devices: list[str]
    mode: str
    graph: list[Box] | None
    """None: as before."""
    loss_name: str
    steps: int
    """How many ended well, since somebody watches; likewise ``samples``, ``bytes`` (that
    collectives read; of sparse values at most, where other processes add them up) and ``seconds``
    (that steps took)."""
    failed: int
    """How many raised an error."""
    samples: int
    bytes: int
    seconds: float
    loss: list[list[float]]
    """New points: number of the step, loss."""
    sample: Sample | None
    """None: no new one."""
    current: Current | None
    """None: between steps, or it has not run for long."""
