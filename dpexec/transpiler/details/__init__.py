"""``fluid.transpiler.details``: internals of the transpilers that programs use."""

from dpexec.engine.ir.undo import build_whole as _build_whole
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

_build_whole(globals(), __all__, __name__)
