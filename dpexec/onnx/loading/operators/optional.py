"""Optional values; whether there is one is known when the model is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node


@operator("Optional", "OptionalGetElement")
def optional(node: Node) -> Any:
    """The value itself, which must be there."""
    return node.value(0)


@operator("OptionalHasElement")
def has_element(node: Node) -> Any:
    """Whether the input is given."""
    return np.array(node.input(0) is not None)
