"""``paddle.batch`` as a module, for ``from paddle.batch import batch``."""

from dpexec.reading.decorators import batch

__all__ = ["batch"]
