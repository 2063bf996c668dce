"""``fluid.incubate``: :mod:`fleet`, and :mod:`data_generator` for data sets of files."""

from dpexec.incubate import data_generator, fleet

__all__ = ["data_generator", "fleet"]
