"""Orders to the members of a gang: what steps have in common is told once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.cluster.client.step_outcome import StepRequest
from dpexec.engine.cluster.gang_messages import AlikeSteps
from dpexec.engine.cluster.messages import GangStep
from dpexec.engine.cluster.repeated_steps import Remembered, StepForm
from dpexec.engine.core.lod import Lod
from dpexec.engine.dask.deliveries import Fed, rows_of

__all__ = ["GangOrders", "Once", "StepForms"]


class Once:
    """Makes views of the same numbers one object, which then travels once.

    Without a reader, all steps of a run are fed the same arrays.
    """

    def __init__(self) -> None:
        self._known: dict[Any, np.ndarray[Any, Any]] = {}

    def __call__(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The same values, by name."""
        return {name: self._known.setdefault(_where(a), a) for name, a in values.items()}


def _where(array: Any) -> Any:
    """What says which numbers an array holds."""
    if isinstance(array, Lod):
        return id(array)
    return array.__array_interface__["data"], array.shape, array.strides, array.dtype


class GangOrders:
    """Some steps, of which every member is told its part.

    Args:
        steps: which.
        fed: what each device is fed in each of them.
        batches: numbers of the batches that have that already; 0: none has.
        first: number of the first.
        recorded: whether to note when tasks run.
    """

    def __init__(
        self,
        steps: Sequence[StepRequest],
        fed: Sequence[Sequence[Fed]],
        batches: Sequence[int],
        first: int,
        recorded: bool,
    ) -> None:
        self._steps, self._fed, self._batches = steps, fed, batches
        self._first, self._recorded = first, recorded
        self._alike = [[0]] if len(steps) == 1 else self._find_alike()
        self._once = Once()

    def _find_alike(self) -> list[list[int]]:
        """Which steps follow each other that differ in their batches alone."""
        kinds = list(map(_kind, self._steps, self._fed))
        alike = itertools.groupby(range(len(kinds)), kinds.__getitem__)
        return [list(found) for _, found in alike]

    def of(self, devices: Sequence[int], blocks: dict[Any, Any]) -> list[AlikeSteps]:
        """The part of a member.

        Args:
            devices: of the member.
            blocks: gets futures of what its order needs on its worker, by key.
        """
        return [self._part(devices, numbers, blocks) for numbers in self._alike]

    def _part(
        self, devices: Sequence[int], numbers: Sequence[int], blocks: dict[Any, Any]
    ) -> AlikeSteps:
        """A member's part of steps that are alike."""
        steps, fed = [self._steps[n] for n in numbers], [self._fed[n] for n in numbers]
        like, number = steps[0], self._first + numbers[0]
        shards = {device: like.shards[device] for device in devices}
        how = like.feeds.persistable, self._recorded
        return AlikeSteps(
            GangStep(like.key.number, like.key.rows, number, {}, shards, *how),
            [self._batches[n] or self._values(devices, self._fed[n]) for n in numbers],
            {d: rows_of([parts[d] for parts in fed], blocks) for d in devices if fed[0][d].held},
            [step.shards[0].entropy for step in steps],
        )

    def _values(
        self, devices: Sequence[int], fed: Sequence[Fed]
    ) -> Mapping[int, Mapping[str, Any]]:
        """What a member is told of the batch of a step."""
        if len(self._steps) == 1 and len(devices) == 1:
            return {device: fed[device].values for device in devices}
        return {device: self._once(fed[device].values) for device in devices}


def _kind(step: StepRequest, fed: Sequence[Fed]) -> Any:
    """What steps have in common that differ in their batches alone."""
    feeds = step.feeds
    held = [part.held.keys() for part in fed]
    return step.key, feeds.samples, feeds.rows, feeds.persistable, held


class StepForms:
    """Which forms of steps the members know, see :mod:`.repeated_steps`.

    Args:
        parts: the devices of each; none, if there are no lines to them.
    """

    def __init__(self, parts: Sequence[Sequence[int]] = ()) -> None:
        self._parts = parts
        self._known = Remembered[tuple[int, list[StepForm]]]()

    def told(
        self, step: StepRequest, base: int, number: int, batch: int, over: Sequence[int]
    ) -> list[list[Any]] | None:
        """What members are told of a step; None if they do not know its form.

        Args:
            step: that.
            base: number of the step before.
            number: of the step.
            batch: number of the batch that has come ahead; 0: none has.
            over: numbers of batches that no later step names.
        """
        binding, feeds = step.binding, step.feeds
        known = self._known.get(binding.opened or binding)
        if known is None or feeds.persistable:
            return None
        form, (called, members) = known
        if called != step.key.number:
            return None
        found, rows, told = [], step.key.rows, (form, base, number, batch, over)
        for devices, member in zip(self._parts, members, strict=True):
            shards = [*map(step.shards.__getitem__, devices)]
            one = member.tell(told, rows, shards, [*map(feeds.values.__getitem__, devices)])
            if one is None:
                return None
            found.append(one)
        return found

    def new(self, steps: Sequence[StepRequest], orders: Sequence[Sequence[AlikeSteps]]) -> int:
        """The number that the form of some steps gets; 0: it is not to be remembered.

        Args:
            steps: which.
            orders: what each member is told.
        """
        step = steps[0]
        if not self._parts or len(steps) > 1 or step.feeds.persistable:
            return 0
        values = dict(enumerate(step.feeds.values))
        try:
            members = [StepForm(alike.first, values) for (alike,) in orders]
        except TypeError:  # something else than arrays is fed
            return 0
        binding = step.binding
        return self._known.add(binding.opened or binding, (step.key.number, members))
