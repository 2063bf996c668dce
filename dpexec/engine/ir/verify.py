"""The grammar of legal programs, executable.

Passes and tests call :func:`verify` between steps; users can call it on programs that they built
by hand. A rule is one function, numbered; the numbers stand in the messages.

Example:
    >>> import dpexec as fluid
    >>> from dpexec.engine.ir.verify import verify
    >>> program = fluid.Program()
    >>> with fluid.program_guard(program, fluid.Program()):
    ...     y = fluid.layers.relu(fluid.data("x", shape=[None, 4]))
    >>> verify(program)
    >>> program.global_block().ops[0].inputs["X"] = []
    >>> verify(program)
    Traceback (most recent call last):
        ...
    dpexec.engine.core.errors.EnforceNotMet: operator relu: rule 6 (...): input X is missing
    ...
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from dpexec.engine.core.dtypes import AttrType, VarType, to_numpy
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.lod import LOD_SUFFIX
from dpexec.engine.ir import opdef, roles
from dpexec.engine.ir.attributes import attribute_type
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.feed_fetch import HOLDERS
from dpexec.engine.ir.opdef import dims_match
from dpexec.engine.ir.operator import CALLSTACK, Operator, op_error
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Parameter, Variable

__all__ = ["FRAMEWORK", "RULES", "can_end", "verify", "verify_saved"]

_ROLES = {
    roles.FORWARD,
    roles.BACKWARD,
    roles.OPTIMIZE,
    roles.RPC,
    roles.DIST,
    roles.LR_SCHED,
    roles.OPTIMIZE | roles.LR_SCHED,
    roles.FORWARD | roles.LOSS,
    roles.BACKWARD | roles.LOSS,
}

_NUMBERS = {AttrType.INT, AttrType.LONG, AttrType.FLOAT}
_LISTS = {AttrType.INTS, AttrType.LONGS, AttrType.FLOATS}
_ACCEPTED = {
    **dict.fromkeys((AttrType.INT, AttrType.LONG), _NUMBERS),
    **dict.fromkeys((AttrType.INTS, AttrType.LONGS), _LISTS),
}
"""Attribute types accepted in place of the declared one: integers for floats, 32 for 64 bits."""

_OF_MANY = {kind for kind in AttrType if kind.name.endswith("S")}

FRAMEWORK = {
    roles.ROLE: AttrType.INT,
    roles.ROLE_VAR: AttrType.STRINGS,
    roles.NAME_SCOPE: AttrType.STRING,
    roles.DEVICE: AttrType.STRING,
    CALLSTACK: AttrType.STRINGS,
    "sub_block": AttrType.BLOCK,
}
"""Attributes that every operator may have, though its definition does not name them."""

_TENSORS = (VarType.LOD_TENSOR, VarType.SELECTED_ROWS, VarType.LOD_TENSOR_ARRAY)
_RANK = 64  # of NumPy's arrays; more levels of sequences than that are damage

Problems = Iterator[str]


# ---- rules about blocks and variables


def _blocks_form_a_tree(block: Block) -> Problems:
    """Block n is number n of its program, and its parent comes before it."""
    blocks = block.program.blocks
    if not (0 <= block.idx < len(blocks) and blocks[block.idx] is block):
        yield f"block {block.idx} is not number {block.idx} of its program"
    if not ((block.idx == 0 and block.parent_idx == -1) or 0 <= block.parent_idx < block.idx):
        yield f"block {block.idx} cannot have parent {block.parent_idx}"
    if (
        not -1 <= block.forward_block_idx < max(block.idx, 1)
        or block.forward_block_idx == block.idx
    ):
        yield f"block {block.idx} cannot be the gradient of block {block.forward_block_idx}"


def _variables_know_their_name(block: Block) -> Problems:
    """A variable is registered under its own name, in its own block."""
    for name, var in block.vars.items():
        if var.name != name or var.block is not block:
            yield f"variable {var.name} stands in block {block.idx} as {name}"


def _tensors_have_elements(block: Block) -> Problems:
    """Tensors have elements of a type that NumPy knows, and a rank and levels that can be."""
    for name, var in block.vars.items():
        if var.type not in _TENSORS:
            continue
        try:
            to_numpy(var.dtype)
        except (KeyError, TypeError):
            yield f"variable {name} has elements of type {var.dtype!r}"
        if len(var.shape) > _RANK or any(dim >= 2**63 or dim < -(2**31) for dim in var.shape):
            yield f"variable {name} has shape {var.shape}"
        if not 0 <= var.lod_level <= _RANK:
            yield f"variable {name} has {var.lod_level} levels of sequences"


def _parameters_are_global(block: Block) -> Problems:
    """Parameters are persistable, of known shape, and live in the global block."""
    for var in block.vars.values():
        if isinstance(var, Parameter) and (
            block.idx != 0 or not var.persistable or any(dim < 0 for dim in var.shape)
        ):
            yield f"parameter {var.name} {var.shape} of block {block.idx}"


def _gradients_are_like_their_variables(block: Block) -> Problems:
    """``x@GRAD`` has shape and type of ``x``, unless an operator reshapes ``x`` in place."""
    overwritten = {n for op in block.ops for n in op.output_arg_names if n in op.input_arg_names}
    for name, var in block.vars.items():
        base = block._find_var_recursive(name.removesuffix(roles.GRAD_SUFFIX))
        if not name.endswith(roles.GRAD_SUFFIX) or base is None:
            continue
        if base.name in overwritten and not base.persistable:
            continue
        same_rank = len(var.shape) == len(base.shape)
        if (
            var.dtype != base.dtype
            or not same_rank
            or not all(map(dims_match, var.shape, base.shape))
        ):
            yield f"{name} is {var.spec}, but {base.name} is {base.spec}"


# ---- rules about operators


def _operators_are_known(op: Operator, defined: set[str]) -> Problems:
    """Every operator has a definition."""
    if opdef.find(op.type) is None:
        yield f"operator {op.type} is not supported"


def _slots_are_declared(op: Operator, defined: set[str]) -> Problems:
    """Slots are those of the definition: required inputs are there, single slots hold one."""
    for kind, declared, given in (
        ("input", op.definition.inputs, op.inputs),
        ("output", op.definition.outputs, op.outputs),
    ):
        names = [slot.name for slot in declared]
        for unknown in (slot for slot in given if slot not in names and roles.present(given[slot])):
            yield f"there is no {kind} {unknown}, only {', '.join(names)}"
        for slot in declared:
            count = len(roles.present(given.get(slot.name, [])))
            later = slot.optional or slot.name.endswith(LOD_SUFFIX)  # filled when it is compiled
            if not count and kind == "input" and not later:
                yield f"input {slot.name} is missing"
            if count > 1 and not slot.many:
                yield f"{kind} {slot.name} takes one variable, not {count}"


def _variables_are_declared(op: Operator, defined: set[str]) -> Problems:
    """Every variable that an operator names exists in its block or in one around it."""
    for name in roles.present([*op.input_arg_names, *op.output_arg_names]):
        known = name in defined or op.block._find_var_recursive(name) is not None
        if not (known or op.definition.lazy):
            yield f"variable {name} is not declared"


def _inputs_have_values(op: Operator, defined: set[str]) -> Problems:
    """Inputs were written before, or are fed, or outlive runs, or come from a block around."""
    for name in roles.present(op.input_arg_names):
        var = op.block.vars.get(name)
        if var is None or var.type == VarType.LOD_TENSOR_ARRAY:  # which has no entries at first
            continue
        if name not in defined and not (var.persistable or var.is_data):
            yield f"variable {name} is read before anything writes it"


def _outputs_are_distinct(op: Operator, defined: set[str]) -> Problems:
    """An operator writes a variable once."""
    names = roles.present(op.output_arg_names)
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"variable {name} is written twice by one operator"


def _attributes_can_be_saved(op: Operator, defined: set[str]) -> Problems:
    """Attributes are numbers, strings, bools, blocks or lists of them, as the definition says."""
    for name, value in op.attrs.items():
        if value is None:
            continue
        try:
            kind = attribute_type(value, name, op.type)
        except EnforceNotMet as error:
            yield str(error)
            continue
        default, wanted = op.definition.attrs.get(name), FRAMEWORK.get(name)
        if wanted is None and default is not None:
            wanted = attribute_type(default, name, op.type)
        if wanted is not None:
            empty = any(isinstance(v, list | tuple) and not v for v in (default, value))
            many = kind in _OF_MANY and wanted in _OF_MANY
            if many and empty and (not value or wanted == AttrType.INTS):  # or of what it is
                continue
            if wanted not in _ACCEPTED.get(kind, {kind}):
                yield f"attribute {name} must be {wanted.name}, not {kind.name} ({value!r})"


def _roles_are_consistent(op: Operator, defined: set[str]) -> Problems:
    """``op_role`` is a role; ``op_role_var`` holds (parameter, gradient) pairs that exist."""
    if op.role not in _ROLES:
        yield f"op_role {op.role} is none of {sorted(_ROLES)}"
    pairs = op.role_var
    if pairs and not op.role & (roles.BACKWARD | roles.OPTIMIZE):
        yield f"op_role_var {pairs} on an operator with role {roles.role_name(op.role)}"
    if len(pairs) % 2:
        yield f"op_role_var {pairs} is not made of pairs"
    for name in pairs:
        if op.block._find_var_recursive(name) is None:
            yield f"op_role_var names {name}, which is not declared"


def _feeds_and_fetches_are_apart(op: Operator, defined: set[str]) -> Problems:
    """Operators feed and fetch have a column and one variable; no other one names their lists."""
    if op.type not in ("feed", "fetch"):
        for name, var in op._variables([*op.input_arg_names, *op.output_arg_names]).items():
            if var.type in HOLDERS:
                yield f"variable {name} is of type {var.type.name}"
        return
    if "col" not in op.attrs:
        yield "attribute col is missing"
    slot = "Out" if op.type == "feed" else "X"
    names = (op.outputs if op.type == "feed" else op.inputs).get(slot, [])
    named = op.block.vars.get(names[0]) if len(names) == 1 else None
    if op.block.idx != 0 or named is None or named.type in HOLDERS:
        yield f"{slot} must name one variable of the outermost block, not {names}"


def _bodies_are_blocks_inside(op: Operator, defined: set[str]) -> Problems:
    """A body is a block of the same program, right inside the block of its operator."""
    blocks = op.block.program.blocks
    for body in op.bodies:
        if body.idx >= len(blocks) or blocks[body.idx] is not body:
            yield f"its body is no block of this program (number {body.idx})"
        elif body.parent_idx != op.block.idx:
            yield f"its body, block {body.idx}, lies in block {body.parent_idx}"


def can_end(body: Block, condition: str) -> bool:
    """Whether a loop can end: an operator of its body writes the condition, or may raise.

    Args:
        body: the loop's block; blocks inside it count, too.
        condition: name of the variable that is tested before every round.
    """
    blocks = [body]
    for block in blocks:
        for op in block.ops:
            if condition in op.output_arg_names or op.definition.ends_loops:
                return True
            blocks += [inner for inner in op.bodies if inner not in blocks]
    return False


def _loops_can_end(op: Operator, defined: set[str]) -> Problems:
    """The body of a loop writes its condition: else it never ends once it begins."""
    if not op.definition.repeats:
        return
    (condition,) = op.inputs[op.definition.repeats]
    for body in op.bodies:
        if not can_end(body, condition):
            yield f"no operator of its body, block {body.idx}, writes its condition {condition}"


def _given(block: Block) -> set[str]:
    """Variables that the operator running a block sets before every round."""
    around = block.program.blocks[block.parent_idx].ops if block.idx else []
    for op in (op for op in around if block in op.bodies):
        if "ex_states" not in op.attrs:
            return set(op.attrs.get("original_output_grad", ()))
        if block.forward_block_idx < 0:
            return {*op.inputs["inputs"], *op.attrs["ex_states"]}
        return set(map(roles.grad_name, [*op.inputs["outputs"], *op.attrs["states"]]))
    return set()


BlockRule = Callable[[Block], Problems]
OpRule = Callable[[Operator, set[str]], Problems]

_BLOCK_RULES: dict[int, BlockRule] = {
    1: _blocks_form_a_tree,
    2: _variables_know_their_name,
    3: _parameters_are_global,
    4: _gradients_are_like_their_variables,
    14: _tensors_have_elements,
}
_OP_RULES: dict[int, OpRule] = {
    5: _operators_are_known,
    6: _slots_are_declared,
    7: _variables_are_declared,
    8: _inputs_have_values,
    9: _outputs_are_distinct,
    10: _attributes_can_be_saved,
    11: _roles_are_consistent,
    12: _bodies_are_blocks_inside,
    13: _feeds_and_fetches_are_apart,
    15: _loops_can_end,
}
_EVERY_RULE: dict[int, Any] = {**_BLOCK_RULES, **_OP_RULES}
RULES = {number: rule.__doc__ or "" for number, rule in sorted(_EVERY_RULE.items())}


_SAVED = (1, 2, 5, 6, 7, 9, 10, 12, 13, 14, 15)
"""Rules that hold for programs of every Paddle 1.x version; the other ones are stricter."""


def verify(program: Program) -> None:
    """Check that a program is legal.

    Raises:
        EnforceNotMet: a rule is broken. The message names the rule, and for an operator its
            variables and the user's line.
    """
    _verify(program, tuple(RULES))


def verify_saved(program: Program) -> None:
    """Check a program that was read from a file by the rules that all other code relies on.

    Raises:
        EnforceNotMet: a rule is broken, as for :func:`verify`.
    """
    _verify(program, _SAVED)


def _verify(program: Program, numbers: Collection[int]) -> None:
    for block in program.blocks:  # all of them first: operators look into those around and inside
        for number, rule in _BLOCK_RULES.items():
            for problem in rule(block) if number in numbers else ():
                raise EnforceNotMet(f"rule {number} ({RULES[number]}): {problem}")
    chosen = {number: rule for number, rule in _OP_RULES.items() if number in numbers}
    for block in program.blocks:
        defined = _given(block) if 8 in numbers else set()
        for op in block.ops:
            for number, op_rule in chosen.items():
                for problem in op_rule(op, defined):
                    raise op_error(op, f"rule {number} ({RULES[number]}): {problem}", _specs(op))
            if 8 in numbers:
                defined.update(op.writes)


def _specs(op: Operator) -> dict[str, opdef.Spec]:
    found: dict[str, Variable] = op._variables([*op.input_arg_names, *op.output_arg_names])
    return {name: var.spec for name, var in found.items()}
