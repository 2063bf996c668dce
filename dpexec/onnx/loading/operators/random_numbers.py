"""Random numbers, which a run draws anew: from the program's seed, or that of the node."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dtypes import as_var_type
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node


def _drawn(node: Node, kind: str, dims: list[Any], dtype: VarType, **limits: float) -> Variable:
    """Numbers of a kind in a shape, whose sizes may be open."""
    numbers, variables = node.builder.mixed(dims or [1])
    seed = node.attr("seed")
    whole = 0 if seed is None else int(np.float32(seed).view(np.int32)) & 0x7FFFFFFF or 1
    attrs = {"shape": numbers, "seed": whole, "dtype": int(VarType.FP32), **limits}
    made = node.builder.add(kind, {"ShapeTensorList": variables}, attrs, prefix=node.prefix)
    return node.cast(made["Out"], dtype)


def _shape_and_type(node: Node) -> tuple[list[Any], VarType]:
    wanted = node.attr("dtype")
    if not node.op_type.endswith("Like"):
        return list(node.attr("shape")), as_var_type(wanted or 1, f"{node}")
    return node.dims(0), as_var_type(wanted, f"{node}") if wanted else node.var(0).dtype


@operator("RandomNormal", "RandomNormalLike")
def random_normal(node: Node) -> Any:
    """A normal distribution; other numbers than other engines draw."""
    shape, dtype = _shape_and_type(node)
    limits = {"mean": node.attr("mean", 0.0), "std": node.attr("scale", 1.0)}
    return node.result(_drawn(node, "gaussian_random", shape, dtype, **limits), not shape)


@operator("RandomUniform", "RandomUniformLike")
def random_uniform(node: Node) -> Any:
    """Between two numbers; other numbers than other engines draw."""
    shape, dtype = _shape_and_type(node)
    limits = {"min": node.attr("low", 0.0), "max": node.attr("high", 1.0)}
    return node.result(_drawn(node, "uniform_random", shape, dtype, **limits), not shape)


@operator("Bernoulli")
def bernoulli(node: Node) -> Any:
    """1 with the probability in the input, else 0."""
    wanted = node.attr("dtype")
    dtype = as_var_type(wanted, f"{node}") if wanted else node.var(0).dtype
    drawn = _drawn(node, "uniform_random", node.dims(0), node.var(0).dtype, min=0.0, max=1.0)
    return node.result(node.cast(node.binary("less_than", drawn, node.var(0)), dtype))
