"""Kernels for GPUs, generated from the expressions of those for processors; they need numba.

The text of an expression (:class:`~dpexec.engine.kernels.generate.Pointwise`) or of an optimizer's
update becomes the body of a CUDA kernel, which CuPy compiles when it first runs.
"""
