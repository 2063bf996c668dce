"""Operators of a task as machine code: which, in which memory, in which order.

A plan is bound once more when the shapes of a batch are known. In every task the operators that
have a lowering (:mod:`dpexec.kernels.lowering`) are put together to pieces of code; each piece is
one step, which runs without the GIL. What only code uses lies in one block of memory per device,
where values whose lives do not overlap share a place; what anything else reads lies by itself and
is put into the env. The rest runs as before.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from dpexec.core.dtypes import VarType, to_numpy
from dpexec.core.places import CUDAPlace
from dpexec.core.tensors import SelectedRows
from dpexec.ir import roles
from dpexec.ir.operator import Operator
from dpexec.ir.spec import Spec
from dpexec.kernels import lowering, machine
from dpexec.kernels.lowering import Buffer, Code, Constant, Sparse, Value, flat
from dpexec.runtime.binding import ALIGNMENT, Memory
from dpexec.runtime.bodies import BodyError
from dpexec.runtime.env import Env
from dpexec.runtime.plan import Plan
from dpexec.runtime.row_limits import row_limits
from dpexec.runtime.steps import Step, overwrites

__all__ = ["TaskCode", "bind_native"]


def bind_native(
    plan: Plan, specs: Sequence[Mapping[str, Spec]], memory: Memory, halves: bool = False
) -> list[list[Step]]:
    """The steps of a plan's tasks, with code for what can be code.

    Args:
        plan: the plan; on GPUs nothing becomes code.
        specs: of every value of a run, per device.
        memory: where values lie.
        halves: matrix products round their operands to bfloat16.
    """
    facts = _facts(plan)
    home, places = facts.homes, plan.graph.places
    limits = row_limits(plan.nodes, plan.missing, specs)
    specs = _reliable(plan, specs)
    codes: dict[int, TaskCode] = {}
    needed: dict[int, int] = {}
    for task, steps in zip(plan.tasks, plan.steps, strict=True):
        device = task.device
        if task.is_collective or device is None or isinstance(places[device], CUDAPlace):
            continue
        code = codes[task.id] = facts.kinds[task.id].code(
            task.id, steps, specs[device], limits[device], halves
        )
        needed[home[task.id]] = max(needed.get(home[task.id], 0), code.inner_bytes)
    return [
        codes[task.id].finish(
            memory.block(("inner", home[task.id]), needed[home[task.id]]),
            memory.block(("lasting", task.id), codes[task.id].lasting_bytes),
            steps,
        )
        if task.id in codes
        else steps
        for task, steps in zip(plan.tasks, plan.steps, strict=True)
    ]


def _reliable(plan: Plan, specs: Sequence[Mapping[str, Spec]]) -> list[Mapping[str, Spec]]:
    """The specs without what only a run tells: how many rows a sparse gradient has as an array."""
    unsure: list[set[str]] = [set() for _ in specs]
    for node in plan.nodes:
        begins = node.op is not None and node.op.type == "get_tensor_from_selected_rows"
        if begins or any(var.name in unsure[var.device] for var in node.inputs):
            for var in node.outputs:
                spec = specs[var.device].get(var.name)
                if spec is not None and spec.size != 1:
                    unsure[var.device].add(var.name)
    return [
        {name: spec for name, spec in found.items() if name not in names} if names else found
        for found, names in zip(specs, unsure, strict=True)
    ]


_CODES_KEPT = 8


@dataclass(eq=False)
class _Kind:
    """Tasks with the same operators, of several devices: with the same shapes they share code.

    Args:
        outside: names whose values are needed outside of the task.
        overwritten: names of persistable variables that are updated in place.
        names: of all variables.
        latest: codes, each with the shapes that it is for, and its task if it is for no other.
    """

    outside: frozenset[str]
    overwritten: frozenset[str]
    names: list[str]
    latest: list[tuple[list[Any], int | None, TaskCode]] = field(default_factory=list)

    def code(
        self,
        task: int,
        steps: Sequence[Step],
        specs: Mapping[str, Spec],
        limits: Mapping[str, int],
        halves: bool,
    ) -> TaskCode:
        """The code of a task for some shapes."""
        shapes: list[Any] = [specs.get(name) for name in self.names]
        shapes += [limits.get(name) for name in self.names]
        for before, owner, code in self.latest:
            if owner in (None, task) and before == shapes:
                return code
        made = TaskCode(specs, self.outside, self.overwritten, limits, halves)
        made.take(steps)
        made.layout()
        owner = None if made.shareable else task
        self.latest = [(shapes, owner, made), *self.latest[: _CODES_KEPT - 1]]
        return made


@dataclass(eq=False)
class _Facts:
    """What holds for a plan whatever the shapes are.

    Args:
        homes: by task: the first task of those that may use one memory, as they run in turn.
        kinds: by task.
    """

    homes: dict[int, int]
    kinds: dict[int, _Kind]


_known: weakref.WeakKeyDictionary[Plan, _Facts] = weakref.WeakKeyDictionary()


def _facts(plan: Plan) -> _Facts:
    if plan not in _known:
        _known[plan] = _Facts(_homes(plan), _kinds(plan))
    return _known[plan]


def _kinds(plan: Plan) -> dict[int, _Kind]:
    outside = _read_elsewhere(plan)
    made: dict[Any, _Kind] = {}
    found: dict[int, _Kind] = {}
    for task, steps in zip(plan.tasks, plan.steps, strict=True):
        overwritten = frozenset(name for place, name in plan.overwritten if place == task.device)
        names = dict.fromkeys(v.name for n in task.nodes for v in (*n.inputs, *n.outputs))
        parts = tuple((id(step.node.op), step.node.kind, step.drops) for step in steps)
        here = frozenset(outside[task.id]), overwritten.intersection(names)
        found[task.id] = made.setdefault((parts, *here), _Kind(*here, list(names)))
    return found


def _homes(plan: Plan) -> dict[int, int]:
    homes: dict[int, int] = {}
    last: dict[int | None, int] = {}
    for task in plan.tasks:
        before = last.get(task.device, task.id)
        homes[task.id] = homes[before] if before in task.after else task.id
        last[task.device] = task.id
    return homes


def _read_elsewhere(plan: Plan) -> dict[int, set[str]]:
    readers: dict[tuple[int, str], set[int]] = {}
    for task in plan.tasks:
        for node in task.nodes:
            for var in node.inputs:
                readers.setdefault((var.device, var.name), set()).add(task.id)
    kept = {(device, name) for device in plan.active for name in plan.fetch}
    kept.update(plan.commits)
    found: dict[int, set[str]] = {}
    for task in plan.tasks:
        places = {(var.device, var.name) for node in task.nodes for var in node.outputs}
        found[task.id] = {
            place[1] for place in places if place in kept or readers.get(place, set()) - {task.id}
        }
    return found


@dataclass(eq=False)
class _Piece:
    """Operators that run in one call.

    Args:
        first: number of the first call in the task's code.
        steps: what each was, with the number behind its last call.
        made: the values that it computes, by name.
        brought: the values that come from outside, by name.
        writes: names of what it computes or updates in place.
        drops: names whose values nobody needs afterwards.
    """

    first: int
    steps: list[tuple[Step, int]] = field(default_factory=list)
    made: dict[str, Value | Sparse] = field(default_factory=dict)
    brought: dict[str, Value | Sparse] = field(default_factory=dict)
    writes: set[str] = field(default_factory=set)
    drops: list[str] = field(default_factory=list)


class TaskCode:
    """The steps of one task while they become pieces of code.

    Args:
        specs: of the device's values.
        outside: names whose values are needed outside of the task.
        overwritten: names of persistable variables that are updated in place.
        limits: how many rows sparse values have at most.
    """

    def __init__(
        self,
        specs: Mapping[str, Spec],
        outside: Collection[str],
        overwritten: Collection[str],
        limits: Mapping[str, int],
        halves: bool = False,
    ) -> None:
        self.specs = specs
        self.outside = outside
        self.overwritten = overwritten
        self.limits = limits
        self.code = Code(halves=halves)
        self.steps: list[Step] = []
        self.values: dict[str, Value | Sparse] = {}  # computed by code, by their present name
        self.order: list[Step | _Piece] = []
        self.open: _Piece | None = None
        self.holders: dict[Buffer, list[str]] = {}  # names of the values that lie in a buffer
        self.last_read: dict[str, int] = {}
        self.inner_bytes = self.lasting_bytes = 0
        self._finished: dict[int, tuple[_Place, list[Step]]] = {}  # by the steps that it is for

    @property
    def shareable(self) -> bool:
        """Whether several tasks may run it at once: no call has a state of its own."""
        stateless = (int, float, Value, Constant)
        return all(
            isinstance(argument, stateless) or callable(argument)
            for _, arguments in self.code.calls
            for argument in arguments
        )

    # ---- what becomes code

    def take(self, steps: Sequence[Step]) -> None:
        """Take the steps of the task."""
        self.steps = list(steps)
        for number, step in enumerate(steps):
            self.last_read.update((var.name, number) for var in step.node.inputs)
        for number, step in enumerate(steps):
            if step.node.op is None or not self._lower(step, step.node.op, number):
                self._keep(step)

    def _keep(self, step: Step) -> None:
        """Leave a step as it is: before the open piece of code if it does not depend on it."""
        reads = {var.name for var in step.node.inputs if var.kind == "var"}
        writes = {var.name for var in step.node.outputs if var.kind == "var"}
        for name in reads & self.values.keys():
            self._keep_buffer(self.values[name])
        piece = self.open
        independent = (
            piece is not None
            and not reads & piece.writes
            and not writes & (piece.writes | piece.brought.keys())
        )
        if piece is not None and independent:
            piece.drops.extend(step.drops)
            self.order.insert(-1, Step(step.node, step.call))
        else:
            self.open = None
            self.order.append(step)
        for name in writes:
            self.values.pop(name, None)

    @staticmethod
    def _keep_buffer(value: Value | Sparse) -> None:
        for part in value.parts:
            if part.buffer is not None:
                part.buffer.lasting = True

    def _lower(self, step: Step, op: Operator, number: int) -> bool:
        kind = step.node.kind
        sparse = not self.limits.keys().isdisjoint((*op.input_arg_names, *op.output_arg_names))
        lower = lowering.find(op.type if kind == "compute" else kind, sparse)
        if lower is None:
            return False
        brought = dict(self.open.brought) if self.open else {}
        inputs = self._inputs(op, brought) if kind == "compute" else []
        if inputs is None:
            return False
        outputs = self._outputs(op, brought)
        if outputs is None:
            return False
        first = len(self.code.calls)
        self.code.dying = {
            value.buffer
            for value in flat(inputs)
            if value.buffer is not None and self._dies(value.buffer, number)
        }
        attrs = {name: op.attrs.get(name, op.definition.attrs.get(name)) for name in lower.attrs}
        if lower(self.code, inputs, outputs, attrs) is False:
            assert len(self.code.calls) == first, f"the lowering of {op.type} declined too late"
            return False
        self._took(step, first, brought, flat(outputs))
        return True

    def _dies(self, buffer: Buffer, number: int) -> bool:
        """Whether nobody reads what lies in a buffer after a step of the task."""
        return not buffer.lasting and not any(
            name in self.outside or self.last_read.get(name, -1) > number
            for name in self.holders[buffer]
        )

    def _took(
        self,
        step: Step,
        first: int,
        brought: dict[str, Value | Sparse],
        outputs: Iterable[Value | Sparse],
    ) -> None:
        if self.open is None:
            self.open = _Piece(first)
            self.order.append(self.open)
        piece = self.open
        piece.brought = brought
        piece.steps.append((step, len(self.code.calls)))
        piece.drops.extend(step.drops)
        for value in outputs:
            piece.writes.add(value.name)
            if value.buffer is None:  # updated in place, where it is
                for part in value.parts:
                    self.code.changed(part)
                continue
            self.values[value.name] = piece.made[value.name] = value
            for part in value.parts:
                if part.buffer is not None:
                    self.holders.setdefault(part.buffer, []).append(value.name)
            if value.name in self.outside:
                self._keep_buffer(value)

    def _inputs(self, op: Operator, brought: dict[str, Value | Sparse]) -> list[Any] | None:
        arguments: list[Any] = []
        for slot in op.definition.inputs:
            names = [n for n in op.inputs.get(slot.name, []) if n and n != roles.EMPTY]
            found = [self._value(name, brought) for name in names]
            if any(value is None for value in found):
                return None
            arguments.append(found if slot.many else found[0] if found else None)
        return arguments

    def _value(self, name: str, brought: dict[str, Value | Sparse]) -> Value | Sparse | None:
        if name in self.values:
            return self.values[name]
        if name not in brought:
            value = self._new(name, own=False)
            if value is None:
                return None
            brought[name] = value
        return brought[name]

    def _new(self, name: str, own: bool) -> Value | Sparse | None:
        """A value like a variable, with memory of its own; None if code cannot work on it."""
        spec = self.specs.get(name)
        if spec is None or spec.size < 0:
            return None
        dtype = np.dtype(to_numpy(spec.dtype))
        if spec.kind == VarType.SELECTED_ROWS and name in self.limits:
            return Sparse.like(spec.shape, dtype, self.limits[name], name, own)
        if spec.kind != VarType.LOD_TENSOR:
            return None
        value = Value(spec.shape, dtype, None, name)
        if own:
            value.buffer = Buffer(value.nbytes)
        return value

    def _outputs(self, op: Operator, brought: dict[str, Value | Sparse]) -> list[Any] | None:
        in_place = overwrites(op)
        if len(in_place) < len(op.definition.inplace):
            return None
        made: list[Any] = []
        for slot in op.definition.outputs:
            values: list[Value | Sparse | None] = []
            for name in op.outputs.get(slot.name, []):
                if not name or name == roles.EMPTY:
                    values.append(None)
                    continue
                if slot.name in in_place:
                    found = brought.get(name) if name in self.overwritten else None
                else:
                    found = self._new(name, own=True)
                if found is None:
                    return None
                values.append(found)
            made.append(values if slot.many else values[0] if values else None)
        return made

    # ---- where it lies

    def layout(self) -> int:
        """Give every buffer its place; returns the bytes that those need that only code uses.

        Buffers go by size, the largest first, to the lowest place that is free for their life.
        """
        buffers = dict.fromkeys(
            argument.buffer
            for _, arguments in self.code.calls
            for argument in arguments
            if isinstance(argument, Value) and argument.buffer is not None
        )
        self.places: dict[Buffer, int] = {}
        self.lasting: dict[Buffer, int] = {}
        self.lasting_bytes = 0
        for value in self._made():
            if value.buffer and value.buffer.lasting and value.buffer not in self.lasting:
                self.lasting[value.buffer] = self.lasting_bytes
                self.lasting_bytes += -(-value.buffer.nbytes // ALIGNMENT) * ALIGNMENT
        inner = sorted((b for b in buffers if not b.lasting), key=lambda b: (-b.nbytes, b.first))
        for buffer in inner:
            rivals = sorted(
                (place, place + other.nbytes)
                for other, place in self.places.items()
                if other.first <= buffer.last and buffer.first <= other.last
            )
            place = 0
            for start, end in rivals:
                if place + buffer.nbytes <= start:
                    break
                place = max(place, -(-end // ALIGNMENT) * ALIGNMENT)
            self.places[buffer] = place
        self.inner_bytes = max((p + b.nbytes for b, p in self.places.items()), default=0)
        return self.inner_bytes

    def _made(self) -> Iterable[Value]:
        pieces = (item for item in self.order if isinstance(item, _Piece))
        return (part for piece in pieces for value in piece.made.values() for part in value.parts)

    # ---- steps

    def finish(
        self,
        inner: np.ndarray[Any, Any],
        lasting: np.ndarray[Any, Any],
        steps: Sequence[Step],
    ) -> list[Step]:
        """The steps of a task, when there is memory for inner and for lasting values.

        Args:
            inner: memory for what only code uses.
            lasting: memory for what is needed outside of the task.
            steps: of the task, which is this one or one of another device.
        """
        place, made = self._finished.get(id(steps), (None, []))
        if place is None or place.inner is not inner or place.lasting is not lasting:
            place = _Place(self, inner, lasting)
            pairs = zip(self.steps, steps, strict=True)
            own = {id(mine.node): theirs for mine, theirs in pairs}
            made = [
                Step(own[id(item.node)].node, own[id(item.node)].call, item.drops)
                if isinstance(item, Step)
                else _CodeRun(place, item, own).step(tuple(item.drops))
                for item in self.order
            ]
            self._finished[id(steps)] = place, made
        return made


class _Place:
    """The memory of a task's code.

    Args:
        code: the code.
        inner: memory for what only code uses.
        lasting: memory for what is needed outside of the task.
    """

    def __init__(
        self, code: TaskCode, inner: np.ndarray[Any, Any], lasting: np.ndarray[Any, Any]
    ) -> None:
        self.code = code
        self.inner, self.lasting = inner, lasting
        self._starts = inner.ctypes.data, lasting.ctypes.data

    def arrays(self, value: Value | Sparse) -> list[np.ndarray[Any, Any]]:
        """The memory of all parts of a value that code computes."""
        return [self._array(part) for part in value.parts]

    def _array(self, value: Value) -> np.ndarray[Any, Any]:
        assert value.buffer is not None
        if value.buffer in self.code.lasting:
            start, memory = self.code.lasting[value.buffer], self.lasting
        elif value.buffer in self.code.places:
            start, memory = self.code.places[value.buffer], self.inner
        else:  # of size 0, or no kernel needs it
            return np.empty(value.shape, value.dtype)
        flat_array = memory[start : start + value.nbytes].view(value.dtype)
        if not value.channels_last:
            return flat_array.reshape(value.shape)
        batch, channels, *size = value.shape
        return np.moveaxis(flat_array.reshape(batch, *size, channels), -1, 1)

    def address(self, value: Value) -> int:
        """Where a value lies that code computes."""
        assert value.buffer is not None
        inner, lasting = self._starts
        if value.buffer in self.code.lasting:
            return lasting + self.code.lasting[value.buffer]
        return inner + self.code.places.get(value.buffer, 0)  # of size 0: anywhere


class _Brought:
    """An array that comes from the env, and where its address goes."""

    __slots__ = ("copy", "name", "positions", "seen", "value")

    def __init__(self, value: Value) -> None:
        self.name = value.name
        self.value = value
        self.positions: list[int] = []
        self.seen: Any = _nothing  # a weak reference: code keeps no values between runs
        self.copy: Any = None

    def update(self, words: np.ndarray[Any, Any], found: Any) -> None:
        """Take a new value; code needs its elements in order, one after another."""
        array = _part(found, self.value) if self.value.part else found
        used = np.ascontiguousarray(array, self.value.dtype)
        self.copy = None if used is found else used
        self.seen = weakref.ref(found) if used is found else _nothing
        words[self.positions] = used.__array_interface__["data"][0]


def _nothing() -> None:
    """What a weak reference gives when its object is gone."""


class _CodeRun:
    """A piece of code with its arguments: what its step calls.

    Args:
        place: where values lie.
        piece: the operators.
        own: the steps of the task, by the identities of the nodes that the code was made from.
    """

    def __init__(self, place: _Place, piece: _Piece, own: Mapping[int, Step]) -> None:
        self._steps = [(own[id(step.node)], end) for step, end in piece.steps]
        self._first = piece.first
        calls = place.code.code.calls[piece.first : piece.steps[-1][1]]
        brought: dict[Value, _Brought] = {}
        words: list[Any] = []
        starts: list[int] = []
        for _, arguments in calls:
            starts.append(len(words))
            for argument in arguments:
                if type(argument) is int:
                    words.append(argument)
                elif isinstance(argument, Value) and argument.buffer is None:
                    source = brought.setdefault(argument, _Brought(argument))
                    source.positions.append(len(words))
                    words.append(0)
                else:
                    words.append(_word(place, argument))
        self._numbers = [(at, word) for at, word in enumerate(words) if callable(word)]
        self._words = np.array([0 if callable(word) else word for word in words], np.int64)
        self._kept = [place.inner, place.lasting, *calls]  # the words are addresses
        base = self._words.ctypes.data
        table = [
            [kernel.address, base + 8 * at] for (kernel, _), at in zip(calls, starts, strict=True)
        ]
        self._table = np.array(table, np.int64).reshape(-1, 2)
        self._brought = list(brought.values())
        self._made = piece.made
        self._place = place
        published = [
            (name, value, place.arrays(value))
            for name, value in piece.made.items()
            if (value.buffer and value.buffer.lasting) or not value.size
        ]
        self._dense = [(name, a[0]) for name, v, a in published if isinstance(v, Value)]
        self._sparse = [(name, v, a) for name, v, a in published if isinstance(v, Sparse)]

    def step(self, drops: tuple[str, ...]) -> Step:
        """The step that runs it, and one for every operator, for who wants to see them."""
        (first, _), (_, end) = self._steps[0], self._steps[-1]
        run = partial(self._run, first=0, end=end - self._first)
        return Step(first.node, run, drops, _Parts(self))

    def part(self, index: int) -> Step:
        """The step of one operator."""
        step, end = self._steps[index]
        first = self._steps[index - 1][1] if index else self._first
        run = partial(self._run, first=first - self._first, end=end - self._first)
        return Step(step.node, run)

    def __len__(self) -> int:
        return len(self._steps)

    def _run(self, env: Env, first: int, end: int) -> None:
        if not first:
            for source in self._brought:
                array = env[source.name]
                if array is not source.seen():
                    source.update(self._words, array)
            for at, number in self._numbers:
                self._words[at] = _bits(number(env.shard))
        row = machine.run(self._table, first, end)
        if row != end:
            self._refused(row, env)
        if end == len(self._table):
            for name, array in self._dense:
                env[name] = np.asarray(array, order="C")
            for name, value, arrays in self._sparse:
                env[name] = _result(value, arrays)

    def _refused(self, row: int, env: Env) -> None:
        """Let the operator that refused its values say why, on NumPy."""
        step = next(step for step, end in self._steps if end - self._first > row)
        inner = Env(env.shard, around=env)
        inner.update(
            {name: _result(value, self._place.arrays(value)) for name, value in self._made.items()}
        )
        assert step.node.op is not None
        try:
            step.call(inner)  # type: ignore[arg-type]
        except Exception as error:
            raise BodyError(step.node.op, inner, error) from error
        raise RuntimeError(f"the kernel of {step.node.name} refused values that the operator takes")


class _Parts(Sequence[Step]):
    """The steps of a piece of code, made when somebody asks for them."""

    def __init__(self, code: _CodeRun) -> None:
        self._code = code

    def __len__(self) -> int:
        return len(self._code)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._code.part(i) for i in range(len(self))[index]]
        return self._code.part(range(len(self))[index])


def _part(found: SelectedRows, value: Value) -> Any:
    """One of the arrays that stand for a sparse value."""
    if value.part == "count":
        return np.array([len(found.row_array)])
    array = found.row_array if value.part == "rows" else found.value
    if len(array) > value.shape[0]:
        raise RuntimeError(f"{value.name} has {len(array)} rows, but room for {value.shape[0]}")
    return array


def _result(value: Value | Sparse, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    """What the env gets for a value that code computed."""
    if isinstance(value, Value):
        return arrays[0]
    rows, array, count = arrays
    return SelectedRows(rows[: count[0]], value.height, array[: count[0]])


def _word(place: _Place, argument: Any) -> Any:
    """An argument as a word; functions that give it when a run begins stay functions."""
    if isinstance(argument, Value):
        return place.address(argument)
    return argument if callable(argument) else _bits(argument)


def _bits(number: Any) -> int:
    return int(np.float64(number).view(np.int64)) if isinstance(number, float) else int(number)
