"""Floating-point operations of matrix products and convolutions, from the shapes in a graph file.

A multiplication and an addition count as two. A gradient operator makes one product of the same
size per gradient. Sources: the definitions of Paddle's ops ``mul``, ``matmul`` and ``conv2d``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpexec.viz.measured.graph_facts import GraphFacts

_PRODUCTS = ("mul", "matmul", "matmul_v2", "fc")
_CONVOLUTIONS = ("conv2d", "depthwise_conv2d", "conv3d")


def flops(facts: GraphFacts, node: int) -> float | None:
    """Return the operations of one call; None for other operators and unknown dimensions."""
    op = facts.by_id[node]
    forward = op["name"].removesuffix("_grad")
    if forward not in (*_PRODUCTS, *_CONVOLUTIONS):
        return None
    inputs, outputs = _shapes(facts, op["inputs"]), _shapes(facts, op["outputs"])
    if any(dim < 0 for shape in (*inputs, *outputs) for dim in shape):
        return None
    is_gradient = op["name"].endswith("_grad")
    shapes = inputs if is_gradient else [*inputs, *outputs]
    if forward == "fc":
        shapes = [shape for shape in shapes if len(shape) > 1]  # its bias costs next to nothing
    one = _product(shapes) if forward in _PRODUCTS else _convolution(shapes)
    return None if one is None else one * (len(outputs) if is_gradient else 1)


def _shapes(facts: GraphFacts, ids: Sequence[int]) -> list[tuple[int, ...]]:
    found = (facts.vars[index] for index in ids)
    return [tuple(var["shape"]) for var in found if var["kind"] == "var"]


def _product(shapes: Sequence[tuple[int, ...]]) -> float | None:
    """Of X, Y and Out in any order: m*k, k*n and m*n elements, each times the number of batches."""
    if len(shapes) != 3:
        return None
    sizes = [math.prod(shape) for shape in shapes]
    batches = math.prod(shapes[2][:-2]) if all(len(s) == len(shapes[2]) for s in shapes) else 1
    return 2.0 * math.sqrt(math.prod(sizes) / batches) if batches else 0.0


def _convolution(shapes: Sequence[tuple[int, ...]]) -> float | None:
    """Of Input, Filter and Output, in this order: each result takes a window of the filter."""
    if len(shapes) != 3 or not all(len(shape) >= 4 for shape in shapes):
        return None
    _, kernel, output = shapes
    return 2.0 * math.prod(output) * math.prod(kernel[1:])
