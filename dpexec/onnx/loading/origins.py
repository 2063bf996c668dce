"""What PyTorch's exporter says of initializers: which are parameters, buffers, or constants.

It computes what does not depend on inputs: angles of places, masks, ones in the place of a missing
scale. Such tensors look like weights. Training them trains another net than PyTorch does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["never_trained"]

_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
_FOLDED = "pkg.onnxscript.optimizer.folded_from"
_NODE = re.compile(r"(val|arange|full|full_like|ones|ones_like|zeros|zeros_like|linspace|logspace"
                   r"|eye|empty|scalar_tensor|tril_indices|triu_indices|lift_fresh_copy|clone"
                   r"|_to_copy)(_\d+)?")  # fmt: skip
"""Names of nodes with which constants begin, as the exporter numbers them."""


def never_trained(graph: Any) -> set[str]:
    """Names of the initializers that hold no parameter, as far as the model says so.

    A tensor that was computed holds a parameter if one of its sources may be one: the name of a
    parameter of a submodule has a dot, names of nodes have none.

    Args:
        graph: the graph of a model (``GraphProto``).
    """
    initializers = {tensor.name for tensor in graph.initializer}
    return {
        info.name
        for info in graph.value_info
        if info.name in initializers and _is_constant({p.key: p.value for p in info.metadata_props})
    }


def _is_constant(told: dict[str, str]) -> bool:
    if _KIND in told:
        return told[_KIND] != "PARAMETER"
    sources = list(_names(told.get(_FOLDED, "")))
    if not sources or any("." in name for name in sources):
        return False
    return any(_NODE.fullmatch(name) and not name.startswith("val") for name in sources) or all(
        _NODE.fullmatch(name) for name in sources
    )


def _names(text: str) -> Iterator[str]:
    """The names in the text of a list."""
    try:
        found = ast.literal_eval(text) if text else []
    except (SyntaxError, ValueError):
        return
    if isinstance(found, list):
        yield from (name for name in found if isinstance(name, str))
