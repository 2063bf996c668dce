"""Names that are unique within a program: ``fluid.unique_name``."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator

__all__ = ["generate", "guard", "switch"]


class UniqueNameGenerator:
    """Counts per key: ``generate("fc")`` gives ``fc_0``, then ``fc_1``.

    Args:
        prefix: put before every name.

    Example:
        >>> import dpexec as fluid
        >>> names = fluid.unique_name.UniqueNameGenerator("encoder_")
        >>> names("fc"), names("fc")
        ('encoder_fc_0', 'encoder_fc_1')
    """

    def __init__(self, prefix: str | None = None) -> None:
        self.ids: defaultdict[str, int] = defaultdict(int)
        self.prefix = prefix or ""

    def __call__(self, key: str) -> str:
        number = self.ids[key]
        self.ids[key] += 1
        return f"{self.prefix}{key}_{number}"


BUILDING = threading.RLock()
"""Held by what builds a program in any thread: names and default programs are everyone's."""
_generator = UniqueNameGenerator()
_parameter_checker: object | None = None


def generate(key: str) -> str:
    """The next unused name that starts with ``key``.

    Args:
        key: the prefix.

    Returns:
        The prefix, ``_`` and a number, such as ``"fc_0"``.

    Raises:
        TypeError: the key is no string.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.unique_name.guard():
        ...     fluid.unique_name.generate("fc"), fluid.unique_name.generate("fc")
        ('fc_0', 'fc_1')
    """
    if not isinstance(key, str):
        raise TypeError(f"names start with a string, but received {key!r:.80}")
    return _generator(key)


def switch(
    new_generator: UniqueNameGenerator | None = None,
    new_para_name_checker: object | None = None,
) -> tuple[UniqueNameGenerator, object | None]:
    """Replace the generator and return the old state; restore it with ``switch(*old)``.

    Args:
        new_generator: counts from now on; None for a fresh one.
        new_para_name_checker: kept and returned, but not used.

    Returns:
        The generator and the checker that were in use.

    Example:
        >>> import dpexec as fluid
        >>> before = fluid.unique_name.switch()  # begins to count anew
        >>> fluid.unique_name.generate("fc")
        'fc_0'
        >>> _ = fluid.unique_name.switch(*before)
    """
    global _generator, _parameter_checker
    old = (_generator, _parameter_checker)
    _generator = new_generator or UniqueNameGenerator()
    _parameter_checker = new_para_name_checker
    return old


@contextlib.contextmanager
def guard(new_generator: str | bytes | UniqueNameGenerator | None = None) -> Iterator[None]:
    """Use a fresh set of counters inside the ``with`` block.

    Args:
        new_generator: a generator, or the prefix of a fresh one.

    Yields:
        None.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.unique_name.guard("encoder_"):
        ...     fluid.unique_name.generate("fc")
        'encoder_fc_0'
    """
    if isinstance(new_generator, bytes):
        new_generator = new_generator.decode()
    if isinstance(new_generator, str):
        new_generator = UniqueNameGenerator(new_generator)
    old = switch(new_generator)
    try:
        yield
    finally:
        switch(*old)
