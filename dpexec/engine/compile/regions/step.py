"""Bound operators, which run on the values of a device, and the errors of failing kernels."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from dpexec.engine.compile.regions.bodies import BodyError
from dpexec.engine.compile.regions.env import Env, Shard
from dpexec.engine.core.errors import EnforceNotMet, EOFException, FunctionError, section_of
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.random import RandomStream
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator, op_error

__all__ = [
    "Call",
    "CollectiveCall",
    "MachineCode",
    "Step",
    "kept",
    "kernel_error",
    "overwrites",
    "random_stream",
    "run_steps",
]

Call = Callable[["Env"], None]


CollectiveCall = Callable[[Sequence["Env"]], None]


class MachineCode(Protocol):
    """A piece of machine code that does the work of several steps."""

    @property
    def parts(self) -> list[tuple[list[Step], int]]:
        """The steps whose work it does, with the row of code after their last one.

        Steps that one kernel does together share an entry.
        """

    @property
    def rows(self) -> int:
        """How many kernels it calls."""

    def run(self, env: Env, stamps: np.ndarray[Any, Any] | None = None, at: int = 0) -> None:
        """Run it on the values of a device; the times of its rows go into ``stamps``."""

    def values(self) -> Iterator[tuple[str, int, int]]:
        """Name, address and bytes of the values that it computes."""


@dataclass(slots=True)
class Step:
    """A bound node.

    Args:
        node: the node of the graph; for a piece of machine code, the first of its nodes.
        call: does the work. It gets the env of the node's device; a collective gets all envs.
        drops: names whose values nobody needs afterwards.
        code: the piece of machine code that the step calls; None if it calls Python.
    """

    node: OpNode
    call: Call | CollectiveCall
    drops: tuple[str, ...] = ()
    code: MachineCode | None = None


def overwrites(op: Operator) -> dict[str, str]:
    """By output slot of ``op``, the input slot that it overwrites: both have the same variable."""
    return {
        out: source
        for out, source in op.definition.inplace.items()
        if op.outputs.get(out) and op.outputs[out] == op.inputs.get(source)
    }


def kept(op: Operator) -> Sequence[str]:
    """Variables that ``op`` writes in name only, for it leaves them as they are."""
    keeps = op.definition.keeps
    return op.reads if keeps is not None and keeps(op) else ()


def random_stream(op: Operator) -> Callable[[Shard], RandomStream]:
    """The random numbers of an operator, for the shard of a run."""
    # The key comes from the outputs' original names, in the declared order of slots: a dropout
    # that the backward pass computes again draws the same numbers, and so does a program that was
    # read from a file, whose slots may come in another order.
    slots = (op.outputs.get(slot.name, []) for slot in op.definition.outputs)
    names = map(roles.original_name, itertools.chain.from_iterable(slots))
    key = zlib.crc32("/".join(names).encode())
    seed = int(op.attrs.get("seed") or 0)
    return lambda shard: RandomStream(seed or shard.entropy, key, shard.run, shard.rows_of(op))


def run_steps(steps: Sequence[Step], envs: Sequence[Env]) -> None:
    """Run bound steps in order.

    Raises:
        EnforceNotMet: a kernel failed; names operator, variables, shapes and the user's line.
    """
    with np.errstate(all="ignore"):  # log(0) and the like give inf and nan silently, as in fluid
        for step in steps:
            _run_step(step, envs)


def _run_step(step: Step, envs: Sequence[Env]) -> None:
    node = step.node
    if node.device is None or node.is_collective:
        step.call(envs)  # type: ignore[arg-type]
        return
    env = envs[node.device]
    try:
        step.call(env)  # type: ignore[arg-type]
    except EOFException:
        raise
    except BodyError as error:
        failed = _node_of(error.op, step)
        raise kernel_error(error.op, failed, error.env, error.reason) from error.reason
    except Exception as error:
        assert node.op is not None
        raise kernel_error(node.op, node, env, error) from error
    for name in step.drops:
        env.pop(name, None)


def _node_of(op: Operator, step: Step) -> OpNode:
    """The node of an operator that failed in a piece of machine code, or in a block of a node."""
    parts = () if step.code is None else step.code.parts
    nodes = (done.node for steps, _ in parts for done in steps)
    return next((node for node in nodes if node.op is op), step.node)


_TOLD = (ValueError, EnforceNotMet, FunctionError)
"""Errors that kernels raise for broken rules; their text is shown without the name of the class."""


def kernel_error(op: Operator, node: OpNode, env: Env, error: Exception) -> EnforceNotMet:
    """The error that users get when a kernel fails.

    Args:
        op: the operator of the kernel, which may be one of a block.
        node: the node that runs.
        env: the values, among them the operator's inputs.
        error: the error of the kernel.
    """
    found = {name: env.find(name) for name in op.input_arg_names}
    shown = {name: _describe(value) for name, value in found.items() if value is not None}
    problem = str(error) or type(error).__name__
    if isinstance(error, KeyError) and error.args[0] in found:
        problem = f"PreconditionNotMet: input variable {error.args[0]} has no value"
    elif not isinstance(error, _TOLD):
        problem = f"{type(error).__name__}: {error}"
    section = section_of(error) or "a-value-that-an-operator-refuses"
    made = op_error(op, problem, shown, f"device {node.device}", section)
    made.device, made.node = node.device, node.id
    return made


def _describe(value: Any) -> str:
    if isinstance(value, SelectedRows):
        return f"{value.value.dtype} rows {len(value.row_array)} of {list(value.shape)}"
    if isinstance(value, Env):
        return f"{len(value)} variables of a block"
    return f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else repr(value)
