"""``fluid.unique_name``."""

from typing import Any

from dpexec.compat.absent import missing_name
from dpexec.engine.core import unique_name
from dpexec.engine.core.unique_name import UniqueNameGenerator, generate, guard, switch

__all__ = ["UniqueNameGenerator", "generate", "guard", "switch"]

generate_with_ignorable_key = generate  # the key is ignored in fluid's eager mode alone


def __getattr__(name: str) -> Any:
    """The current generator; looked up on every access, because it changes."""
    if name == "generator":
        return unique_name._generator
    raise missing_name(__name__, name, __all__)
