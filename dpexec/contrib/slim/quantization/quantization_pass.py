"""``fluid.contrib.slim.quantization.quantization_pass``: the passes, each in a file of its own."""

from dpexec.contrib.slim.quantization.freezing import (
    ConvertToInt8Pass,
    QuantizationFreezePass,
    TransformForMobilePass,
)
from dpexec.contrib.slim.quantization.out_scales import (
    OutScaleForInferencePass,
    OutScaleForTrainingPass,
)
from dpexec.contrib.slim.quantization.pairs import AddQuantDequantPass
from dpexec.contrib.slim.quantization.transforming import QuantizationTransformPass

__all__ = [
    "AddQuantDequantPass",
    "ConvertToInt8Pass",
    "OutScaleForInferencePass",
    "OutScaleForTrainingPass",
    "QuantizationFreezePass",
    "QuantizationTransformPass",
    "TransformForMobilePass",
]
