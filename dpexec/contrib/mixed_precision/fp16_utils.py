"""Rewriting programs for float16: inserting casts, and aggregating float16 gradients."""

from __future__ import annotations

from typing import Any

from dpexec.contrib.mixed_precision.fp16_lists import AutoMixedPrecisionLists
from dpexec.engine.arguments.explained import explained
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable

__all__ = ["rewrite_program", "update_role_var_grad"]

HALF, SINGLE = VarType.FP16, VarType.FP32
_SHORT = {HALF: "fp16", SINGLE: "fp32"}
_TENSORS = (VarType.LOD_TENSOR, VarType.SELECTED_ROWS, VarType.LOD_TENSOR_ARRAY)


@explained
def rewrite_program(main_prog: Program, amp_lists: AutoMixedPrecisionLists) -> None:
    """Insert casts so that white operators work on float16 and black ones on float32.

    A gray operator becomes black if an input comes from a black operator, else white if one comes
    from a white operator, else it stays unchanged.

    Args:
        main_prog: its global block is rewritten; parameters stay float32.
        amp_lists: the lists of operators.

    Raises:
        TypeError: ``main_prog`` is no program.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.contrib.mixed_precision import fp16_utils
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main, fluid.Program()):
        ...     x = fluid.data("x", [None, 4])
        ...     out = fluid.layers.softmax(fluid.layers.matmul(x, x, transpose_y=True))
        >>> fp16_utils.rewrite_program(main, fluid.contrib.AutoMixedPrecisionLists())
        >>> [op.type for op in main.global_block().ops]  # softmax stays in float32
        ['cast', 'matmul', 'cast', 'softmax']
    """
    block = main_prog.global_block()
    colour: dict[Operator, str] = {}
    for op in block.ops:
        colour[op] = _colour(block, op, amp_lists, colour)
    for op in list(block.ops):
        if colour[op] == "black":
            _cast_inputs(block, op, HALF, SINGLE)
        elif colour[op] == "white":
            _cast_inputs(block, op, SINGLE, HALF)
            _halve_outputs(block, op)


def _colour(
    block: Block, op: Operator, lists: AutoMixedPrecisionLists, known: dict[Operator, str]
) -> str:
    names = {*op.input_arg_names, *op.output_arg_names}
    if not names.isdisjoint(lists.black_varnames or ()):
        return "black"
    if op.type in lists.black_list:
        return "black"
    if op.type in lists.white_list:
        return "white"
    if op.type not in lists.gray_list:
        return "black"
    found = set()
    for name in op.input_arg_names:
        before = block.var(name).op
        if before is op:
            before = _writer_before(block.ops, op, name)
        if before is None:
            continue
        if known.get(before) == "black" or before.type in lists.black_list:
            found.add("black")
        elif known.get(before) == "white" or before.type in lists.white_list:
            found.add("white")
    return "black" if "black" in found else "white" if "white" in found else ""


def _writer_before(ops: list[Operator], op: Operator, name: str) -> Operator | None:
    """The operator before ``op`` that writes a variable.

    Raises:
        ValueError: there are several.
    """
    found = [other for other in ops[: ops.index(op)] if name in other.output_arg_names]
    if len(found) > 1:
        raise ValueError(f"There must be only one previous op that outputs {name} variable")
    return found[0] if found else None


def _cast_inputs(block: Block, op: Operator, source: VarType, target: VarType) -> None:
    position = op.idx
    for slot in sorted(op.input_names):
        if source == SINGLE and slot in op.definition.single:
            continue  # such as scale, bias and statistics
        for name in op.input(slot):
            var = block._find_var_recursive(name)
            if var is None or var.type not in _TENSORS:
                continue  # queues of readers are of no program
            if var.dtype == source:
                _rename(op, name, _cast(block, position, op, var, target).name)
            elif op.has_attr("in_dtype"):
                op._set_attr("in_dtype", target)


def _cast(block: Block, index: int, op: Operator, var: Variable, target: VarType) -> Variable:
    """``var`` cast to the type ``target``; reuses a cast that was inserted already."""
    name = f"{var.name}.cast_{_SHORT[target]}"
    made = block.vars.get(name)
    if made is None:
        made = block.create_var(name=name, dtype=target, persistable=False, stop_gradient=False)
        attrs = {"in_dtype": var.dtype, "out_dtype": target}
        block._add_op(index, "cast", {"X": var}, {"Out": made}, attrs, callsite=op.callsite)
    return made


def _rename(op: Operator, old: str, new: str) -> None:
    inner = op.with_inner() if old not in op.writes else [op]  # bodies read by name
    for slots in (slots for each in inner for slots in (each.inputs, each.outputs)):
        for slot, names in slots.items():
            slots[slot] = [new if name == old else name for name in names]


def _halve_outputs(block: Block, op: Operator) -> None:
    for slot in op.output_names:
        if slot in op.definition.single:
            continue
        for name in op.output(slot):
            var = block.var(name)
            if var.type in _TENSORS and var.dtype == SINGLE:
                var.set_spec(var.spec.replace(dtype=HALF))
                if op.has_attr("out_dtype"):
                    op._set_attr("out_dtype", HALF)


def update_role_var_grad(main_prog: Program, params_grads: list[tuple[Any, Any]]) -> None:
    """Aggregate the float16 gradients of the replicas, and cast the result.

    Args:
        main_prog: its global block ends with the backward pass.
        params_grads: parameters with their float32 gradients.

    Raises:
        ValueError: an operator before the updates reads a gradient in float32.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.contrib.mixed_precision import fp16_utils
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main, fluid.Program()):
        ...     x = fluid.data("x", [None, 4])
        ...     loss = fluid.layers.mean(fluid.layers.fc(x, 2, bias_attr=False))
        ...     fp16_utils.rewrite_program(main, fluid.contrib.AutoMixedPrecisionLists())
        ...     pairs = fluid.backward.append_backward(loss)
        >>> fp16_utils.update_role_var_grad(main, pairs)
        >>> (gradient,) = (gradient for parameter, gradient in pairs)
        >>> main.global_block().ops[-1].output("Out") == [gradient.name]  # the cast comes last now
        True
    """
    block = main_prog.global_block()
    for param, grad in params_grads:
        cast = grad.op
        if grad.dtype != SINGLE or cast.type != "cast":
            continue
        if not (cast.role & roles.BACKWARD and cast.has_attr(roles.ROLE_VAR)):
            raise ValueError(
                f"The cast op {cast} must be in BACKWARD role and have op_role_var attr."
            )
        half = cast.input("X")[0]
        maker = _writer_before(block.ops, cast, half)
        assert maker is not None
        maker._set_attr(roles.ROLE_VAR, [param.name, half, *maker.role_var])
        del cast.attrs[roles.ROLE_VAR]
        cast._set_attr(roles.ROLE, roles.OPTIMIZE)
        for other in block.ops[cast.idx + 1 :]:
            if grad.name in other.input_arg_names:
                raise ValueError(
                    f"The cast op {cast}'s output should not be used by a non-optimize op, "
                    f"however, it is used by {other}"
                )
        block.ops.append(block.ops.pop(cast.idx))
    main_prog._changed()
