"""Layers on trees."""

from __future__ import annotations

from typing import Any

from dpexec.checks import check_type
from dpexec.ir.variable import Variable
from dpexec.layer_helper import LayerHelper

__all__ = ["tree_conv"]


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
    """Convolutions whose windows are a node of a tree and the nodes below it.

    Args:
        nodes_vector: features, ``(N, nodes, features)``.
        edge_set: parent and child of every edge, counted from 1, int32 ``(N, edges, 2)``; zeros
            fill up what trees have less.
        output_size: features of the result.
        num_filters: how many results.
        max_depth: levels of a window.
        act: name of an activation.
        param_attr: attributes of the weights ``(features, 3, output_size, num_filters)``.
        bias_attr: attributes of the bias; False for none.
        name: prefix of names.

    Returns:
        ``(N, nodes, output_size, num_filters)``. Source: Paddle op ``tree_conv``; Mou and others,
        2016 (tree-based convolution). The original's gradient of ``nodes_vector`` is wrong.
    """
    check_type(nodes_vector, "nodes_vector", Variable, "tree_conv")
    check_type(edge_set, "edge_set", Variable, "tree_conv")
    helper = LayerHelper(
        "tree_conv", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    shape = [nodes_vector.shape[2], 3, output_size, num_filters]
    weight = helper.create_parameter(helper.param_attr, shape, nodes_vector.dtype)
    out = helper.create_variable_for_type_inference(nodes_vector.dtype)
    helper.append_op(
        type="tree_conv",
        inputs={"NodesVector": nodes_vector, "EdgeSet": edge_set, "Filter": weight},
        outputs={"Out": out},
        attrs={"max_depth": max_depth},
    )
    return helper.append_activation(helper.append_bias_op(out))
