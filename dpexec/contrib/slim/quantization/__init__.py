"""``fluid.contrib.slim.quantization``: nets that compute with integers of few levels."""

from dpexec.contrib.slim.quantization import post_training_quantization, quantization_pass
from dpexec.contrib.slim.quantization.post_training_quantization import (
    PostTrainingQuantization,
    WeightQuantization,
)
from dpexec.contrib.slim.quantization.quantization_pass import (
    AddQuantDequantPass,
    ConvertToInt8Pass,
    OutScaleForInferencePass,
    OutScaleForTrainingPass,
    QuantizationFreezePass,
    QuantizationTransformPass,
    TransformForMobilePass,
)

__all__ = [
    "AddQuantDequantPass",
    "ConvertToInt8Pass",
    "OutScaleForInferencePass",
    "OutScaleForTrainingPass",
    "PostTrainingQuantization",
    "QuantizationFreezePass",
    "QuantizationTransformPass",
    "TransformForMobilePass",
    "WeightQuantization",
    "post_training_quantization",
    "quantization_pass",
]
