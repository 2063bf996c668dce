"""``py_func``: a Python function of the user as an operator."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from dpexec.engine.core.errors import EOFException, FunctionError
from dpexec.engine.core.lod import NO_SEQUENCES, Lod, lod_name
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.ir import roles
from dpexec.engine.ir.opdef import GradContext, GradOp, op, require
from dpexec.engine.ops._sequences import at_their_places

__all__ = ["CallableId", "registered_callables"]

registered_callables: list[Callable[..., Any]] = []
"""The functions of this process; the attributes of operators hold their positions."""


class CallableId(int):
    """The position of a function; pickling it includes the function, for other processes.

    Args:
        function: a function; it is registered if necessary.
    """

    def __new__(cls, function: Callable[..., Any]) -> CallableId:
        """The position that ``function`` has or gets."""
        for position, known in enumerate(registered_callables):
            if known is function:
                return super().__new__(cls, position)
        registered_callables.append(function)
        return super().__new__(cls, len(registered_callables) - 1)

    def __reduce__(self) -> tuple[type[CallableId], tuple[Callable[..., Any]]]:
        return CallableId, (registered_callables[self],)


@op(
    "py_func",
    inputs="X?[] X@LOD?[]",
    outputs="Out?[] Out@LOD?[]",
    infer=None,
    checks_values=True,
    acts=True,
    ends_loops=True,
    shapes_by_run=True,
)
def py_func(
    xp: Any,
    x: list[Any],
    lods: list[Lod],
    *,
    names: Mapping[str, Sequence[str]],
    forward_callable_id: int = 0,
    backward_callable_id: int = -1,
    backward_skip_vars: Sequence[str] = (),
) -> tuple[list[Any], list[Lod]]:
    """The results of a Python function, which gets the inputs as ``LoDTensor``.

    The outputs have the shapes of what the function returns, which need not be those that their
    variables were declared with, and the sequences that the function gives them by returning a
    ``LoDTensor``. Source: Paddle op ``py_func``.

    Args:
        xp: the array library.
        x: arguments of the function.
        lods: offsets of the arguments with sequences.
        names: names of the variables, by slot.
        forward_callable_id: position of the function, see :class:`CallableId`.
        backward_callable_id: position of the function that returns the gradients of the inputs, -1
            for none. It gets inputs, outputs and gradients of the outputs.
        backward_skip_vars: names of inputs and outputs that the backward function does not get.
    """
    require(
        0 <= forward_callable_id < len(registered_callables),
        f"Python function number {int(forward_callable_id)} is not known in this process: a "
        "program that was loaded from bytes needs layers.py_func to be called with the same "
        "functions in the same order first",
    )
    given = at_their_places(names["X@LOD"], lods) if lods else [NO_SEQUENCES for _ in x]
    try:
        result = registered_callables[forward_callable_id](*map(_tensor, x, given))
    except EOFException:
        raise
    except Exception as error:
        raise FunctionError(_explained(error)) from error
    results = result if isinstance(result, (list, tuple)) else [result]
    outputs = len(names.get("Out", ()))
    require(
        len(results) == outputs or (not outputs and result is None),
        f"the Python function returned {len(results)} values, but it has {outputs} outputs",
    )
    arrays = [_array(xp, *pair) for pair in zip_longest(results, names.get("Out", ()))]
    wanted = names.get("Out@LOD", ())
    pairs = zip(names.get("Out", ()), results, strict=False)  # what runs next counts the arrays
    return arrays, [_offsets(item) for name, item in pairs if lod_name(name) in wanted]


def _array(xp: Any, result: Any, name: str | None) -> Any:
    """A result of the function as an array; a gradient may be None, and is 0 then."""
    if result is None:
        require(
            name in (None, roles.EMPTY) or roles.GRAD_SUFFIX in str(name),
            f"the Python function returned None, but output {name!r} needs a value",
        )
        return None
    array = np.array(result)
    require(
        array.dtype.kind in "biuf",
        f"the Python function returned {type(result).__name__} {result!r:.60} for output {name!r}, "
        "which takes arrays of numbers",
    )
    return xp.asarray(array)


def _explained(error: Exception) -> str:
    """The text of a function's error, with a hint where it took a tensor for an array."""
    text = f"{type(error).__name__}: {error}"
    taken = isinstance(error, (TypeError, AttributeError)) and re.search("method|LoDTensor", text)
    return f"{text} (a py_func gets LoDTensors: np.array(x) is the array of one)" if taken else text


def _tensor(value: Any, lod: Lod) -> LoDTensor:
    """The argument of the function; NumPy copies it, so the function cannot change ``value``."""
    tensor = LoDTensor()
    tensor.array = value.get() if hasattr(value, "get") else value
    if lod:
        tensor.set_lod(lod.to_lists())
    return tensor


def _offsets(result: Any) -> Lod:
    """The sequences of a result of the function."""
    return Lod(result.lod()) if isinstance(result, LoDTensor) else NO_SEQUENCES


@py_func.grad_maker
def py_func_grad(context: GradContext) -> list[GradOp]:
    """The backward function as an operator of the same type."""
    forward = context.op
    if forward.attrs["backward_callable_id"] < 0:
        return []
    skipped = forward.attrs["backward_skip_vars"]
    known = [*forward.inputs.get("X", []), *forward.outputs.get("Out", [])]
    given = [name for name in known if name not in skipped]
    attrs = {
        "forward_callable_id": forward.attrs["backward_callable_id"],
        "backward_callable_id": -1,
    }
    inputs = {"X": given + context.output_grads.get("Out", [])}
    return [GradOp("py_func", inputs, {"Out": context.input_grads.get("X", [])}, attrs)]
