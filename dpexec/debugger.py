"""``fluid.debugger``: blocks of programs as short text, and as graphs for Graphviz.

``str(program)`` has everything in Paddle's text form; ``dpexec.viz.draw`` makes pictures that need
no Graphviz.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dpexec.engine.arguments.explained import explained
from dpexec.engine.core.dtypes import VarType, dtype_name
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable

__all__ = ["draw_block_graphviz", "pprint_block_codes", "pprint_program_codes"]

_KINDS = {VarType.SELECTED_ROWS: "SelectedRows", VarType.LOD_TENSOR_ARRAY: "TensorArray"}
_SHOWN = (VarType.LOD_TENSOR, *_KINDS)
_HIDDEN = frozenset({roles.ROLE, roles.ROLE_VAR, "op_namescope", "op_device"})
_HIGHLIGHT = {"color": "orangered", "penwidth": "2"}


@explained
def pprint_program_codes(program_desc: Program) -> str:
    """The text of all blocks of a program, without gradients and their operators.

    Args:
        program_desc: a :class:`~dpexec.Program`.

    Returns:
        The text, see :func:`pprint_block_codes`.

    Raises:
        TypeError: ``program_desc`` is no program.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.unique_name.guard(), fluid.program_guard(main):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> print(fluid.debugger.pprint_program_codes(main))
        // block-0  parent--1
        // variables
        Tensor x (tensor(type=float32, shape=[-1, 4]))
        Tensor relu_0.tmp_0 (tensor(type=float32, shape=[-1, 4]))
        <BLANKLINE>
        // operators
        relu_0.tmp_0 = relu(X=x) [{use_cudnn=False,use_mkldnn=False}]
        <BLANKLINE>
    """
    return "\n".join(map(pprint_block_codes, program_desc.blocks))


@explained
def pprint_block_codes(block_desc: Block, show_backward: bool = False) -> str:
    """A block in a few lines: a line for each variable, then one for each operator.

    Args:
        block_desc: a block of a program, such as ``program.global_block()``.
        show_backward: whether to include gradients, and operators that read or write them.

    Returns:
        The text.

    Raises:
        TypeError: ``block_desc`` is no block.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main), fluid.unique_name.guard():
        ...     y = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> print(fluid.debugger.pprint_block_codes(main.global_block()), end="")
        // block-0  parent--1
        // variables
        Tensor x (tensor(type=float32, shape=[-1, 4]))
        Tensor relu_0.tmp_0 (tensor(type=float32, shape=[-1, 4]))
        <BLANKLINE>
        // operators
        relu_0.tmp_0 = relu(X=x) [{use_cudnn=False,use_mkldnn=False}]
    """
    variables = [_variable(var) for var in block_desc.vars.values() if var.type in _SHOWN]
    operators = list(map(_operator, block_desc.ops))
    if not show_backward:
        variables, operators = (
            [line for line in lines if roles.GRAD_SUFFIX not in line]
            for lines in (variables, operators)
        )
    head = f"// block-{block_desc.idx}  parent-{block_desc.parent_idx}\n// variables"
    return "\n".join([head, *variables, "", "// operators", *operators, ""])


def _variable(var: Variable) -> str:
    kind = _KINDS.get(var.type, "LoDTensor" if var.lod_level else "Tensor")
    level = f"level={var.lod_level}, " if var.lod_level else ""
    tensor = f"tensor(type={dtype_name(var.dtype)}, shape={list(var.shape)})"
    return f"{kind} {var.name} ({level}{tensor})"


def _operator(op: Operator) -> str:
    outputs = ", ".join(_names(names) for names in op.outputs.values() if names)
    inputs = ", ".join(f"{slot}={_names(names)}" for slot, names in op.inputs.items() if names)
    attrs = {
        name: f"block-{value.idx}" if isinstance(value, Block) else value
        for name, value in sorted(op.attrs.items())
        if name not in _HIDDEN and value is not None
    }
    shown = ",".join(f"{name}={value}" for name, value in attrs.items())
    return f"{outputs} = {op.type}({inputs}) [{{{shown}}}]"


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else str(list(names))


def draw_block_graphviz(
    block: Block, highlights: Sequence[str] | None = None, path: str = "./temp.dot"
) -> None:
    """Write a block's graph: operators as boxes, variables as ellipses, persistable ones filled.

    Args:
        block: a block of a program, such as ``program.global_block()``.
        highlights: regular expressions; variables and operators whose names match from the start
            are highlighted, with their edges.
        path: the DOT file to write, for Graphviz.

    Raises:
        OSError: the file cannot be written.

    Example:
        >>> import dpexec as fluid, pathlib, tempfile
        >>> with fluid.program_guard(fluid.Program()), tempfile.TemporaryDirectory() as folder:
        ...     y = fluid.data("x", [None, 4]) * 2.0
        ...     block = fluid.default_main_program().global_block()
        ...     fluid.debugger.draw_block_graphviz(block, path=folder + "/net.dot")
        ...     pathlib.Path(folder, "net.dot").read_text()[:7]
        'digraph'
    """
    import graphviz  # here, as it takes as long as a good part of dpexec

    wanted = [re.compile(pattern) for pattern in highlights or ()]

    def style(*names: str) -> dict[str, str]:
        return _HIGHLIGHT if any(one.match(name) for one in wanted for name in names) else {}

    dot = graphviz.Digraph("block", node_attr={"fontname": "Helvetica", "fontsize": "11"})
    arguments = (n for op in block.ops for n in (*op.input_arg_names, *op.output_arg_names))
    names = dict.fromkeys((*block.vars, *filter(None, arguments)))
    number = {name: f"var_{index}" for index, name in enumerate(names)}
    for name, node in number.items():
        var = block.vars.get(name)
        kept = {"style": "filled"} if var is not None and var.persistable else {}
        shape = "" if var is None else f"\n{list(var.shape)}"
        dot.node(node, graphviz.escape(name + shape), **kept, **style(name))
    for index, op in enumerate(block.ops):
        here = f"op_{index}"
        dot.node(here, op.type, shape="box", **style(op.type))
        for name in filter(None, op.input_arg_names):
            dot.edge(number[name], here, **style(op.type, name))
        for name in filter(None, op.output_arg_names):
            dot.edge(here, number[name], **style(op.type, name))
    with open(path, "w", encoding="utf-8") as file:
        file.write(dot.source)
