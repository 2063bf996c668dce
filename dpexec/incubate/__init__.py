"""``fluid.incubate``: what scripts of fluid 1.8 train with on several processes, :mod:`fleet`."""

from dpexec.incubate import fleet

__all__ = ["fleet"]
