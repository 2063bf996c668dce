"""Operators of a block that only pass arrays on: code may wait while they run.

Of some inputs, such as the number of an entry, every operator wants to know the numbers. Where
these come from code, what waits is run first (:mod:`dpexec.engine.compile.regions.deferred`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dpexec.engine.compile.regions.bodies import Plain, Runnable
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.arrays import TensorArray
from dpexec.engine.core.lod import NO_SEQUENCES
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator

__all__ = ["passing"]


class _Wait:
    """Runs what waits."""

    def run(self, env: Env) -> None:
        """See :class:`Runnable`."""
        env.deferred.finish()


class _Passing:
    """An operator that passes arrays on; in the usual case without the ado of a kernel's call.

    Args:
        plain: the operator.
    """

    def __init__(self, plain: Plain) -> None:
        op = plain.op
        self._plain, self._drops = plain, plain.drops
        self._x, self._out = _name(op.inputs, "X"), _name(op.outputs, "Out")
        self._x_lod, self._out_lod = _name(op.inputs, "X@LOD"), _name(op.outputs, "Out@LOD")
        self._index = _name(op.inputs, "I")

    def run(self, env: Env) -> None:
        """See :class:`Runnable`."""
        try:
            passed = env.record is None and self._passes(env)
        except (KeyError, AttributeError):  # no value, or another one: the kernel's call says so
            passed = False
        if not passed:
            self._plain.run(env)
            return
        for name in self._drops:
            env.pop(name, None)

    def _passes(self, env: Env) -> bool:
        """Do it, if it is a usual case; whether it was."""
        raise NotImplementedError


class _Read(_Passing):
    """``read_from_array`` of an entry that is there."""

    def _passes(self, env: Env) -> bool:
        entry = env[self._x].entry(env[self._index].item())
        if entry is None:
            return False
        env[self._out] = entry[0]
        if self._out_lod:
            env[self._out_lod] = entry[1]
        return True


class _Write(_Passing):
    """``write_to_array``; adding to an entry looks at numbers."""

    def __init__(self, plain: Plain) -> None:
        super().__init__(plain)
        self._adds = bool(plain.op.role & roles.BACKWARD)
        self._own = self._out in plain.op.block.vars  # not one of that name around

    def _passes(self, env: Env) -> bool:
        array = env.get(self._out) if self._own else env.find(self._out)
        number = env[self._index].item()
        if number < 0:
            return False
        array = TensorArray() if array is None else array
        if self._adds and array.entry(number) is not None:
            env.deferred.finish()
            return False
        lod = env[self._x_lod] if self._x_lod else None
        env[self._out] = array.written(number, env[self._x], lod)
        return True


class _Shrink(_Passing):
    """``shrink_rnn_memory`` without sequences."""

    def __init__(self, plain: Plain) -> None:
        super().__init__(plain)
        self._table = plain.op.inputs["RankTable"][0]

    def _passes(self, env: Env) -> bool:
        if self._x_lod and env[self._x_lod]:
            return False
        running = env[self._table].longer_than(env[self._index].item())
        env[self._out] = env[self._x][:running]
        if self._out_lod:
            env[self._out_lod] = NO_SEQUENCES
        return True


class _Same(_Passing):
    """``rnn_memory_helper``, and its gradient if it has one."""

    def __init__(self, plain: Plain) -> None:
        super().__init__(plain)
        if plain.op.type == "rnn_memory_helper_grad":
            self._x = _name(plain.op.inputs, "Out@GRAD")
            self._out = _name(plain.op.outputs, "X@GRAD")

    def _passes(self, env: Env) -> bool:
        env[self._out] = env[self._x]
        return True


class _Increment(_Passing):
    """``increment``: what comes out is known."""

    def __init__(self, plain: Plain) -> None:
        super().__init__(plain)
        self._step = plain.op.attrs.get("step", 1.0)

    def _passes(self, env: Env) -> bool:
        counter = env[self._x]
        env[self._out] = counter + counter.dtype.type(self._step)
        return True


class _LessThan(_Passing):
    """``less_than`` of single numbers: what comes out is known."""

    def __init__(self, plain: Plain) -> None:
        super().__init__(plain)
        self._y = plain.op.inputs["Y"][0]

    def _passes(self, env: Env) -> bool:
        x, y = env[self._x], env[self._y]
        if x.shape != (1,) or y.shape != (1,):
            return False
        env[self._out] = x < y
        return True


_PASSING: dict[str, tuple[type[_Passing], Sequence[str], str]] = {
    "increment": (_Increment, ["X"], ""),
    "less_than": (_LessThan, ["X", "Y"], ""),
    "read_from_array": (_Read, ["I"], "Out"),
    "rnn_memory_helper": (_Same, [], "Out"),
    "rnn_memory_helper_grad": (_Same, [], "X@GRAD"),
    "shrink_rnn_memory": (_Shrink, ["I", "RankTable"], "Out"),
    "write_to_array": (_Write, ["I"], "Out"),
}
"""By type: how it is run, input slots whose numbers it looks at, and where arrays come out that
nobody has looked at."""


def passing(
    parts: Sequence[Runnable], late: Collection[str], shown: Collection[str]
) -> list[Runnable]:
    """Let code wait as long as nobody looks at the numbers that it makes.

    Args:
        parts: of a block, in order.
        late: names of what code makes.
        shown: names of what is looked at after every round.

    Returns:
        The parts, with waits before operators that look at numbers, or behind all of them.
    """
    if not late:
        return list(parts)
    operators = [part.op for part in parts if isinstance(part, Plain)]
    slots = ((op, _PASSING[op.type][2]) for op in operators if op.type in _PASSING)
    passed = (op.outputs[slot] for op, slot in slots if slot)
    unknown = {*late, *(name for names in passed for name in names)}
    made: list[Runnable] = []
    for part in parts:
        if isinstance(part, Plain):
            if _looks(part.op, unknown):
                made.append(_Wait())
            elif part.op.type in _PASSING:
                part = _PASSING[part.op.type][0](part)
        made.append(part)
    return made if unknown.isdisjoint(shown) else [*made, _Wait()]


def _looks(op: Operator, unknown: Collection[str]) -> bool:
    """Whether an operator looks at numbers of such values."""
    if op.bodies:  # their operators find what is around them by name
        return True
    if op.type not in _PASSING:
        return any(name in unknown for name in (*op.reads, *op.writes))
    slots = _PASSING[op.type][1]
    return any(name in unknown for slot in slots for name in op.inputs[slot])


def _name(slots: Mapping[str, Sequence[str]], slot: str) -> str:
    names = slots.get(slot, ())
    return names[0] if names else ""
