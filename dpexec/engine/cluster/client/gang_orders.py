"""Orders to the members of a gang: the common parts of steps are sent once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.cluster.client.step_outcome import StepRequest
from dpexec.engine.cluster.gang_messages import AlikeSteps
from dpexec.engine.cluster.messages import GangStep
from dpexec.engine.cluster.repeated_steps import Remembered, StepForm
from dpexec.engine.core.lod import Lod
from dpexec.engine.dask.deliveries import Fed, rows_of

__all__ = ["GangOrders", "KnownForm", "Once", "StepForms"]


class Once:
    """Replaces views of the same memory by one object, which pickle then sends once.

    Without a reader, all steps of a run are fed the same arrays.
    """

    def __init__(self) -> None:
        self._known: dict[Any, np.ndarray[Any, Any]] = {}

    def __call__(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values, with one object for each memory."""
        return {name: self._known.setdefault(_where(a), a) for name, a in values.items()}


def _where(array: Any) -> Any:
    """A key of the memory of an array."""
    if isinstance(array, Lod):
        return id(array)
    return array.__array_interface__["data"], array.shape, array.strides, array.dtype


class GangOrders:
    """The members' orders for some steps.

    Args:
        steps: the steps.
        fed: for each step, the feed of each device.
        batches: for each step, the number of the batch that was sent before; 0: none was.
        first: number of the first step.
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
        """Groups of consecutive steps that differ only in their batches, as positions."""
        kinds = list(map(_kind, self._steps, self._fed))
        alike = itertools.groupby(range(len(kinds)), kinds.__getitem__)
        return [list(found) for _, found in alike]

    def of(self, devices: Sequence[int], blocks: dict[Any, Any]) -> list[AlikeSteps]:
        """The part of a member.

        Args:
            devices: the devices of the member.
            blocks: gets the futures of blocks that its order needs on its worker, by key.
        """
        return [self._part(devices, numbers, blocks) for numbers in self._alike]

    def _part(
        self, devices: Sequence[int], numbers: Sequence[int], blocks: dict[Any, Any]
    ) -> AlikeSteps:
        """A member's part of steps that differ only in their batches."""
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
        """The values of a step's batch that a member is sent."""
        if len(self._steps) == 1 and len(devices) == 1:
            return {device: fed[device].values for device in devices}
        return {device: self._once(fed[device].values) for device in devices}


def _kind(step: StepRequest, fed: Sequence[Fed]) -> Any:
    """A key that is equal for steps that differ only in their batches."""
    feeds = step.feeds
    held = [part.held.keys() for part in fed]
    return step.key, feeds.samples, feeds.rows, feeds.persistable, held


class KnownForm:
    """A form that members know, for steps of certain sizes.

    Args:
        key: of the form among those that members know.
        members: the form of each member's part.
        tells: for each member, what makes orders, see :meth:`StepForm.telling`, and its devices.
    """

    def __init__(
        self,
        key: Any,
        members: Sequence[StepForm],
        tells: Sequence[tuple[Callable[..., list[Any]], Sequence[int]]],
    ) -> None:
        self.key, self.members, self._tells = key, members, tells

    def again(
        self,
        base: int,
        number: int,
        run: int,
        entropy: int,
        values: Sequence[Mapping[str, Any]],
    ) -> list[list[Any]]:
        """The members' orders for a step of the same sizes.

        Args:
            base: number of the step before.
            number: of the step.
            run: number of the program's run.
            entropy: see :class:`Shard`.
            values: what each device is fed.
        """
        found = []
        for tell, devices in self._tells:  # no comprehensions, as most steps come through here
            own = [*map(values.__getitem__, devices)]
            found.append(tell(base, number, run, entropy, own))
        return found


class StepForms:
    """The forms of steps that the members know, see :mod:`.repeated_steps`.

    Args:
        parts: the devices of each member; empty if there are no lines to them.
    """

    def __init__(self, parts: Sequence[Sequence[int]] = ()) -> None:
        self._parts = parts
        self._known = Remembered[tuple[int, list[StepForm]]]()

    def told(
        self, step: StepRequest, base: int, number: int, batch: int, over: Sequence[int]
    ) -> list[list[Any]] | None:
        """The members' orders for a step; None if they do not know its form.

        Args:
            step: the step.
            base: number of the step before.
            number: of the step.
            batch: number of the batch that was sent before; 0: none was.
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

    def of(self, step: StepRequest) -> KnownForm | None:
        """The form of a step, for others of its sizes; None if members know none.

        Args:
            step: the step; it was told.
        """
        home = step.binding.opened or step.binding
        known = self._known.get(home)
        if known is None or known[1][0] != step.key.number:
            return None
        form, (_, members) = known
        tells = []
        for member, devices in zip(members, self._parts, strict=True):
            shards = [*map(step.shards.__getitem__, devices)]
            values = [*map(step.feeds.values.__getitem__, devices)]
            tell = member.telling(form, step.key.rows, shards, values)
            if tell is None:
                return None
            tells.append((tell, devices))
        return KnownForm(home, members, tells)

    def knows(self, form: KnownForm) -> bool:
        """Whether members still know a form."""
        known = self._known.get(form.key)
        return known is not None and known[1][1] is form.members

    def new(self, steps: Sequence[StepRequest], orders: Sequence[Sequence[AlikeSteps]]) -> int:
        """Remember the form of a single step; returns its number, or 0 if it has no form.

        Args:
            steps: the steps of the orders.
            orders: the order of each member.
        """
        step = steps[0]
        if not self._parts or len(steps) > 1 or step.feeds.persistable:
            return 0
        values = dict(enumerate(step.feeds.values))
        try:
            members = [StepForm(alike.first, values) for (alike,) in orders]
        except TypeError:  # a feed is no array
            return 0
        binding = step.binding
        return self._known.add(binding.opened or binding, (step.key.number, members))
