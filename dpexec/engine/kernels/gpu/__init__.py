"""Kernels for GPUs.

Convolutions are cuDNN's where it is installed, products with a bias cuBLASLt's; pooling, batch
norm, layer norm and softmax are kernels of a few lines. In
:mod:`dpexec.engine.kernels.gpu.generated` are those that are generated from the expressions of
kernels for processors. An operator that has no such kernel, or whose values it does not take, runs
as it is declared in :mod:`dpexec.engine.ops`, on CuPy.
"""
