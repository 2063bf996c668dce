"""Kernels for processors that are called from Python: for operators on sequences.

They are for where operators are no parts of pieces of code: only a run tells how many rows they
have, or a block runs them (:mod:`dpexec.kernels.calls`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["host_kernel_of"]


def host_kernel_of(type: str, general: Callable[..., Any]) -> Callable[..., Any]:
    """What computes one operator of a program on processors; it is called as ``general`` is.

    Args:
        type: of the operator.
        general: its kernel for all arrays.
    """
    if type in ("lstm", "lstm_grad", "lstmp", "lstmp_grad"):
        from dpexec.kernels import lstm

        return functools.partial(general, loops=lstm.LOOPS)
    if type in ("gru", "gru_grad"):
        from dpexec.kernels import gru

        return functools.partial(general, loops=gru.LOOPS)
    if type == "sequence_pool":
        from dpexec.kernels import sequences

        return functools.partial(general, sums=sequences.sums, maxima=sequences.maxima)
    if type in ("sequence_expand_grad", "sequence_expand_as_grad"):
        from dpexec.kernels import sequences

        return functools.partial(general, sums=sequences.sums)
    if type in ("sequence_conv", "sequence_conv_grad"):
        from dpexec.kernels import contexts

        return functools.partial(general, neighbours=contexts.CONTEXTS)
    if type in ("lookup_table_grad", "lookup_table_v2_grad"):
        from dpexec.kernels import embedding

        return functools.partial(general, added=embedding.added_rows)
    return general
