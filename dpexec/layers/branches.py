"""Branches that return values: ``cond``, ``case`` and ``switch_case``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from dpexec.checks import check_type, check_variable_and_dtype
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.comparisons import equal, logical_not
from dpexec.layers.constants import fill_constant
from dpexec.layers.control_flow import ConditionalBlock
from dpexec.layers.masks import select_input
from dpexec.layers.structures import mapped
from dpexec.layers.tensor import assign, cast

__all__ = ["case", "cond", "switch_case"]


def cond(
    pred: Variable,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """The results of one of two functions; only the layers of that function run.

    Args:
        pred: bool, one element.
        true_fn: adds layers; returns a variable, a structure of variables (lists, tuples, dicts),
            or None.
        false_fn: returns variables in the same structure; their shapes may differ.
        name: ignored; accepted for compatibility.

    Returns:
        The functions' results; gradients flow through the function that ran.

    Raises:
        TypeError: ``pred`` is no bool variable, or a function cannot be called.
        ValueError: the functions return different structures.

    See Also:
        :func:`case`: the first condition that holds.
        :func:`switch_case`: by a number.
        :func:`while_loop`: repeats while a condition holds.
        :class:`IfElse`: by row of a batch.

    Example:
        >>> import dpexec as fluid
        >>> import numpy as np
        >>> with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", shape=[2], dtype="float32")
        ...     large = fluid.layers.reduce_sum(x) > 1.0
        ...     y = fluid.layers.cond(large, lambda: x / 10.0, lambda: x)
        ...     run = fluid.Executor(fluid.CPUPlace()).run
        ...     [run(feed={"x": np.full(2, v, "float32")}, fetch_list=[y])[0][0] for v in (0.25, 5)]
        [np.float32(0.25), np.float32(0.5)]

    Source: ``fluid.layers.cond``.
    """
    check_variable_and_dtype(pred, "pred", ["bool"], "fluid.layers.cond")
    check_type(name, "name", (str, type(None)), "fluid.layers.cond")
    for function, argument in ((true_fn, "true_fn"), (false_fn, "false_fn")):
        if function is not None and not callable(function):
            raise TypeError(
                f"The {argument} in cond must be callable, but received {type(function).__name__}"
            )
    LayerHelper("cond", name=name)
    on_true = None if true_fn is None else _branch(pred, true_fn)
    on_false = None if false_fn is None else _branch(logical_not(pred), false_fn)
    if on_true is None and on_false is None:
        return None
    mismatch = "Incompatible return values of true_fn and false_fn in cond: "
    if on_true is None or on_false is None:
        names = ("true_fn", "false_fn") if on_true is None else ("false_fn", "true_fn")
        raise ValueError(f"{mismatch}{names[0]} returns None while {names[1]} returns non-None")
    mask = cast(pred, "int32")
    try:
        return mapped(lambda false, true: select_input([false, true], mask), on_false, on_true)
    except ValueError as error:
        raise ValueError(f"{mismatch}{error}") from None


def _branch(pred: Variable, function: Callable[[], Any]) -> Any:
    """The results of ``function``, copied to the enclosing block if ``pred`` is true."""
    block = ConditionalBlock([pred], is_scalar_condition=True)
    with block.block() as body:
        parent = body.program.block(body.parent_idx)

        def copied(var: Variable) -> Variable:
            out = parent.create_var(dtype=var.dtype, shape=var.shape, type=var.type)
            return assign(var, out)

        found = function()
        return None if found is None else mapped(copied, found)


def case(
    pred_fn_pairs: Sequence[tuple[Variable, Callable[[], Any]]],
    default: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """The results of the function with the first true condition; only its layers run.

    Args:
        pred_fn_pairs: conditions (bool, one element) with functions as for :func:`cond`.
        default: function for the case that no condition is true; by default the pairs' last
            function.
        name: ignored; accepted for compatibility.

    Returns:
        The functions' results.

    Raises:
        TypeError: an argument has the wrong type.

    Source: ``fluid.layers.case``.

    See Also:
        :func:`cond`: two branches, by one condition.
        :func:`switch_case`: by a number.
        :func:`while_loop`: repeats while a condition holds.
        :class:`Switch`: an older form, for values that are assigned.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [1])
        ...     small = (x < 1.0, lambda: fluid.layers.fill_constant([1], "float32", 1.0))
        ...     medium = (x < 10.0, lambda: x * 2.0)
        ...     out = fluid.layers.case([small, medium], default=lambda: x)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     feeds = [{"x": np.array([value], "float32")} for value in (0, 5, 50)]
        ...     [exe.run(feed=feed, fetch_list=[out])[0].item() for feed in feeds]
        [1.0, 10.0, 50.0]
    """
    LayerHelper("case", name=name)
    check_type(pred_fn_pairs, "pred_fn_pairs", (list, tuple), "case")
    for pair in pred_fn_pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"pred_fn_pairs in case must be pairs (pred, fn), but received {pair}")
        if not isinstance(pair[0], Variable):
            raise TypeError(f"The pred in case must be a boolean Variable, not {type(pair[0])}")
        if not callable(pair[1]):
            raise TypeError(f"The fn for {pair[0].name} of pred_fn_pairs in case must be callable")
    pairs = list(pred_fn_pairs)
    chosen = pairs.pop()[1] if default is None else default
    if not callable(chosen):
        raise TypeError("The default in case must be callable")
    return _first_that_holds(pairs, chosen)


def _first_that_holds(
    pairs: Sequence[tuple[Variable, Callable[[], Any]]], default: Callable[[], Any]
) -> Any:
    otherwise = default
    for pred, function in reversed(pairs):
        otherwise = functools.partial(cond, pred, function, otherwise)
    return otherwise()


def switch_case(
    branch_index: Variable,
    branch_fns: Any,
    default: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """The results of the function selected by an index; only its layers run.

    Args:
        branch_index: the index: int32, int64 or uint8, one element.
        branch_fns: functions as for :func:`cond`: a list, counted from 0, or a dict or pairs with
            indices.
        default: function for other indices; by default the function with the largest index.
        name: ignored; accepted for compatibility.

    Returns:
        The functions' results.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an index appears twice.

    Source: ``fluid.layers.switch_case``.

    See Also:
        :func:`cond`: two branches, by one condition.
        :func:`case`: the first condition that holds.
        :func:`while_loop`: repeats while a condition holds.
        :class:`Switch`: an older form, for values that are assigned.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     which, x = fluid.data("which", [1], "int32"), fluid.data("x", [1])
        ...     out = fluid.layers.switch_case(which, {0: lambda: x + 1.0, 1: lambda: x * 10.0})
        ...     feed = {"which": np.array([1], "int32"), "x": np.array([3], "float32")}
        ...     fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out])
        [array([30.], dtype=float32)]
    """
    LayerHelper("switch_case", name=name)
    kinds = ["uint8", "int32", "int64"]
    check_variable_and_dtype(branch_index, "branch_index", kinds, "switch_case")
    if branch_index.dtype != VarType.INT64:
        branch_index = cast(branch_index, "int64")
    functions = _numbered(branch_fns)
    if default is None:
        functions = dict(sorted(functions.items()))
        default = functions.popitem()[1]
    elif not callable(default):
        raise TypeError("The default in switch_case must be callable")
    pairs = []
    for number, function in functions.items():
        wanted = fill_constant(shape=[1], dtype="int64", value=number)
        pairs.append((equal(branch_index, wanted), function))
    return _first_that_holds(pairs[::-1], default)


def _numbered(branch_fns: Any) -> dict[int, Callable[[], Any]]:
    check_type(branch_fns, "branch_fns", (list, tuple, dict), "switch_case")
    pairs = branch_fns.items() if isinstance(branch_fns, dict) else branch_fns
    if all(callable(item) for item in pairs):
        pairs = enumerate(pairs)
    found: dict[int, Callable[[], Any]] = {}
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"branch_fns in switch_case must be pairs (int, fn), not {pair}")
        number, function = pair
        if not isinstance(number, int):
            raise TypeError(f"The key in branch_fns must be int, but received {number!r}")
        if number in found:
            raise ValueError(f"The key in branch_fns must be unique, but {number} is not")
        if not callable(function):
            raise TypeError(f"The function for key {number} in branch_fns must be callable")
        found[number] = function
    return found
