"""The operators of Paddle 1.8.5 (CPU) that dpexec lacks, each with the reason."""

from __future__ import annotations

from pathlib import Path

from dpexec.engine.ir import opdef

__all__ = ["ABSENT", "here", "paddle_types"]

_CUDNN = "its kernel for CPUs only refuses; its weights lie as cuDNN wants them"
_TABLES = "tables on servers: lookup_table asks dpexec's own servers for rows"
_PSLIB = "of Baidu's servers pslib and BoxPS; Paddle's public builds make zeros or nothing of it"
_DYGRAPH = "runs a static program inside of dygraph, and stands in no saved program"

ABSENT = {
    "c_comm_init_all": "sets up NCCL among the GPUs of a process; refuses CPUs",
    "checkpoint_notify": "tells gRPC servers to save: fleet saves the tables of dpexec's servers",
    "cudnn_lstm": _CUDNN,
    "cudnn_lstm_grad": _CUDNN,
    "distributed_lookup_table": _TABLES,
    "fl_listen_and_serv": "a gRPC server for federated learning; listen_and_serv is here",
    "prefetch": _TABLES,
    "pull_box_sparse": _PSLIB,
    "pull_sparse": _PSLIB,
    "pull_sparse_v2": _PSLIB,
    "push_box_sparse": _PSLIB,
    "push_dense": _PSLIB,
    "push_sparse": _PSLIB,
    "push_sparse_v2": _PSLIB,
    "recv_save": "saves what gRPC servers hold: fleet saves the tables of dpexec's servers",
    "reverse_grad": "has no kernel: the gradient of reverse is reverse",
    "run_program": _DYGRAPH,
    "run_program_grad": _DYGRAPH,
}
"""Reasons by type. ``python -m dpexec.ops coverage`` prints them."""


def paddle_types() -> list[str]:
    """All types that Paddle 1.8.5 registers on CPUs, gradients included, sorted.

    ``tests/fixtures/record_operators.py`` recorded them.
    """
    return Path(__file__).with_name("paddle.txt").read_text("utf-8").split()


def here() -> list[str]:
    """The types of Paddle's operators that dpexec has."""
    known = opdef.registered()
    return [type for type in paddle_types() if type in known]
