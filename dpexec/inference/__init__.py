"""Prediction with saved models: the predictor interface of ``fluid.core``."""

from dpexec.inference.config import AnalysisConfig, NativeConfig
from dpexec.inference.predictors import (
    AnalysisPredictor,
    NativePaddlePredictor,
    PaddlePredictor,
    create_paddle_predictor,
)
from dpexec.inference.tensors import (
    PaddleBuf,
    PaddleDType,
    PaddleTensor,
    ZeroCopyTensor,
    paddle_dtype_size,
    paddle_tensor_to_bytes,
)

__all__ = [
    "AnalysisConfig",
    "AnalysisPredictor",
    "NativeConfig",
    "NativePaddlePredictor",
    "PaddleBuf",
    "PaddleDType",
    "PaddlePredictor",
    "PaddleTensor",
    "ZeroCopyTensor",
    "create_paddle_predictor",
    "paddle_dtype_size",
    "paddle_tensor_to_bytes",
]
