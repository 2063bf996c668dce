"""``fluid.contrib.op_freq_statistic``: frequencies of operators and of pairs of operators."""

from __future__ import annotations

from collections import Counter

from dpexec.engine.ir.program import Program

__all__ = ["op_freq_statistic"]


def op_freq_statistic(
    program: Program,
) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Count the operators of a program, and pairs of operators connected by a variable.

    Args:
        program: only its global block counts.

    Returns:
        ``(type, count)``, and ``("mul->relu", count)``, both with the most frequent first.
        Operators that write only parameters are left out of the first list.

    Raises:
        TypeError: ``program`` is no program.

    Source: ``fluid.contrib.op_freq_statistic``, which works under Python 2 only.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     y = fluid.layers.fc(fluid.data("x", [None, 4]), size=2)
        ...     alone, pairs = fluid.contrib.op_freq_statistic(fluid.default_main_program())
        >>> dict(alone)
        {'mul': 1, 'elementwise_add': 1}
    """
    if not isinstance(program, Program):
        raise TypeError(
            f"The input type should be Program. But you passed in {type(program).__name__}"
        )
    block = program.global_block()
    parameters = {param.name for param in block.iter_parameters()}
    single: Counter[str] = Counter()
    pairs: dict[str, list[str]] = {}
    writer: dict[str, str] = {}
    for op in block.ops:
        single[op.type] += not parameters.issuperset(op.output_arg_names)
        read = [name for name in op.input_arg_names if name not in parameters and name in writer]
        pairs.setdefault(op.type, []).extend(f"{writer[name]}->{op.type}" for name in read)
        writer.update(dict.fromkeys(op.output_arg_names, op.type))
    adjacent = Counter(pair for found in pairs.values() for pair in found)
    return (+single).most_common(), adjacent.most_common()
