"""The libraries that run operators on GPUs."""

from __future__ import annotations

from dpexec.engine.core.places import CUDAPlace, array_module, is_compiled_with_cuda
from dpexec.engine.gpu import nccl
from dpexec.engine.kernels.gpu import convolutions, cublaslt

__all__ = ["libraries"]


def libraries() -> dict[str, str]:
    """The libraries in use on the GPUs of this process, by purpose; empty without GPUs."""
    if not is_compiled_with_cuda():
        return {}
    cupy = array_module(CUDAPlace(0))
    cudnn, exchange = convolutions.library(), nccl.library(cupy)
    return {
        "kernels": f"CuPy {cupy.__version__}",
        "convolutions": f"cuDNN {cudnn.backend_version()}" if cudnn else "products of matrices",
        "biases of products": "cuBLASLt" if cublaslt.library() else "launches of their own",
        "sums": f"NCCL {exchange.get_version()}" if exchange.available else "peer copies",
    }
