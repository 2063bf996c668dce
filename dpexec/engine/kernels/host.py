"""Kernels for processors that are called from Python: for operators on sequences.

They are for where operators are no parts of pieces of code: only a run tells how many rows they
have, or a block runs them (:mod:`dpexec.engine.kernels.calls`).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from dpexec.engine import kernels

__all__ = ["host_kernel_of"]

_LSTM, _GRU = ("lstm", {"loops": "LOOPS"}), ("gru", {"loops": "LOOPS"})
_ADDED_UP = ("sequences", {"sums": "sums"})
_NEIGHBOURS = ("contexts", {"neighbours": "CONTEXTS"})
_ROWS = ("embedding", {"added": "added_rows"})
_FOUND: dict[str, tuple[str, dict[str, str]]] = {
    **dict.fromkeys(("lstm", "lstm_grad", "lstmp", "lstmp_grad"), _LSTM),
    **dict.fromkeys(("gru", "gru_grad", "fusion_gru"), _GRU),
    **dict.fromkeys(("fusion_lstm", "fused_embedding_fc_lstm"), _LSTM),
    "sequence_pool": ("sequences", {"sums": "sums", "maxima": "maxima"}),
    **dict.fromkeys(("sequence_expand_grad", "sequence_expand_as_grad"), _ADDED_UP),
    **dict.fromkeys(("fusion_seqpool_concat", "fusion_seqpool_cvm_concat"), _ADDED_UP),
    **dict.fromkeys(("sequence_conv", "sequence_conv_grad"), _NEIGHBOURS),
    "fusion_seqconv_eltadd_relu": _NEIGHBOURS,
    **dict.fromkeys(("lookup_table_grad", "lookup_table_v2_grad"), _ROWS),
}
"""By type of operator, the module with its kernels, and which of them its arguments are."""


def host_kernel_of(type: str, general: Callable[..., Any]) -> Callable[..., Any]:
    """What computes one operator of a program on processors; it is called as ``general`` is.

    Args:
        type: of the operator.
        general: its kernel for all arrays.
    """
    if type not in _FOUND:
        return general
    name, arguments = _FOUND[type]
    kernels.load()
    module = importlib.import_module(f"dpexec.engine.kernels.{name}")
    own = {argument: getattr(module, kernel) for argument, kernel in arguments.items()}
    return functools.partial(general, **own)
