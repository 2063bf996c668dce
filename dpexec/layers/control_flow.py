"""Layers that decide at run time which operators run."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dpexec.checks import check_variable_and_dtype
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.undo import whole_block
from dpexec.engine.ir.variable import Variable
from dpexec.engine.ir.verify import can_end
from dpexec.layer_helper import LayerHelper
from dpexec.layers.comparisons import logical_and, logical_not
from dpexec.layers.masks import (  # noqa: F401 - fluid has them here
    merge_lod_tensor,
    select_input,
    select_output,
    split_lod_tensor,
)
from dpexec.layers.rank_tables import (  # noqa: F401 - fluid has them here
    array_to_lod_tensor,
    lod_rank_table,
    lod_tensor_to_array,
    max_sequence_len,
    shrink_memory,
)
from dpexec.layers.structures import mapped
from dpexec.layers.tensor import assign

__all__ = ["Switch", "While", "while_loop"]


@contextlib.contextmanager
def new_body(helper: LayerHelper, trains: bool = False) -> Iterator[Block]:
    """A new block; layers created inside the ``with`` statement are added to it.

    Args:
        helper: helper of the layer that runs the block.
        trains: whether losses may be minimized inside the block.

    Raises:
        NotImplementedError: a loss was minimized inside although ``trains`` is False.
    """
    program = helper.main_program
    body = program._create_block()
    try:
        yield body
    finally:
        program._rollback()
    if body.backward_block_idx >= 0 and not trains:
        raise NotImplementedError(
            f"a loss is minimized inside {helper.layer_type}, which may run several times: that is "
            "possible in cond, case, switch_case and Switch alone"
        )


class ConditionalBlock:
    """Runs the layers created inside ``with x.block():`` if a condition is true.

    The layers may write variables of enclosing blocks; these keep their values if the condition is
    false.

    Args:
        inputs: with ``is_scalar_condition`` a bool variable with one element; else variables, and
            the layers run if none of them is empty.
        is_scalar_condition: selects the kind of condition, see ``inputs``.
        name: ignored; accepted for compatibility.

    Raises:
        TypeError: an input is no variable.

    Source: ``fluid.layers.control_flow.ConditionalBlock``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec.layers.control_flow import ConditionalBlock
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [1])
        ...     out = fluid.layers.fill_constant([1], "float32", 0.0)
        ...     positive = fluid.layers.greater_than(x, fluid.layers.zeros_like(x))
        ...     with ConditionalBlock([positive], is_scalar_condition=True).block():
        ...         _ = fluid.layers.assign(x, out)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     for value in (3.0, -3.0):
        ...         exe.run(feed={"x": np.array([value], "float32")}, fetch_list=[out])
        [array([3.], dtype=float32)]
        [array([0.], dtype=float32)]
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

    @whole_block
    def block(self) -> Iterator[Block]:
        """Add layers to the block; if an exception is raised inside, the program is restored."""
        with new_body(self.helper, trains=True) as body:
            yield body
        parent = body.program.current_block()
        reads, writes = body._outer_names()
        forward = parent.append_op(
            "conditional_block",
            inputs={"Cond": self.inputs, "Input": reads},
            outputs={"Out": writes, "Scope": parent.create_var(type=VarType.STEP_SCOPES)},
            attrs={"sub_block": body, "is_scalar_condition": self.is_scalar_condition},
        )
        if body.backward_block_idx >= 0:
            _append_training(forward, body)


def _append_training(forward: Operator, body: Block) -> None:
    """Append the gradients and updates of a loss minimized in a branch to run after the branch."""
    program, outputs = body.program, forward.outputs["Out"]
    block = program.block(body.backward_block_idx)
    with program._backward_role_guard():
        forward.block.append_op(
            "conditional_block_grad",
            inputs={
                "Cond": forward.inputs["Cond"],
                "Input": block._outer_names()[0],
                "Out": outputs,
                "Out@GRAD": [roles.EMPTY] * len(outputs),
                "Scope": forward.outputs["Scope"],
            },
            attrs={**forward.plain_attrs(), "sub_block": block},
        )


