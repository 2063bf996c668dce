"""Which variables of a program are parameters, persistable, or an optimizer's."""

from __future__ import annotations

from typing import Any

from dpexec.compiler import CompiledProgram
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.callsite import warn
from dpexec.engine.ir.program import Program, default_main_program
from dpexec.engine.ir.variable import Parameter, Variable

__all__ = [
    "get_program_parameter",
    "get_program_persistable_vars",
    "is_belong_to_optimizer",
    "is_parameter",
    "is_persistable",
]

_NOT_SAVED = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.READER)


def is_parameter(var: Variable) -> bool:
    """Whether a variable is a parameter.

    Args:
        var: a variable of a program.

    Returns:
        The answer.

    See Also:
        :func:`~dpexec.io.is_persistable`: what is kept.
        :func:`~dpexec.io.get_program_parameter`: all parameters.
        :func:`~dpexec.io.get_program_persistable_vars`: all that is kept.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     x = fluid.data("x", [None, 2])
        ...     y = fluid.layers.fc(x, size=1)
        >>> [v.name for v in main.list_vars() if fluid.io.is_parameter(v)]
        ['fc_0.w_0', 'fc_0.b_0']
    """
    return isinstance(var, Parameter)


def is_persistable(var: Variable) -> bool:
    """Whether a variable's value is kept after a run and can be saved.

    Args:
        var: a variable of a program.

    Returns:
        False also for the holders of feeds and fetches.

    Raises:
        TypeError: ``var`` is no variable.

    See Also:
        :func:`~dpexec.io.is_parameter`: what is trained.
        :func:`~dpexec.io.get_program_parameter`: all parameters.
        :func:`~dpexec.io.get_program_persistable_vars`: all that is kept.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     x = fluid.data("x", [None, 2])
        ...     y = fluid.layers.fc(x, size=1)
        >>> [v.name for v in main.list_vars() if fluid.io.is_persistable(v)]
        ['fc_0.w_0', 'fc_0.b_0']
    """
    return var.type not in _NOT_SAVED and var.persistable


def is_belong_to_optimizer(var: Variable) -> bool:
    """Whether a variable is state other than parameters: accumulators, counters, rates.

    Args:
        var: a variable of a program.

    Returns:
        True for persistable variables other than parameters and feeds.

    Raises:
        TypeError: ``var`` is no variable.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        ...     loss = fluid.layers.reduce_mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        ...     _ = fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        >>> kept = [variable for variable in main.list_vars() if variable.persistable]
        >>> sorted(variable.name for variable in kept if fluid.io.is_belong_to_optimizer(variable))
        ['fc_0.b_0_velocity_0', 'fc_0.w_0_velocity_0', 'learning_rate_0']
    """
    return is_persistable(var) and not is_parameter(var) and not var.need_check_feed


def get_program_parameter(program: Program) -> list[Variable]:
    """All parameters of a program.

    Args:
        program: a program with any number of blocks.

    Returns:
        The parameters of its blocks, in the order in which they were created.

    Raises:
        TypeError: ``program`` is no program.

    See Also:
        :func:`~dpexec.io.is_parameter`: what is trained.
        :func:`~dpexec.io.is_persistable`: what is kept.
        :func:`~dpexec.io.get_program_persistable_vars`: all that is kept.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     x = fluid.data("x", [None, 2])
        ...     y = fluid.layers.fc(x, size=1)
        >>> [parameter.name for parameter in fluid.io.get_program_parameter(main)]
        ['fc_0.w_0', 'fc_0.b_0']
    """
    return list(filter(is_parameter, program.list_vars()))


def get_program_persistable_vars(program: Program) -> list[Variable]:
    """All persistable variables of a program.

    Args:
        program: a program with any number of blocks.

    Returns:
        The variables of its blocks, in the order in which they were created.

    Raises:
        TypeError: ``program`` is no program.

    See Also:
        :func:`~dpexec.io.is_parameter`: what is trained.
        :func:`~dpexec.io.is_persistable`: what is kept.
        :func:`~dpexec.io.get_program_parameter`: all parameters.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     x = fluid.data("x", [None, 2])
        ...     y = fluid.layers.fc(x, size=1)
        >>> [variable.name for variable in fluid.io.get_program_persistable_vars(main)]
        ['fc_0.w_0', 'fc_0.b_0']
    """
    return list(filter(is_persistable, program.list_vars()))


def valid_program(program: Any) -> Program:
    """Resolve a program argument: None is the default program, a compiled one is unwrapped.

    Raises:
        TypeError: the argument is no program.
    """
    if program is None:
        return default_main_program()
    if isinstance(program, CompiledProgram):
        warn("The input is a CompiledProgram, this is not recommended.")
        program = program._program
    if not isinstance(program, Program):
        raise TypeError(
            "The type of input main_program is invalid, expected type is fluid.Program, "
            f"but received {type(program)}"
        )
    return program
