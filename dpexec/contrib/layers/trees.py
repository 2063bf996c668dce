"""Layers on trees."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from dpexec.checks import check_type
from dpexec.engine.core.dtypes import as_var_type
from dpexec.engine.ir.variable import Variable
from dpexec.initializer import Constant
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs
from dpexec.layers.indexing import slice
from dpexec.layers.manipulation import reshape

__all__ = ["tdm_child", "tdm_sampler", "tree_conv"]


def tree_conv(
    nodes_vector: Variable,
    edge_set: Variable,
    output_size: int,
    num_filters: int = 1,
    max_depth: int = 2,
    act: str | None = "tanh",
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Variable:
    """Tree-based convolution: a window is a node and its descendants.

    Args:
        nodes_vector: features, ``(N, nodes, features)``.
        edge_set: parent and child of every edge, counted from 1, int32 ``(N, edges, 2)``; smaller
            trees are padded with zeros.
        output_size: number of features of the result.
        num_filters: number of filters.
        max_depth: number of levels per window.
        act: name of an activation.
        param_attr: attributes of the weights ``(features, 3, output_size, num_filters)``.
        bias_attr: attributes of the bias; False for none.
        name: prefix of names.

    Returns:
        ``(N, nodes, output_size, num_filters)``. Source: Paddle op ``tree_conv``; Mou and others,
        2016 (tree-based convolution). The original's gradient of ``nodes_vector`` is wrong.

    Raises:
        TypeError: ``nodes_vector`` or ``edge_set`` is no variable.
        EnforceNotMet: ``nodes_vector`` is not ``(samples, nodes, width)``, or ``edge_set`` not
            int32 ``(samples, edges, 2)``.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     nodes = fluid.data("nodes", [None, 5, 4])  # trees of five nodes with four features
        ...     edges = fluid.data("edges", [None, 4, 2], "int32")  # parent and child, from 1
        ...     out = fluid.contrib.layers.tree_conv(nodes, edges, output_size=6, num_filters=3)
        ...     print(out.shape)
        (-1, 5, 6, 3)
    """
    check_type(nodes_vector, "nodes_vector", Variable, "tree_conv")
    check_type(edge_set, "edge_set", Variable, "tree_conv")
    helper = LayerHelper(
        "tree_conv", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    shape = [nodes_vector.shape[2], 3, output_size, num_filters]
    weight = helper.create_parameter(helper.param_attr, shape, nodes_vector.dtype)
    inputs = {"NodesVector": nodes_vector, "EdgeSet": edge_set, "Filter": weight}
    made = add_outputs(helper, inputs, {"Out": nodes_vector.dtype}, {"max_depth": max_depth})
    return helper.append_activation(helper.append_bias_op(made["Out"]))


def tdm_child(
    x: Variable, node_nums: int, child_nums: int, param_attr: Any = None, dtype: Any = "int32"
) -> tuple[Variable, Variable]:
    """The children of nodes of a tree that indexes items.

    Args:
        x: indices of nodes, int32 or int64.
        node_nums: number of nodes.
        child_nums: largest number of children per node.
        param_attr: attributes of the tree ``(node_nums, 3 + child_nums)``: for every node its item
            (0 for inner nodes), level, parent, and children (0 for missing ones).
        dtype: type of the results, int32 or int64.

    Returns:
        The children, one more dimension than ``x``, and 1 for each of them that is a leaf. Source:
        Paddle op ``tdm_child``; Zhu and others, 2018 (tree-based deep models).

    Raises:
        TypeError: ``x`` is no variable.
        EnforceNotMet: ``x`` does not hold int32 or int64.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> rows = [[0, 0, 0, 0, 0], [0, 0, 0, 2, 3], [8, 1, 1, 0, 0], [9, 1, 1, 0, 0]]
        >>> tree = fluid.initializer.NumpyArrayInitializer(np.array(rows, "int32"))
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     x = fluid.data("x", [None, 1], "int32")
        ...     tree = fluid.ParamAttr(initializer=tree)
        ...     pair = fluid.contrib.layers.tdm_child(x, 4, 2, param_attr=tree)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     found = exe.run(main, feed={"x": np.array([[1]], "int32")}, fetch_list=list(pair))
        >>> [value.tolist() for value in found]  # nodes 2 and 3, both items
        [[[[2, 3]]], [[[1, 1]]]]
    """
    helper = LayerHelper("tdm_child", param_attr=param_attr)
    shape = [node_nums, 3 + child_nums]
    tree = helper.create_parameter(helper.param_attr, shape, dtype, default_initializer=Constant(0))
    tree.stop_gradient = True
    inputs, dtypes = {"X": x, "TreeInfo": tree}, {"Child": dtype, "LeafMask": dtype}
    attrs = {"child_nums": child_nums, "dtype": as_var_type(dtype)}
    made = add_outputs(helper, inputs, dtypes, attrs, stop_gradient=True)
    return made["Child"], made["LeafMask"]


def tdm_sampler(
    x: Variable,
    neg_samples_num_list: Sequence[int],
    layer_node_num_list: Sequence[int],
    leaf_node_num: int,
    tree_travel_attr: Any = None,
    tree_layer_attr: Any = None,
    output_positive: bool = True,
    output_list: bool = True,
    seed: int = 0,
    tree_dtype: Any = "int32",
    dtype: Any = "int32",
) -> tuple[Any, Any, Any]:
    """Sample, on every level of a tree, the node on the path to an item and random other nodes.

    Args:
        x: indices of items, int32 or int64 ``(samples, 1)``.
        neg_samples_num_list: number of other nodes to draw on each level.
        layer_node_num_list: number of nodes of each level.
        leaf_node_num: number of items.
        tree_travel_attr: attributes of the paths to all items, ``(leaf_node_num, levels)``; 0 after
            the end of a path.
        tree_layer_attr: attributes of the nodes, level after level, ``(nodes, 1)``.
        output_positive: whether to include the nodes on the path.
        output_list: whether to return a list with one entry per level.
        seed: any number but 0 draws the same nodes in every run; 0 draws new ones each time.
        tree_dtype: type of the paths and nodes, int32 or int64.
        dtype: type of the results, int32 or int64.

    Returns:
        Nodes; labels, 1 for nodes on the path; and a mask, 0 after the end of the path. Each is a
        list of ``(samples, drawn, 1)``, or ``(samples, all drawn)``. Source: Paddle op
        ``tdm_sampler``.

    Raises:
        ValueError: the lists have different lengths, or a level has too few nodes to draw from.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> paths = np.array([[1, 3], [1, 4], [2, 5], [2, 6]], "int32")  # of four items
        >>> nodes = np.array([[1], [2], [3], [4], [5], [6]], "int32")  # two, then four
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     item = fluid.data("item", [None, 1], "int64")
        ...     given = [fluid.initializer.NumpyArrayInitializer(array) for array in (paths, nodes)]
        ...     attrs = [fluid.ParamAttr(initializer=one) for one in given]
        ...     made = fluid.contrib.tdm_sampler(item, [1, 2], [2, 4], 4, *attrs, seed=1)
        ...     drawn, labels, _ = made
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     feed = {"item": np.array([[0]])}
        ...     upper, lower, marks = exe.run(main, feed, [*drawn, labels[1]])
        >>> upper[0, :, 0].tolist(), lower[0, 0].tolist(), marks[0, :, 0].tolist()
        ([1, 2], [3], [1, 0, 0])
    """
    helper = LayerHelper("tdm_sampler")
    if len(neg_samples_num_list) != len(layer_node_num_list):
        raise ValueError(
            "neg_samples_num_list and layer_node_num_list must have an entry for every level, but "
            f"have {len(neg_samples_num_list)} and {len(layer_node_num_list)}"
        )
    for level, (drawn, count) in enumerate(
        zip(neg_samples_num_list, layer_node_num_list, strict=True)
    ):
        if drawn >= count:
            raise ValueError(
                f"fewer nodes than level {level} has must be drawn from it, but "
                f"neg_samples_num_list has {drawn} there, layer_node_num_list {count}"
            )
    offsets = list(itertools.accumulate(layer_node_num_list, initial=0))
    shapes = ([leaf_node_num, len(layer_node_num_list)], [offsets[-1], 1])
    travel, layer = (
        helper.create_parameter(attr, shape, tree_dtype, default_initializer=Constant(0))
        for attr, shape in zip((tree_travel_attr, tree_layer_attr), shapes, strict=True)
    )
    attrs = {
        "neg_samples_num_list": list(neg_samples_num_list),
        "output_positive": output_positive,
        "layer_offset_lod": offsets,
        "seed": seed,
        "dtype": as_var_type(dtype),
    }
    inputs = {"X": x, "Travel": travel, "Layer": layer}
    dtypes = dict.fromkeys(("Out", "Labels", "Mask"), dtype)
    outputs = add_outputs(helper, inputs, dtypes, attrs, stop_gradient=True)
    if not output_list:
        return outputs["Out"], outputs["Labels"], outputs["Mask"]
    widths = [count + output_positive for count in neg_samples_num_list]
    made = [outputs[name] for name in ("Out", "Labels", "Mask")]
    levels = zip(*_by_level(made, widths), strict=True)
    nodes, labels, mask = (list(level) for level in levels)
    return nodes, labels, mask


def _by_level(made: Sequence[Variable], widths: Sequence[int]) -> Iterator[list[Variable]]:
    """The columns of each variable for every level, ``(samples, columns, 1)``."""
    for start, stop in itertools.pairwise(itertools.accumulate(widths, initial=0)):
        parts = [slice(one, axes=[1], starts=[start], ends=[stop]) for one in made]
        parts = [reshape(part, [-1, stop - start, 1]) for part in parts]
        for part in parts:
            part.stop_gradient = True
        yield parts
