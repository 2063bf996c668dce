"""``fluid.transpiler.details``: internals of the transpilers that programs use."""

from dpexec.transpiler.details.checkport import wait_server_ready
from dpexec.transpiler.details.program_utils import (
    block_to_code,
    delete_ops,
    find_op_by_input_arg,
    find_op_by_output_arg,
    op_to_code,
    program_to_code,
    variable_to_code,
)

__all__ = [
    "block_to_code",
    "delete_ops",
    "find_op_by_input_arg",
    "find_op_by_output_arg",
    "op_to_code",
    "program_to_code",
    "variable_to_code",
    "wait_server_ready",
]
