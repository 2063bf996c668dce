"""Kernels for GPUs.

Convolutions use cuDNN if it is installed, products with a bias use cuBLASLt; pooling, batch norm,
layer norm and softmax are short CUDA kernels. :mod:`dpexec.engine.kernels.gpu.generated` has the
kernels generated from the expressions of CPU kernels. An operator without a GPU kernel, or with
values that the kernel does not support, runs its declaration in :mod:`dpexec.engine.ops` on CuPy.
"""