class Switch:
    """Of several blocks of layers, runs the first whose condition is true.

    Args:
        name: ignored; accepted for compatibility.

    See Also:
        :func:`cond`: two branches, by one condition.
        :func:`case`: the first condition that holds.
        :func:`switch_case`: by a number.
        :func:`while_loop`: repeats while a condition holds.

    Example:
        >>> import dpexec as fluid
        >>> import numpy as np
        >>> layers = fluid.layers
        >>> with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     step = fluid.data("step", [1], dtype="float32")
        ...     rate = layers.fill_constant([1], "float32", 0.0)
        ...     early, late = (layers.fill_constant([1], "float32", v) for v in (0.1, 0.01))
        ...     with layers.Switch() as switch:
        ...         with switch.case(step < 10.0):
        ...             _ = layers.assign(early, rate)
        ...         with switch.default():
        ...             _ = layers.assign(late, rate)
        ...     run = fluid.Executor(fluid.CPUPlace()).run
        ...     steps = (np.array([value], "float32") for value in (3, 30))
        ...     [run(feed={"step": step}, fetch_list=[rate])[0].item() for step in steps]
        [0.10000000149011612, 0.009999999776482582]

    Source: ``fluid.layers.Switch``.
    """

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("switch", name=name)
        self.inside_scope = False
        self.pre_not_conditions: list[Variable] = []
        """Per case so far: neither its condition holds nor one before it."""

    def __enter__(self) -> Switch:
        self._cases = self._with_cases()
        return self._cases.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._cases.__exit__(*error)

    @whole_block
    def _with_cases(self) -> Iterator[Switch]:
        self.inside_scope = True
        try:
            yield self
        finally:
            self.inside_scope = False

    def case(self, condition: Variable) -> contextlib.AbstractContextManager[Block]:
        """The layers created in this ``with`` block run if ``condition`` is the first true one.

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
        """The layers created in this ``with`` block run if no condition is true.

        Raises:
            ValueError: there is no earlier case.
        """
        if not self.pre_not_conditions:
            raise ValueError("there should be at least one condition")
        return ConditionalBlock([self.pre_not_conditions[-1]], is_scalar_condition=True).block()


# ---- loops


class While:
    """Repeats the layers created inside ``with loop.block():`` while a condition is true.

    The layers may write variables of enclosing blocks, and must write the condition. Gradients flow
    through all iterations. After the backward pass, counters that ``increment`` changes in place
    have their values from before the loop again, as in the real Paddle.

    Args:
        cond: bool, one element; evaluated before every iteration.
        is_test: ignored; accepted for compatibility.
        name: ignored; accepted for compatibility.

    Raises:
        TypeError: ``cond`` is no bool variable with one element.

    See Also:
        :func:`while_loop`: from functions.
        :class:`StaticRNN`: over steps of equal sequences.
        :class:`DynamicRNN`: over sequences of different lengths.

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

    @whole_block
    def block(self) -> Iterator[Block]:
        """Add layers to the loop; if an exception is raised inside, the program is restored.

        Raises:
            EnforceNotMet: nothing inside writes the condition, so that the loop would never end.
        """
        with new_body(self.helper) as body:
            yield body
            if not can_end(body, self.cond_var.name):
                raise EnforceNotMet(
                    f"no layer inside of While writes its condition {self.cond_var.name}, so it "
                    "would never end: give the last comparison cond=..., or assign to it"
                )
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
    """Repeat ``loop_vars = body(*loop_vars)`` while ``cond(*loop_vars)`` is true.

    Gradients flow through all iterations, as with :class:`While`.

    Args:
        cond: function that returns a bool variable with one element.
        body: function that returns new values in the structure of ``loop_vars``: one variable, or a
            list.
        loop_vars: variables, or lists, tuples and dicts of them; overwritten in every iteration.
        is_test: ignored; accepted for compatibility.
        name: ignored; accepted for compatibility.

    Returns:
        ``loop_vars``.

    Raises:
        TypeError: an argument or the result of ``cond`` has the wrong type.
        ValueError: there are no ``loop_vars``, or the results of ``body`` have another structure.

    Source: ``fluid.layers.while_loop``.

    See Also:
        :func:`cond`: two branches, by one condition.
        :func:`case`: the first condition that holds.
        :func:`switch_case`: by a number.
        :class:`Switch`: an older form, for values that are assigned.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     step = fluid.layers.fill_constant([1], "int64", 0)
        ...     total = fluid.layers.fill_constant([1], "int64", 0)
        ...     lower = lambda step, total: step < 4
        ...     body = lambda step, total: [step + 1, total + step]
        ...     out = fluid.layers.while_loop(lower, body, [step, total])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=out)
        [array([4]), array([6])]
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
        made = body(*mapped(lambda var: var, list(loop_vars)))
        made = list(made) if isinstance(made, (list, tuple)) else [made]
        try:
            mapped(lambda new, old: None, made, list(loop_vars))
        except ValueError as error:
            raise ValueError(
                "body in while_loop should return the same arity (length and structure) as "
                f"loop_vars: {error}"
            ) from None
        still = cond(*made)
        mapped(assign, made, list(loop_vars))
        assign(still, going)
    return loop_vars
