"""Operators of programs for parameter servers: a trainer's exchange, and a server's service.

No kernel runs: :mod:`dpexec.engine.parameter_server` does their work in one exchange at the end of
a step. Source: Paddle ops ``send``, ``send_barrier``, ``recv``,
``fetch_barrier``, ``listen_and_serv``.
"""

from __future__ import annotations

from typing import Any

from dpexec.engine.ops._by_executor import executor_op


@executor_op(
    "send",
    inputs="X[]",
    outputs="Out[]?",
    attrs={
        "epmap": ["127.0.0.1:6164"],
        "merge_add": False,
        "num": 0,
        "sections": [],
        "send_varnames": [],
        "trainer_id": 0,
        "use_send_handler": True,
    },
)
def send(xp: Any, x: Any) -> None:
    """Send variables to the servers in ``epmap``, one to each."""


@executor_op(
    "send_barrier",
    inputs="X[]?",
    outputs="Out[]?",
    attrs={"endpoints": ["127.0.0.1:6164"], "half_async": False, "trainer_id": 0},
)
def send_barrier(xp: Any, x: Any) -> None:
    """Tell servers that all gradients of a step are sent."""


@executor_op(
    "recv",
    inputs="X[]?",
    outputs="Out[]",
    attrs={
        "do_not_run": 0,
        "epmap": [],
        "recv_varnames": [],
        "trainer_id": 0,
        "varnames": [],
        "with_barrier": True,
    },
)
def recv(xp: Any, x: Any) -> None:
    """Take variables from the servers in ``epmap``, one from each."""


@executor_op(
    "fetch_barrier",
    inputs="X[]?",
    outputs="Out[]?",
    attrs={"endpoints": ["127.0.0.1:6164"], "trainer_id": 0},
)
def fetch_barrier(xp: Any, x: Any) -> None:
    """Tell servers that all parameters have come."""


@executor_op(
    "listen_and_serv",
    inputs="X[]?",
    outputs="",
    attrs={
        "Fanin": 1,
        "checkpint_block_id": -1,
        "dc_asgd": False,
        "distributed_mode": 0,
        "endpoint": "127.0.0.1:6164",
        "grad_to_block_id": [],
        "lr_decay_block_id": -1,
        "optimize_blocks": [],
        "prefetch_var_name_to_block_id": [],
        "pserver_id": -1,
        "rpc_get_thread_num": 1,
        "rpc_prefetch_thread_num": 1,
        "rpc_send_thread_num": 1,
        "sparse_grad_to_param": [],
    },
)
def listen_and_serv(xp: Any, x: Any) -> None:
    """Update parameters with the gradients of ``Fanin`` trainers, until all of them are done.

    ``max_staleness`` is dpexec's own: how many steps an asynchronous trainer may be ahead.
    """
