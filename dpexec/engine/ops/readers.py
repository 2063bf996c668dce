"""Operators of readers, whose work the executor does itself.

A program that reads its own data contains ``read`` and the operators that create the reader. No
kernel runs: the executor gets batches from the program's loaders and feeds them. Source: Paddle ops
``create_py_reader``, ``create_double_buffer_reader``, ``read``.
"""

from __future__ import annotations

from typing import Any

from dpexec.engine.ops._by_executor import executor_op


@executor_op(
    "create_py_reader",
    inputs="blocking_queue",
    outputs="Out",
    lazy=True,  # the queue lives in the scope alone
    attrs={
        "device_count": 1,
        "device_index": 0,
        "dtypes": [],
        "lod_levels": [],
        "need_check_feed": [],
        "ranks": [],
        "shape_concat": [],
        "use_data_config": True,
    },
)
def create_py_reader(xp: Any, queue: Any) -> None:
    """A reader of the batches that Python puts into a queue."""


@executor_op(
    "create_double_buffer_reader",
    inputs="UnderlyingReader",
    outputs="Out",
    attrs={"place": "AUTO"},
)
def create_double_buffer_reader(xp: Any, reader: Any) -> None:
    """A reader that copies the next batch to the device during the current step."""


@executor_op(
    "read",
    inputs="Reader",
    outputs="Out[]",
    attrs={"drop_last": True, "infer_out": True, "throw_eof_exp": True},
    ends_loops=True,
)
def read(xp: Any, reader: Any) -> None:
    """The next batch of a reader: one variable for each field."""
