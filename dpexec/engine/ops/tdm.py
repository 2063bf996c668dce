"""``tdm_child`` and ``tdm_sampler``: children and samples in a tree whose leaves are items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.core.random import RandomStream
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._boxes import to_host
from dpexec.engine.ops._sequences import Ints, on_host

_INTEGERS = (VarType.INT32, VarType.INT64)
_BEFORE = 3
"""Columns of a tree before the children: item, level and parent."""
_TREE = np.array(
    [
        [0, 0, 0, 1, 2], [0, 1, 0, 3, 4], [0, 1, 0, 5, 6], [0, 2, 1, 0, 0], [1, 2, 1, 0, 0],
        [2, 2, 2, 0, 0], [3, 2, 2, 0, 0],
    ],
    np.int32,
)  # fmt: skip


def _require_integers(**specs: Spec) -> None:
    for name, spec in specs.items():
        require(spec.dtype in _INTEGERS, f"{name} {spec} must hold int32 or int64")


def _infer_child(x: Spec, tree: Spec, *, child_nums: int, dtype: int = VarType.INT32) -> Any:
    _require_integers(X=x, TreeInfo=tree)
    require(dtype in _INTEGERS, f"dtype must be int32 or int64, but is {VarType(dtype).name}")
    require(
        tree.rank == 2 and child_nums > 0 and dims_match(tree.shape[1], _BEFORE + child_nums),
        f"TreeInfo {tree} must be (nodes, {_BEFORE} + child_nums), and child_nums is {child_nums}",
    )
    found = x.replace(shape=(*x.shape, child_nums), dtype=VarType(dtype))
    return found, found


def _child_samples(r: SampleRng) -> list[Sample]:
    nodes = np.array([[2], [3], [0], [1]], np.int32)
    deep = np.array([[0, 0, 0, 1], [0, 1, 0, 2], [7, 2, 1, 0]], np.int64)
    return [
        Sample({"X": nodes, "TreeInfo": _TREE}, {"child_nums": 2}),
        Sample({"X": nodes[:2], "TreeInfo": _TREE}, {"child_nums": 2, "dtype": 3}),
        Sample({"X": nodes[2:].astype(np.int64), "TreeInfo": deep}, {"child_nums": 1}),
    ]


@op(
    "tdm_child",
    inputs="X TreeInfo",
    outputs="Child LeafMask",
    infer=_infer_child,
    no_grad=True,
    checks_values=True,
    samples=_child_samples,
)
def tdm_child(
    xp: Any, x: Any, tree: Any, *, child_nums: int, dtype: int = VarType.INT32
) -> tuple[Any, Any]:
    """The children of nodes, and whether each of them is a leaf.

    A row of ``TreeInfo`` has the item of a node (0 if it is no leaf), its level, its parent, and
    ``child_nums`` children, 0 for those that are missing. Node 0 stands for none, and has no
    children. Source: Paddle op ``tdm_child``; Zhu and others, 2018 (tree-based deep models).

    Raises:
        ValueError: there is no such node.
    """
    info, nodes = to_host(tree), on_host(x)
    if nodes.size and not 0 <= nodes.min() <= nodes.max() < len(info):
        raise ValueError(f"X must be nodes from 0 to {len(info) - 1}, but has {nodes.tolist()}")
    children = np.where(nodes[:, None] == 0, 0, info[nodes, _BEFORE:])
    children[children[:, 0] == 0] = 0
    leaves = (info[children, 0] != 0) & (children[:, :1] != 0)
    shape, kind = (*x.shape, child_nums), to_numpy(VarType(dtype))
    return (
        xp.asarray(children.astype(kind)).reshape(shape),
        xp.asarray(leaves.astype(kind)).reshape(shape),
    )


def _infer_sampler(
    x: Spec, travel: Spec, layer: Spec, *, output_positive: bool = True,
    neg_samples_num_list: Sequence[int] = (), layer_offset_lod: Sequence[int] = (),
    dtype: int = VarType.INT32,
) -> tuple[Spec, Spec, Spec]:  # fmt: skip
    _require_integers(X=x, Travel=travel, Layer=layer)
    require(x.rank == 2 and dims_match(x.shape[1], 1), f"X {x} must be (samples, 1)")
    require(dtype in _INTEGERS, f"dtype must be int32 or int64, but is {VarType(dtype).name}")
    levels, sizes = len(neg_samples_num_list), np.diff(layer_offset_lod)
    require(
        len(sizes) == levels > 0 and travel.rank == 2 and dims_match(travel.shape[1], levels),
        f"neg_samples_num_list {list(neg_samples_num_list)} must have an entry for every level of "
        f"layer_offset_lod {list(layer_offset_lod)}, and of Travel {travel}, (leaves, levels)",
    )
    require(
        all(0 <= count < size for count, size in zip(neg_samples_num_list, sizes, strict=True)),
        f"neg_samples_num_list {list(neg_samples_num_list)} must be less than levels have nodes, "
        f"{sizes.tolist()}",
    )
    width = sum(neg_samples_num_list) + levels * output_positive
    found = Spec((x.shape[0], width), VarType(dtype))
    return found, found, found


_OTHERS = (
    "draws certain nodes for a seed; dpexec draws other ones, in every run the same for a seed"
)


def _sampler_samples(r: SampleRng) -> list[Sample]:
    inputs = {
        "X": np.array([[0], [3], [1], [4]], np.int32),
        "Travel": np.array([[1, 3], [1, 4], [2, 5], [2, 6], [2, 0]], np.int32),
        "Layer": np.arange(1, 7, dtype=np.int32)[:, None],
    }
    attrs = {"neg_samples_num_list": [0, 0], "layer_offset_lod": [0, 2, 6], "seed": 3}
    drawn = attrs | {"neg_samples_num_list": [1, 3]}
    return [
        Sample(inputs, attrs),
        Sample(inputs, drawn, deviates={"Out": _OTHERS}),
        Sample(
            inputs, drawn | {"output_positive": False, "dtype": 3},
            deviates={"Out": _OTHERS},
        ),
    ]  # fmt: skip


def _level(
    nodes: Ints, known: Ints, count: int, positive: bool, generator: np.random.Generator
) -> tuple[Ints, Ints, Ints]:
    """Nodes, labels and masks of one level, ``(samples, count + positive)``.

    Args:
        nodes: the nodes of the level.
        known: the true node of every sample; 0 where its path has ended.
        count: number of other nodes to draw.
        positive: whether the true nodes are included.
        generator: the random generator.
    """
    chances = generator.random((len(known), len(nodes)))
    chances[nodes == known[:, None]] = np.inf
    others = nodes[np.argsort(chances, axis=1)[:, :count]]
    there = np.repeat(known[:, None] != 0, count + positive, axis=1)
    found = np.concatenate([known[:, None], others], axis=1) if positive else others
    labels = np.zeros(found.shape, nodes.dtype)
    labels[:, : int(positive)] = 1
    return found * there, labels * there, there


@op(
    "tdm_sampler",
    inputs="X Travel Layer",
    outputs="Out Labels? Mask",
    infer=_infer_sampler,
    no_grad=True,
    checks_values=True,
    samples=_sampler_samples,
)
def tdm_sampler(
    xp: Any, x: Any, travel: Any, layer: Any, *, rng: RandomStream, output_positive: bool = True,
    neg_samples_num_list: Sequence[int] = (), layer_offset_lod: Sequence[int] = (),
    seed: int = 0, dtype: int = VarType.INT32,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """On every level, the node on the path to an item, and random other nodes of the level.

    ``Travel`` has the nodes on the path to each item, 0 where it has ended; ``Layer`` the nodes of
    all levels, which begin at ``layer_offset_lod``. ``Labels`` are 1 for the true nodes; ``Mask``
    is 0 where a path has ended. The drawn nodes differ from those of the real Paddle; with a
    ``seed`` they are the same in every run. Source: Paddle op ``tdm_sampler``; Zhu and others, 2018
    (tree-based deep models).

    Raises:
        ValueError: there is no such item.
    """
    paths, nodes, items = to_host(travel), on_host(layer), on_host(x)
    if items.size and not 0 <= items.min() <= items.max() < len(paths):
        raise ValueError(f"X must be items from 0 to {len(paths) - 1}, but has {items.tolist()}")
    generator = np.random.default_rng((seed or rng.integer(), rng.first_sample))
    levels = [
        _level(nodes[start:stop], paths[items, number], count, output_positive, generator)
        for number, (start, stop, count) in enumerate(
            zip(layer_offset_lod, layer_offset_lod[1:], neg_samples_num_list, strict=False)
        )
    ]
    kind = to_numpy(VarType(dtype))
    parts = (np.concatenate(found, axis=1).astype(kind) for found in zip(*levels, strict=True))
    found, labels, mask = map(xp.asarray, parts)
    return found, labels, mask
