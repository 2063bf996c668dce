"""``fluid.unique_name``."""

from typing import Any

from dpexec.core import unique_name
from dpexec.core.unique_name import UniqueNameGenerator, generate, guard, switch

__all__ = ["UniqueNameGenerator", "generate", "guard", "switch"]


def __getattr__(name: str) -> Any:
    """The generator in force, which changes."""
    if name == "generator":
        return unique_name._generator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
