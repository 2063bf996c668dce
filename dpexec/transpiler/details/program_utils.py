"""``fluid.transpiler.details``: finding and removing operators, printing programs as code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TextIO

from dpexec.engine.core.dtypes import AttrType, VarType
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Parameter, Variable

__all__ = [
    "block_to_code",
    "delete_ops",
    "find_op_by_input_arg",
    "find_op_by_output_arg",
    "op_to_code",
    "program_to_code",
    "variable_to_code",
]


def delete_ops(block: Block, ops: Iterable[Operator]) -> None:
    """Remove operators from a block.

    Args:
        block: block of the operators.
        ops: operators to remove.

    Raises:
        ValueError: an operator is not in the block.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.transpiler import details
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     y = fluid.layers.dropout(fluid.layers.relu(fluid.data("x", [None, 4])), 0.5)
        >>> block = main.global_block()
        >>> details.delete_ops(block, [op for op in block.ops if op.type == "dropout"])
        >>> [op.type for op in block.ops]
        ['relu']
    """
    for op in list(ops):
        block._remove_op(op.idx)


def find_op_by_input_arg(block: Block, arg_name: str) -> int:
    """The position of the first operator that reads a variable, -1 if none does.

    Args:
        block: the block to search.
        arg_name: name of the variable.

    Returns:
        The position, or -1.

    Raises:
        TypeError: ``block`` is no block.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.transpiler import details
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     x = fluid.data("x", [None, 4])
        ...     y = fluid.layers.relu(x)
        >>> details.find_op_by_input_arg(main.global_block(), "x")
        0
        >>> details.find_op_by_input_arg(main.global_block(), y.name)  # nothing reads the result
        -1
    """
    return next((i for i, op in enumerate(block.ops) if arg_name in op.input_arg_names), -1)


def find_op_by_output_arg(block: Block, arg_name: str, reverse: bool = False) -> int:
    """The position of the first operator that writes a variable, -1 if none does.

    Args:
        block: the block to search.
        arg_name: name of the variable.
        reverse: search for the last such operator instead.

    Returns:
        The position, or -1.

    Raises:
        TypeError: ``block`` is no block.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.transpiler import details
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     x = fluid.layers.fill_constant([1], "float32", 0.0)
        ...     x = fluid.layers.increment(x)  # writes the same variable
        >>> block = main.global_block()
        >>> [details.find_op_by_output_arg(block, x.name, reverse=last) for last in (False, True)]
        [0, 1]
    """
    found = [i for i, op in enumerate(block.ops) if arg_name in op.output_arg_names]
    return found[-1 if reverse else 0] if found else -1


def variable_to_code(var: Variable) -> str:
    """A variable as a line of text: name, shape, type, and whether parameter or persistable.

    Args:
        var: the variable.

    Returns:
        The line.

    Raises:
        TypeError: ``var`` is no variable.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.transpiler import details
        >>> with fluid.program_guard(fluid.Program()):
        ...     details.variable_to_code(fluid.data("x", [None, 4]))
        'var x : fluid.VarType.LOD_TENSOR.shape(-1, 4).astype(VarType.FP32)'
    """
    kind = "var"
    if isinstance(var, Parameter):
        kind = "trainable parameter" if var.trainable else "parameter"
    persist = "persist " if var.persistable else ""
    tensor = var.type in (VarType.SELECTED_ROWS, VarType.LOD_TENSOR)
    content = f".shape{var.shape}.astype({var.dtype})" if tensor else ")"
    return f"{persist}{kind} {var.name} : fluid.{var.type}{content}"


def op_to_code(op: Operator, skip_op_callstack: bool = True) -> str:
    """An operator as a line of text: outputs, type, inputs and attributes.

    Args:
        op: operator to print.
        skip_op_callstack: leave out the user's lines that created the operator.

    Returns:
        The line.

    Raises:
        TypeError: ``op`` is no operator.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.transpiler import details
        >>> main = fluid.Program()
        >>> with fluid.unique_name.guard(), fluid.program_guard(main):
        ...     y = fluid.layers.mean(fluid.data("x", [None, 4]))
        >>> details.op_to_code(main.global_block().ops[0])[:40]
        "{Out=['mean_0.tmp_0']} = mean(inputs={X="
    """
    names = sorted(op.attr_names)
    attrs = ", ".join(
        _attribute(op, name) for name in names if not (skip_op_callstack and name == "op_callstack")
    )
    outputs = f"{_slots(op.outputs)} = " if op.outputs else ""
    return f"{outputs}{op.type}(inputs={_slots(op.inputs)}, {attrs})"


def _slots(slots: Mapping[str, list[str]]) -> str:
    return "{" + ", ".join(f"{name}={slots[name]}" for name in sorted(slots)) + "}"


def _attribute(op: Operator, name: str) -> str:
    kind = op.attr_type(name)
    if kind == AttrType.BLOCK:
        return f"{name} = block[{op._block_attr_id(name)}]"
    if kind == AttrType.BLOCKS:
        return f"{name} = blocks{op._blocks_attr_ids(name)}"
    return f"{name} = {op.attr(name)}"


def block_to_code(
    block: Block, block_idx: int, fout: TextIO | None = None, skip_op_callstack: bool = False
) -> None:
    """Print a block: its variables by name, then its operators.

    Args:
        block: block to print.
        block_idx: number to print for it.
        fout: file to print to; None for stdout.
        skip_op_callstack: leave out the user's lines that created the operators.

    Raises:
        TypeError: ``block`` is no block.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.transpiler.details import block_to_code
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main), fluid.unique_name.guard():
        ...     y = fluid.data("x", [2])
        >>> block_to_code(main.global_block(), 0)
        { // block 0
            var x : fluid.VarType.LOD_TENSOR.shape(2,).astype(VarType.FP32)
        <BLANKLINE>
        }
    """
    variables = [f"    {variable_to_code(block.vars[name])}" for name in sorted(block.vars)]
    operators = [f"    {op_to_code(op, skip_op_callstack)}" for op in block.ops]
    between = [""] if variables else []
    lines = [f"{{ // block {block_idx}", *variables, *between, *operators, "}"]
    print("\n".join(lines), file=fout)


def program_to_code(
    prog: Program, fout: TextIO | None = None, skip_op_callstack: bool = True
) -> None:
    """Print a program, block by block.

    Args:
        prog: program to print.
        fout: file to print to; None for stdout.
        skip_op_callstack: leave out the user's lines that created the operators.

    Raises:
        TypeError: ``prog`` is no program.

    Example:
        >>> import io
        >>> import dpexec as fluid
        >>> from dpexec.transpiler import details
        >>> main, text = fluid.Program(), io.StringIO()
        >>> with fluid.unique_name.guard(), fluid.program_guard(main):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> details.program_to_code(main, fout=text)
        >>> "relu(inputs={X=['x']}" in text.getvalue()
        True
    """
    for block in prog.blocks:
        block_to_code(block, block.idx, fout, skip_op_callstack)
