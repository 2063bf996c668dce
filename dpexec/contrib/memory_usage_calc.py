"""``fluid.contrib.memory_usage``: an estimate of the memory of a program's variables."""

from __future__ import annotations

import math

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir import roles
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable

__all__ = ["memory_usage"]


def memory_usage(program: Program, batch_size: int) -> tuple[float, float, str]:
    """Estimate the memory of all variables that a program's operators write.

    Executors need less, since they free temporaries during a run.

    Args:
        program: only its global block counts.
        batch_size: value of unknown dimensions; more than 0.

    Returns:
        A lower and an upper estimate (the sum plus 5 and 10 percent), and their unit: "B", "KB"
        or "MB".

    Raises:
        TypeError: ``program`` is no program.
        ValueError: the batch size is not positive, or a variable has two unknown dimensions.

    Source: ``fluid.contrib.memory_usage``.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     y = fluid.layers.fc(fluid.data("x", [None, 1000]), size=1000)
        ...     fluid.contrib.memory_usage(fluid.default_main_program(), batch_size=10)[2]
        'KB'
    """
    if not isinstance(program, Program):
        raise TypeError(
            "Calculating Memory Usage requires Program as its Parameter. But you passed in "
            f"{type(program)}"
        )
    if batch_size <= 0:
        raise ValueError(f"The batch size need to be positive, but received {batch_size}.")
    block = program.global_block()
    names = {name for op in block.ops for name in op.output_arg_names} - {roles.EMPTY}
    total = float(sum(_size(block.vars[name], batch_size) for name in names))
    unit = "B"
    for larger in ("KB", "MB"):
        if total > 1024:
            total, unit = total / 1024, larger
    return total * 1.05, total * 1.1, unit


def _size(var: Variable, batch_size: int) -> int:
    if var.type != VarType.LOD_TENSOR:
        return 0
    if sum(dim < 0 for dim in var.shape) > 1:
        raise ValueError(f"Var {var.name} has more than one negative dim: {var.shape}")
    count = math.prod(dim if dim >= 0 else batch_size * -dim for dim in var.shape)
    return int(count * to_numpy(var.dtype).itemsize)
