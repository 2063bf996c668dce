"""Layers that decide, when the program runs, which operators run."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from dpexec.checks import check_type, check_variable_and_dtype
from dpexec.core.dtypes import VarType
from dpexec.ir.block import Block
from dpexec.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.constants import fill_constant
from dpexec.layers.elementwise import equal, logical_and, logical_not
from dpexec.layers.tensor import assign, cast

__all__ = ["Switch", "While", "case", "cond", "switch_case", "while_loop"]


@contextlib.contextmanager
def _new_body(helper: LayerHelper) -> Iterator[Block]:
    """A new block, which layers are added to inside a ``with`` block."""
    program = helper.main_program
    body = program._create_block()
    try:
        yield body
    finally:
        program._rollback()


class ConditionalBlock:
    """Operators that run if a condition holds: those that layers add inside ``with x.block():``.

    They may write variables of the blocks around, which otherwise keep their values.

    Args:
        inputs: the condition: a bool variable with one element, if ``is_scalar_condition``; else
            variables, and the operators run if none of them is empty.
        is_scalar_condition: which kind of condition.
        name: accepted for fluid's sake.

    Raises:
        TypeError: an input is no variable.

    Source: ``fluid.layers.control_flow.ConditionalBlock``.
    """

    def __init__(
        self, inputs: Sequence[Variable], is_scalar_condition: bool = False, name: str | None = None
    ) -> None:
        for var in inputs:
            if not isinstance(var, Variable):
                raise TypeError(f"inputs of ConditionalBlock are Variables, not {type(var)}")
        self.inputs = list(inputs)
        self.is_scalar_condition = is_scalar_condition
        self.helper = LayerHelper("conditional_block", name=name)

    @contextlib.contextmanager
    def block(self) -> Iterator[Block]:
        """Build into the block; a Python error inside leaves it without an operator."""
        with _new_body(self.helper) as body:
            yield body
        parent = body.program.current_block()
        reads, writes = body._outer_names()
        parent.append_op(
            "conditional_block",
            inputs={"Cond": self.inputs, "Input": reads},
            outputs={"Out": writes, "Scope": parent.create_var(type=VarType.STEP_SCOPES)},
            attrs={"sub_block": body, "is_scalar_condition": self.is_scalar_condition},
        )


class Switch:
    """Of several blocks of layers, run the first whose condition holds.

    Args:
        name: accepted for fluid's sake.

    Example:
        >>> import dpexec as fluid
        >>> layers = fluid.layers
        >>> with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     step = fluid.data("step", [1], dtype="float32")
        ...     rate = layers.fill_constant([1], "float32", 0.0)
        ...     early, late = (layers.fill_constant([1], "float32", v) for v in (0.1, 0.01))
        ...     with layers.Switch() as switch:
        ...         with switch.case(step < 10.0):
        ...             layers.assign(early, rate)
        ...         with switch.default():
        ...             layers.assign(late, rate)
        ...     run = fluid.Executor(fluid.CPUPlace()).run
        ...     [run(feed={"step": [s]}, fetch_list=[rate])[0].item() for s in (3.0, 30.0)]
        [0.10000000149011612, 0.009999999776482582]

    Source: ``fluid.layers.Switch``.
    """

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("switch", name=name)
        self.inside_scope = False
        self.pre_not_conditions: list[Variable] = []
        """Per case so far: neither its condition holds nor one before it."""

    def __enter__(self) -> Switch:
        self.inside_scope = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.inside_scope = False

    def case(self, condition: Variable) -> contextlib.AbstractContextManager[Block]:
        """The layers of a ``with`` block run if ``condition`` is the first that holds.

        Args:
            condition: bool, one element.

        Raises:
            ValueError: called outside ``with Switch() as ...``.
            TypeError: the condition is no bool variable.
        """
        if not self.inside_scope:
            raise ValueError("case should be called inside with")
        check_variable_and_dtype(condition, "condition", ["bool"], "Switch.case")
        if not self.pre_not_conditions:
            block = ConditionalBlock([condition], is_scalar_condition=True)
            self.pre_not_conditions.append(logical_not(x=condition))
            return block.block()
        before = self.pre_not_conditions[-1]
        self.pre_not_conditions.append(logical_and(x=before, y=logical_not(x=condition)))
        taken = logical_and(x=before, y=condition)
        return ConditionalBlock([taken], is_scalar_condition=True).block()

    def default(self) -> contextlib.AbstractContextManager[Block]:
        """The layers of a ``with`` block run if no condition holds.

        Raises:
            ValueError: there is no case before.
        """
        if not self.pre_not_conditions:
            raise ValueError("there should be at least one condition")
        return ConditionalBlock([self.pre_not_conditions[-1]], is_scalar_condition=True).block()


# ---- branches that return values


def select_input(inputs: Sequence[Variable], mask: Variable) -> Variable:
    """One of several variables.

    Args:
        inputs: of one type; only the one that is selected needs a value.
        mask: int32, one element: its number.

    Source: ``fluid.layers.control_flow.select_input``.
    """
    check_type(inputs, "inputs", (list, tuple), "select_input")
    check_variable_and_dtype(mask, "mask", ["int32"], "select_input")
    helper = LayerHelper("select_input")
    first = inputs[0]
    out = helper.create_variable(dtype=first.dtype, shape=first.shape, type=first.type)
    helper.append_op("select_input", {"X": list(inputs), "Mask": mask}, {"Out": out})
    return out


def cond(
    pred: Variable,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """What one of two functions returns; only the layers of that one run.

    Args:
        pred: bool, one element.
        true_fn: adds layers, and returns a variable, several in lists, tuples and dicts, or None.
        false_fn: returns as many, arranged alike; they may have other shapes.
        name: accepted for fluid's sake.

    Returns:
        What the functions return; gradients flow through the one that ran.

    Raises:
        TypeError: ``pred`` is no bool variable, or a function cannot be called.
        ValueError: the functions return different structures.

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
        return _mapped(lambda false, true: select_input([false, true], mask), on_false, on_true)
    except ValueError as error:
        raise ValueError(f"{mismatch}{error}") from None


