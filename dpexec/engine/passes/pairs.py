"""Pairs of operators that can be fused: only the second one reads the first one's result."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dpexec.engine.graph.operators import Uses
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator

__all__ = ["fused", "pairs"]


def pairs(
    uses: Uses, first: str, slot: str, second: Collection[str], *, at_second: bool = False
) -> Iterator[tuple[Operator, Operator]]:
    """Find pairs of operators that can be fused.

    Args:
        uses: the operators' reads and writes.
        first: type of the first operator.
        slot: the output slot of the first operator that only the second one reads.
        second: types of the second operator.
        at_second: whether the fused operator runs at the second position; False: either position
            must be possible.

    Yields:
        Both operators. Their other inputs have the same values at both positions, and no operator
        between them touches their other outputs.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec.extend import pairs
        >>> class Finds:
        ...     name = "finds"
        ...     def rewrite(self, operators):
        ...         found = pairs(operators.uses(), "scale", "Out", ["relu"])
        ...         print([(first.type, second.type) for first, second in found])
        ...         return False
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     y = fluid.layers.relu(fluid.layers.scale(fluid.data("x", [None, 1]), 2.0))
        >>> build = fluid.BuildStrategy()
        >>> _ = build.append_pass(Finds())
        >>> compiled = fluid.CompiledProgram(main).with_data_parallel(
        ...     build_strategy=build, places=fluid.cpu_places(2)
        ... )
        >>> exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones([2, 1], "float32")}
        >>> _ = exe.run(compiled, feed=feed, fetch_list=[y])
        [('scale', 'relu')]
    """
    for position, op in enumerate(uses.ops):
        if op.type != first or len(op.outputs.get(slot, [])) != 1:
            continue
        name = op.outputs[slot][0]
        reader = uses.only_reader(name)
        if reader is None:
            near = (uses.ops[at] for at in uses.readers[name] if uses.ops[at].type in second)
            uses.left.update(((op, other), uses.why_no_temporary(name)) for other in near)
            continue
        other = uses.ops[reader]
        if other.type not in second:
            continue
        if roles.role_name(op.role) != roles.role_name(other.role):
            mine, its = roles.role_name(op.role), roles.role_name(other.role)
            uses.left[op, other] = f"one has the role {mine}, the other {its}"
        elif _movable(uses, position, reader, at_second):
            yield op, other
        else:
            uses.left[op, other] = "operators between them change what they read or write"


def _movable(uses: Uses, first: int, second: int, at_second: bool) -> bool:
    """Whether both operators may run at either position, or with ``at_second`` at the second."""
    one, two = uses.ops[first], uses.ops[second]
    besides = [name for name in two.input_arg_names if name not in one.output_arg_names]
    if not uses.same([*one.input_arg_names, *([] if at_second else besides)], first + 1, second):
        return False
    written = [*one.output_arg_names, *two.output_arg_names]
    return not any(
        first < position < second
        for name in written
        for position in (*uses.readers[name], *uses.writers[name])
    )


def fused(
    first: Operator,
    second: Operator,
    type: str,
    inputs: Mapping[str, list[str]],
    outputs: Mapping[str, list[str]],
    attrs: Mapping[str, Any],
) -> Operator:
    """An operator that does the work of both, with the role of the first.

    Args:
        first: gives the role, and the user's line for errors.
        second: its parameters are noted together with those of the first.
        type: type of the new operator.
        inputs: names of variables by slot.
        outputs: names of variables by slot.
        attrs: attributes.

    Returns:
        The operator, which is not in a block yet.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.extend import fused
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     y = fluid.layers.scale(fluid.layers.scale(fluid.data("x", [None, 1]), 2.0), 3.0)
        >>> first, second = main.global_block().ops
        >>> fused(first, second, "scale", first.inputs, second.outputs, {"scale": 6.0}).type
        'scale'
    """
    role_var = [*first.role_var, *second.role_var]
    kept = {**attrs, **first.origin_attrs(), roles.ROLE_VAR: role_var}
    return Operator(first.block, type, inputs, outputs, kept, first.callsite)
