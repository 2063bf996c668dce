"""``memory_optimize`` and ``release_memory``, which fluid 1.8 keeps for old programs."""

from __future__ import annotations

import logging
from typing import Any

from dpexec.engine.ir.program import Program

__all__ = ["memory_optimize", "release_memory"]

_logger = logging.getLogger(__name__)


def memory_optimize(
    input_program: Program,
    skip_opt_set: Any = None,
    print_log: bool = False,
    level: int = 0,
    skip_grads: bool = True,
) -> None:
    """Leave the program as it is, and warn: fluid does nothing here since version 1.6.

    Args:
        input_program: ignored.
        skip_opt_set: ignored.
        print_log: ignored.
        level: ignored.
        skip_grads: ignored.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> fluid.memory_optimize(main)  # logs a warning; the call may go
        >>> len(main.global_block().ops)
        0
    """
    _logger.warning(
        "memory_optimize() is deprecated and leaves the program as it is: memory is freed as soon "
        "as nobody reads it any more"
    )


def release_memory(input_program: Program, skip_opt_set: Any = None) -> None:
    """Leave the program as it is, and warn: fluid does nothing here since version 1.6.

    Args:
        input_program: ignored.
        skip_opt_set: ignored.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> fluid.release_memory(main)  # logs a warning; the call may go
        >>> len(main.global_block().ops)
        0
    """
    _logger.warning("release_memory() is deprecated and leaves the program as it is")
