"""``fluid.contrib.model_stat.summary``: parameters and operations of a network, as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpexec.engine.arguments.explained import explained
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program

__all__ = ["summary"]

_COLUMNS = ("No.", "TYPE", "INPUT", "OUTPUT", "PARAMs", "FLOPs")
_ACTIVATIONS = {"leaky_relu", "prelu", "relu", "sigmoid", "tanh"}

Shape = tuple[int, ...]
Row = tuple[str, Shape, Shape, int, int]


@explained
def summary(main_prog: Program) -> None:
    """Print parameters and floating point operations of a program, per sample.

    Convolutions, layers ``fc``, pooling, batch norm and activations count.

    Source: ``fluid.contrib.model_stat.summary``.

    Args:
        main_prog: the program.

    Raises:
        TypeError: ``main_prog`` is no program.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     x = fluid.data("x", [-1, 3, 8, 8])
        ...     y = fluid.layers.conv2d(x, num_filters=4, filter_size=3, act="relu")
        >>> fluid.contrib.summary(main)  # doctest: +ELLIPSIS
        +-----+-...
        | No. |...
        ...
        Total PARAMs: 108(0.0001M)
        Total FLOPs: ...
        ...
    """
    rows = []
    for block in main_prog.blocks:
        for op in block.ops:
            counted = _count(op, block.vars)
            if counted is not None:
                rows.append(counted)
    cells = [
        (str(number), kind, str(taken[1:]), str(made[1:]), str(params), str(flops))
        for number, (kind, taken, made, params, flops) in enumerate(rows)
    ]
    params, flops = sum(row[3] for row in rows), sum(row[4] for row in rows)
    print(_table(cells))
    print(f"Total PARAMs: {params}({params / 1e6:.4f}M)")
    print(f"Total FLOPs: {flops}({flops / 1e9:.2f}G)")
    print(
        "Notice: \n now supported ops include [Conv, DepthwiseConv, FC(mul), BatchNorm, Pool, "
        "Activation(sigmoid, tanh, relu, leaky_relu, prelu)]"
    )


def _count(op: Operator, variables: Mapping[str, Any]) -> Row | None:
    """Type, shapes of input and output, parameters, operations; None if it does not count."""

    def shape(names: list[str]) -> Shape:
        found: Shape = variables[names[0]].shape
        return found

    if op.type in ("conv2d", "depthwise_conv2d"):
        taken, made = shape(op.input("Input")), shape(op.output("Output"))
        filters, channels, *kernel = shape(op.input("Filter"))
        # Paddle divides by the groups once more, though the filter has a group's channels only.
        window = math.prod(kernel) * channels / op.attr("groups") + bool(op.inputs.get("Bias"))
        params, flops = filters * window, 2 * math.prod(made[2:]) * filters * window
        return op.type, taken, made, int(params), int(flops)
    if op.type == "batch_norm":
        taken, made = shape(op.input("X")), shape(op.output("Y"))
        return op.type, taken, made, 2 * taken[1], 2 * math.prod(taken[1:])
    if op.type not in {"mul", "pool2d", *_ACTIVATIONS}:
        return None
    taken, made = shape(op.input("X")), shape(op.output("Out"))
    if op.type == "mul":
        weights = math.prod(shape(op.input("Y")))
        return (op.type, taken, made, weights + 1, weights) if "fc" in op.output("Out")[0] else None
    if op.type == "pool2d":
        return op.type, taken, made, 0, math.prod(made[1:]) * math.prod(op.attr("ksize"))
    return op.type, taken, made, int(op.type == "prelu"), math.prod(taken)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"

    def line(cells: tuple[str, ...]) -> str:
        padded = (f" {cell:>{width}} " for cell, width in zip(cells, widths, strict=True))
        return "|" + "|".join(padded) + "|"

    return "\n".join([rule, line(_COLUMNS), rule, *map(line, rows), rule])
