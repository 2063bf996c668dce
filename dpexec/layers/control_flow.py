"""Layers that decide, when the program runs, which operators run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import TracebackType

from dpexec.checks import check_variable_and_dtype
from dpexec.core.dtypes import VarType
from dpexec.ir.block import Block
from dpexec.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.elementwise import logical_and, logical_not

__all__ = ["Switch"]


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
        program = self.helper.main_program
        parent = program.current_block()
        body = program._create_block()
        try:
            yield body
        finally:
            program._rollback()
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
