"""``tree_conv``: convolutions over the nodes of trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._boxes import to_host
from dpexec.engine.ops._sequences import Ints
from dpexec.engine.ops._shapes import require_float


def _infer(nodes: Spec, edges: Spec, weight: Spec, *, max_depth: int = 2) -> Spec:
    require_float(nodes, "NodesVector")
    require(nodes.rank == 3, f"NodesVector {nodes} must be (N, nodes, features)")
    require(
        edges.rank == 3 and dims_match(edges.shape[2], 2) and edges.dtype == VarType.INT32,
        f"EdgeSet {edges} must be int32 (N, edges, 2)",
    )
    require(
        weight.rank == 4
        and weight.shape[1] == 3
        and dims_match(weight.shape[0], nodes.shape[2])
        and weight.dtype == nodes.dtype,
        f"Filter {weight} must be (features, 3, outputs, filters) for NodesVector {nodes}",
    )
    require(max_depth > 0, f"max_depth must be positive, but is {max_depth}")
    return nodes.replace(shape=(*nodes.shape[:2], *weight.shape[2:]), lod_level=0)


def _samples(r: SampleRng) -> list[Sample]:
    edges = [[[1, 2], [1, 3], [1, 4], [3, 5], [0, 0]], [[1, 2], [2, 3], [2, 4], [4, 5], [5, 6]]]
    inputs = {
        "NodesVector": r.normal((2, 6, 2)),
        "EdgeSet": np.array(edges, np.int32),
        "Filter": r.normal((2, 3, 2, 2)),
    }
    mixed = {
        "NodesVector@GRAD": (
            "mixes up the weights of left, right and top with those of outputs in the "
            "gradient; dpexec gives the derivative"
        )
    }
    calls = [({}, 2), ({}, 3), ({"Filter": r.normal((2, 3, 1, 3))}, 8)]
    return [
        Sample(
            inputs | changed, {"max_depth": depth}, grad=("NodesVector", "Filter"), deviates=mixed
        )
        for changed, depth in calls
    ]


def _below(root: int, children: Sequence[Sequence[int]], depth: int) -> Iterator[tuple[int, ...]]:
    """A node and all below it: number, depth, position among its siblings, and their number."""
    yield root, 0, 1, 1
    seen, waiting = {root}, [(root, 1)]
    while waiting:
        node, level = waiting.pop()
        for place, child in enumerate(children[node] if level < depth else (), 1):
            if child not in seen:
                seen.add(child)
                yield child, level, place, len(children[node])
                waiting.append((child, level + 1))


def _coefficients(edges: Ints, nodes: int, max_depth: int) -> Ints:
    """The weights of every node in the window at every node, for left, right and top.

    Args:
        edges: edges of one tree, ``(edges, 2)``: parent and child, counted from 1; 0 ends them.
        nodes: the largest number of nodes.
        max_depth: levels of a window.

    Returns:
        float64 ``(nodes, nodes, 3)``: windows by nodes.

    Raises:
        ValueError: a node has a greater number.
    """
    ends = np.flatnonzero((edges == 0).any(axis=1))
    edges = edges[: ends[0]] if len(ends) else edges
    if len(edges) >= nodes or edges.max(initial=0) > nodes or edges.min(initial=1) < 1:
        raise ValueError(f"EdgeSet must be trees of nodes from 1 to {nodes}, but has {len(edges)} "
                         f"edges, and nodes up to {edges.max(initial=0)}")  # fmt: skip
    children: list[list[int]] = [[] for _ in range(nodes + 1)]
    for parent, child in edges.tolist():
        children[parent].append(child)
    found = np.zeros((nodes, nodes, 3))
    for root in range(1, len(edges) + 2):
        for node, depth, place, siblings in _below(root, children, max_depth):
            aside = depth / max_depth
            left = aside * (0.5 if siblings == 1 else (place - 1) / (siblings - 1))
            found[root - 1, node - 1] = left, aside * (1 - left), 1 - aside
    return found


@op(
    "tree_conv",
    inputs="NodesVector EdgeSet Filter",
    infer=_infer,
    samples=_samples,
    checks_values=True,
    operand_ulps=2,
)
def tree_conv(xp: Any, nodes: Any, edges: Any, weight: Any, *, max_depth: int = 2) -> Any:
    """For every node of a tree, the convolution of its window with ``Filter``.

    The window is the node and those below it, in ``max_depth`` levels. ``Filter`` has weights for
    the left, the right and the top of a window; each node is weighted by its position. ``EdgeSet``
    has parent and child of every edge, counted from 1; a 0 ends the tree. Nodes without edges give
    0. Source: Paddle op ``tree_conv``; Mou and others, 2016 (tree-based convolution).

    Raises:
        ValueError: there are more nodes in ``EdgeSet`` than in ``NodesVector``.
    """
    patches, matrix = [], weight.reshape(3 * weight.shape[0], -1)
    for features, tree in zip(nodes, to_host(edges), strict=True):
        shares = xp.asarray(_coefficients(tree, len(features), max_depth).astype(nodes.dtype))
        patches.append(xp.einsum("unk,nf->ufk", shares, features).reshape(len(features), -1))
    return (xp.stack(patches) @ matrix).reshape(*nodes.shape[:2], *weight.shape[2:])


@tree_conv.grad(
    "Filter EdgeSet NodesVector Out@GRAD",
    outputs="NodesVector@GRAD Filter@GRAD",
    operand_ulps=2,
)
def tree_conv_grad(
    xp: Any, weight: Any, edges: Any, nodes: Any, d_out: Any, *, max_depth: int = 2
) -> tuple[Any, Any]:
    """The gradient of every node: the sum over its windows, with its weights in them."""
    d_nodes, d_weight = xp.empty_like(nodes), xp.zeros_like(weight.reshape(*weight.shape[:2], -1))
    matrix = weight.reshape(*weight.shape[:2], -1)
    for number, tree in enumerate(to_host(edges)):
        flow = d_out[number].reshape(nodes.shape[1], -1)
        shares = xp.asarray(_coefficients(tree, len(flow), max_depth).astype(nodes.dtype))
        d_nodes[number] = xp.einsum("unk,uo,fko->nf", shares, flow, matrix, optimize=True)
        d_weight += xp.einsum("unk,uo,nf->fko", shares, flow, nodes[number], optimize=True)
    return d_nodes, d_weight.reshape(weight.shape)