def _branch(pred: Variable, function: Callable[[], Any]) -> Any:
    """What ``function`` returns, copied to the block around it if ``pred`` holds."""
    block = ConditionalBlock([pred], is_scalar_condition=True)
    with block.block() as body:
        parent = body.program.block(body.parent_idx)

        def copied(var: Variable) -> Variable:
            out = parent.create_var(dtype=var.dtype, shape=var.shape, type=var.type)
            return assign(var, out)

        found = function()
        return None if found is None else _mapped(copied, found)


def _mapped(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """``function`` of corresponding variables in structures, in a structure like the first."""
    if isinstance(first, Mapping):
        if not all(isinstance(o, Mapping) and o.keys() == first.keys() for o in others):
            raise ValueError(f"the keys {sorted(first)} differ")
        made = {key: _mapped(function, first[key], *(o[key] for o in others)) for key in first}
        return type(first)(made)  # type: ignore[call-arg]
    if isinstance(first, (list, tuple)):
        if not all(isinstance(o, (list, tuple)) and len(o) == len(first) for o in others):
            raise ValueError(f"not all are sequences of {len(first)} elements")
        items = [_mapped(function, *parts) for parts in zip(first, *others, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    for value in (first, *others):
        if not isinstance(value, Variable):
            raise ValueError(f"expected a Variable, but received {type(value).__name__}")
    return function(first, *others)


def case(
    pred_fn_pairs: Sequence[tuple[Variable, Callable[[], Any]]],
    default: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """What the function of the first condition that holds returns; only its layers run.

    Args:
        pred_fn_pairs: conditions (bool, one element) with functions as for :func:`cond`.
        default: if no condition holds; by default the last function of the pairs.
        name: accepted for fluid's sake.

    Returns:
        What the functions return.

    Raises:
        TypeError: an argument is of a wrong type.

    Source: ``fluid.layers.case``.
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
    """What the function with a number returns; only its layers run.

    Args:
        branch_index: the number: int32, int64 or uint8, one element.
        branch_fns: functions as for :func:`cond`: a list, numbered from 0, or a dict or pairs with
            their numbers.
        default: for other numbers; by default the function with the largest one.
        name: accepted for fluid's sake.

    Returns:
        What the functions return.

    Raises:
        TypeError: an argument is of a wrong type.
        ValueError: a number appears twice.

    Source: ``fluid.layers.switch_case``.
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


# ---- loops


class While:
    """Repeat the layers that are added inside ``with loop.block():`` while a condition holds.

    They may write variables of the blocks around, and must write the condition. Gradients do not
    flow through loops.

    Args:
        cond: bool, one element; evaluated before every round.
        is_test: accepted for fluid's sake.
        name: accepted for fluid's sake.

    Raises:
        TypeError: ``cond`` is no bool variable with one element.

    Example:
        >>> import dpexec as fluid
        >>> layers = fluid.layers
        >>> with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     i, n = (layers.fill_constant([1], "int64", v) for v in (0, 10))
        ...     going = layers.less_than(i, n)
        ...     with layers.While(going).block():
        ...         i = layers.increment(i, value=3)
        ...         going = layers.less_than(i, n, cond=going)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[i])
        [array([12])]

    Source: ``fluid.layers.While``.
    """

    def __init__(self, cond: Variable, is_test: bool = False, name: str | None = None) -> None:
        self.helper = LayerHelper("while", name=name)
        _require_condition(cond, "condition")
        self.cond_var = cond
        self.is_test = is_test

    @contextlib.contextmanager
    def block(self) -> Iterator[Block]:
        """Build into the loop; a Python error inside leaves it without an operator."""
        with _new_body(self.helper) as body:
            yield body
        parent = body.program.current_block()
        reads, writes = body._outer_names()
        cond = self.cond_var.name
        parent.append_op(
            "while",
            inputs={"X": [name for name in reads if name != cond], "Condition": cond},
            outputs={
                "Out": list(dict.fromkeys([*writes, cond])),
                "StepScopes": parent.create_var(type=VarType.STEP_SCOPES),
            },
            attrs={"sub_block": body, "is_test": self.is_test},
        )


def _require_condition(value: Any, what: str) -> None:
    if not isinstance(value, Variable):
        raise TypeError(f"{what} should be a variable")
    if value.dtype != VarType.BOOL:
        raise TypeError(f"{what} should be a boolean variable")
    if math.prod(value.shape) != 1:
        raise TypeError(f"{what} should have one element, but its shape is {list(value.shape)}")


def while_loop(
    cond: Callable[..., Variable],
    body: Callable[..., Any],
    loop_vars: Sequence[Any],
    is_test: bool = False,
    name: str | None = None,
) -> Sequence[Any]:
    """Repeat ``loop_vars = body(*loop_vars)`` while ``cond(*loop_vars)`` holds.

    Gradients do not flow through loops.

    Args:
        cond: gives a bool variable with one element.
        body: gives as many variables as there are, arranged alike: one, or several in a list.
        loop_vars: variables, or lists, tuples and dicts of them; they take the values.
        is_test: accepted for fluid's sake.
        name: accepted for fluid's sake.

    Returns:
        ``loop_vars``.

    Raises:
        TypeError: an argument, or what ``cond`` gives, is of a wrong type.
        ValueError: there are no ``loop_vars``, or ``body`` gives something else.

    Source: ``fluid.layers.while_loop``.
    """
    LayerHelper("while_loop", name=name)
    for function, argument in ((cond, "cond"), (body, "body")):
        if not callable(function):
            raise TypeError(f"{argument} in while_loop should be callable")
    if not isinstance(loop_vars, (list, tuple)):
        raise TypeError("loop_vars in while_loop should be a list or tuple")
    if not loop_vars:
        raise ValueError("loop_vars in while_loop should not be empty")
    going = cond(*loop_vars)
    _require_condition(going, "what cond in while_loop returns")
    with While(going, is_test, name).block():
        made = body(*_mapped(lambda var: var, list(loop_vars)))
        made = list(made) if isinstance(made, (list, tuple)) else [made]
        still = cond(*made)
        try:
            _mapped(assign, made, list(loop_vars))
        except ValueError as error:
            raise ValueError(
                "body in while_loop should return the same arity (length and structure) as "
                f"loop_vars: {error}"
            ) from None
        assign(still, going)
    return loop_vars
