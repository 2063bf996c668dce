"""Operators without a lowering as rows of code: the row calls their kernel in Python.

So a net with a few such operators is still a whole step of code. The row takes the GIL, hands the
memory of the operator's inputs to its kernel as arrays, and copies the results to where code reads
them. Operators whose results only a run tells the shape of, that run loops, or that act on anything
but their results, are no rows: they stay steps of Python between pieces of code. So do operators
with large results, for which the copy costs more than it saves.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.regions.env import Env, Shard
from dpexec.engine.compile.regions.operands import AnyValue, Brought, Operands, plain, result_of
from dpexec.engine.compile.regions.step import Call, CollectiveCall, Step
from dpexec.engine.core.lod import Lod
from dpexec.engine.graph.ssa import OpNode, VarNode
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.sizes import at_most
from dpexec.engine.kernels.in_python import in_python
from dpexec.engine.kernels.lowering import Code, Value

__all__ = ["KernelCall", "PythonRow", "emit_row", "values_of"]

_C_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
_OF_STEP = frozenset(["before", "body", "calls", "rings", "share"])
"""Arguments of kernels that are more than inputs, attributes and random numbers."""
_LARGEST = 2**20
"""The most bytes of results: a copy of as many takes 0.1 ms, and as much is what a row saves."""
_ANY = Shard()
_VIEWS = 16
"""How many places of an array are remembered: more come only with new sizes."""


def _may_be_row(node: OpNode) -> bool:
    """Whether the work of a node depends on inputs, attributes and random numbers alone.

    A branch may be a row if gradients need nothing of it, and all that it writes has a value
    already, which it keeps if its condition does not hold.

    Args:
        node: the node.
    """
    op = node.op
    if op is None or not node.does.computes:
        return False
    if not op.definition.branches:
        return _is_function(op)
    inner = [each for each in op.with_inner() if each is not op]
    if any(not _is_function(each) or each.definition.is_random for each in inner):
        return False
    scopes, stored = op.outputs.get("Scope", ()), op.block.program.global_block().vars
    before = {var.name: var for var in node.inputs}
    return all(
        not var.readers
        if var.name in scopes
        else _has_value(before[var.name]) or (var.name in stored and stored[var.name].persistable)
        for var in node.outputs
        if var.kind == "var"
    )


def _has_value(var: VarNode) -> bool:
    """Whether a variable has a value, whatever conditions hold."""
    writer = var.writer
    if writer is None:
        return False
    op = writer.op
    if op is None or not (op.bodies or op.definition.leaves_out):
        return True
    return _may_be_row(writer)


def values_of(
    node: OpNode, operands: Operands, brought: Brought
) -> tuple[dict[str, AnyValue], dict[str, Value]] | None:
    """The values that a node reads and computes, by name.

    Args:
        node: of an operator without a lowering, or with one that declines.
        operands: the values of its task.
        brought: values that come from outside; gets those that the operator reads.

    Returns:
        None if it cannot be a row, or if code cannot work on one of the values.
    """
    op = node.op
    if op is None or not _may_be_row(node):
        return None
    if not op.definition.branches:
        return operands.of_python(op, brought)
    scopes = op.outputs.get("Scope", ())
    reads, writes = (
        [var.name for var in vars if var.kind == "var" and var.name not in scopes]
        for vars in (node.inputs, node.outputs)
    )
    return operands.of_names(reads, writes, brought)


def _is_function(op: Operator) -> bool:
    known = op.definition
    return not (
        known.acts
        or known.by_executor
        or known.ends_loops
        or known.grows
        or known.lazy
        or known.leaves_out
        or known.own_state
        or known.rows_by_run
        or known.shapes_by_run
        or op.bodies
        or _OF_STEP & known.kernel_arguments
    )


def emit_row(
    code: Code, step: Step, inputs: Mapping[str, AnyValue], results: Mapping[str, Value]
) -> bool:
    """Emit the call of a step's kernel; False, before anything is emitted, for large results.

    Args:
        code: takes the call.
        step: of a node that :func:`values_of` has values for.
        inputs: the values that it reads, by name.
        results: the values that it computes, by name.
    """
    if sum(at_most(result.nbytes) for result in results.values()) > _LARGEST:
        return False
    op = step.node.op
    random = op is not None and op.definition.is_random
    row = PythonRow(KernelCall(step.call, inputs, results, random))
    code.emit(in_python, row, *row.arguments)
    return True


class PythonRow:
    """The call of an operator's kernel from a row of code.

    ``int()`` of it is the address of a C function, which is valid while the object is alive. That
    function gets the address of words: a number that stands for the device's part of the run, then
    address and shape of each array of the inputs, and of the results.

    Args:
        work: what the function does.
    """

    def __init__(self, work: KernelCall) -> None:
        self._work = work
        # a partial of another object: a method would make a circle, which only Python's search
        # for circles frees
        self._function = _C_FUNCTION(functools.partial(_run, work))
        self._address = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def __int__(self) -> int:
        return self._address

    @property
    def arguments(self) -> list[Any]:
        """What follows the function in the row, as arguments of a kernel."""
        values = [*self._work.inputs.values(), *self._work.results.values()]
        parts = (part for value in values for part in value.parts)
        return [self._work.shard, *(word for part in parts for word in (part, *part.shape))]

    def raise_error(self, words: int) -> None:
        """Raise what the kernel raised in the row with these words, if it did.

        Args:
            words: their address.
        """
        error = self._work.errors.pop(words, None)
        if error is not None:
            raise error


class KernelCall:
    """The call of an operator's kernel on the memory of its values.

    Args:
        call: the bound operator.
        inputs: the values that it reads, by name.
        results: the values that it computes, by name.
        random: whether its kernel draws random numbers.

    Attributes:
        inputs, results: as given.
        errors: why rows ended the code, by the address of their words: devices share code.
    """

    def __init__(
        self,
        call: Call | CollectiveCall,
        inputs: Mapping[str, AnyValue],
        results: Mapping[str, Value],
        random: bool,
    ) -> None:
        self.inputs, self.results = inputs, results
        self.errors: dict[int, BaseException] = {}
        self._call, self._random = call, random
        self._shards: dict[int, Shard] = {}
        parts = [part for value in (*inputs.values(), *results.values()) for part in value.parts]
        self._parts = [(part.dtype, len(part.shape)) for part in parts]
        self._views: list[dict[tuple[int, ...], Any]] = [{} for _ in parts]
        count = 1 + sum(1 + rank for _, rank in self._parts)
        self._words = ctypes.c_int64 * count

    @property
    def shard(self) -> Any:
        """The word that stands for the device's part of the run; 0 where the kernel needs none."""
        return self.note if self._random else 0

    def note(self, shard: Shard) -> int:
        """Keep a device's part of a run for the call; the number of its first sample names it."""
        self._shards[shard.first_sample] = shard
        return shard.first_sample

    def run(self, address: int) -> None:
        """Call the kernel.

        Args:
            address: of the words.
        """
        words = self._words.from_address(address)[:]
        env = Env(self._shards.get(words[0], _ANY))
        arrays = iter(self._arrays(words))
        for name, value in self.inputs.items():
            env[name] = result_of(value, [next(arrays) for _ in value.parts])
        with np.errstate(all="ignore"):
            self._call(env)  # type: ignore[arg-type]  # of a node of one device
            for name in self.results:
                _fill(name, next(arrays), env.get(name))

    def _arrays(self, words: Sequence[int]) -> list[Any]:
        found, at = [], 1
        for (dtype, rank), views in zip(self._parts, self._views, strict=True):
            key = tuple(words[at : at + 1 + rank])
            at += 1 + rank
            view = views.get(key)
            if view is None:
                if len(views) >= _VIEWS:
                    views.clear()
                view = views[key] = _at(key[0], key[1:], dtype)
            found.append(view)
        return found


def _run(work: KernelCall, words: int) -> int:
    """The C function: 0, or 1 if the kernel raises, which ends the code."""
    try:
        work.run(words)
    except BaseException as error:  # C cannot raise it: who runs the code does
        work.errors[words] = error
        return 1
    return 0


def _at(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The memory at an address as an array."""
    nbytes = math.prod(shape) * dtype.itemsize
    memory: Any = (ctypes.c_byte * nbytes).from_address(address)
    return np.ndarray(shape, dtype, memory)


def _fill(name: str, target: np.ndarray[Any, Any], result: Any) -> None:
    """Copy a result to where code reads it.

    Raises:
        ValueError: it is not of the size that the operator's rules of shapes say.
    """
    nested = isinstance(result, Lod) and len(result.levels) != 1
    found = plain(result)
    if nested or getattr(found, "size", -1) != target.size:
        has = list(getattr(found, "shape", ()))
        rules = list(target.shape)
        raise ValueError(f"{name} has shape {has}, but by the rules of shapes {rules}")
    np.copyto(target, found.reshape(target.shape), "unsafe")
