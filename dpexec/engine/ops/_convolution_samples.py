"""Calls of convolutions that the tests compare with the real Paddle."""

from __future__ import annotations

from dpexec.engine.ir.opdef import Sample, SampleRng
from dpexec.engine.ops._fused_convolution import samples_with_fused
from dpexec.engine.ops._small_convolution import samples_of_eight_bits


def image_samples(r: SampleRng) -> list[Sample]:
    """Calls of ``conv2d``."""
    return [
        Sample({"Input": r.normal((2, 3, 5, 4)), "Filter": r.normal((4, 3, 3, 2))}),
        Sample(
            {"Input": r.normal((2, 4, 7, 6)), "Filter": r.normal((6, 2, 3, 3))},
            {"strides": [2, 1], "paddings": [1, 0, 2, 1], "dilations": [1, 2], "groups": 2},
        ),
        Sample(
            {"Input": r.normal((2, 5, 6, 3)), "Filter": r.normal((2, 3, 3, 2))},
            {"strides": [2, 2], "padding_algorithm": "SAME", "data_format": "NHWC"},
        ),
        Sample(
            {"Input": r.normal((2, 2, 7, 6)), "Filter": r.normal((3, 2, 3, 4))},
            {"strides": [2, 3], "padding_algorithm": "SAME", "dilations": [2, 2]},
        ),
        Sample(
            {"Input": r.normal((2, 2, 7, 6)), "Filter": r.normal((3, 2, 3, 4))},
            {"paddings": [1, 1], "padding_algorithm": "VALID"},
        ),
        Sample(  # the kernel reaches beyond the image, by less than a step
            {"Input": r.normal((2, 4, 3, 5)), "Filter": r.normal((2, 2, 4, 4))},
            {"strides": [3, 2], "paddings": [0, 1], "dilations": [1, 2], "groups": 2},
        ),
        Sample(
            {"Input": r.normal((2, 2, 5, 6)), "Filter": r.normal((2, 2, 2, 3))},
            {"strides": [1, 2], "paddings": [-1, 2, 1, -2]},
        ),
        *samples_with_fused(r),
        *samples_of_eight_bits(r),
    ]


def depthwise_samples(r: SampleRng) -> list[Sample]:
    """Calls of ``depthwise_conv2d``."""
    return [
        Sample(
            {"Input": r.normal((2, 3, 5, 4)), "Filter": r.normal((6, 1, 3, 3))},
            {"groups": 3, "paddings": [1, 1]},
        ),
        Sample(
            {"Input": r.normal((1, 2, 6, 5)), "Filter": r.normal((2, 1, 3, 2))},
            {"groups": 2, "strides": [2, 1], "dilations": [1, 2], "paddings": [1, 0, 0, 2]},
        ),
        Sample(
            {"Input": r.normal((2, 5, 4, 3)), "Filter": r.normal((3, 1, 3, 3))},
            {"groups": 3, "strides": [2, 2], "padding_algorithm": "SAME", "data_format": "NHWC"},
        ),
        Sample(
            {"Input": r.normal((2, 3, 2, 4)), "Filter": r.normal((3, 1, 3, 3))},
            {"groups": 3, "strides": [2, 1]},
        ),
    ]


def volume_samples(r: SampleRng) -> list[Sample]:
    """Calls of ``conv3d``."""
    return [
        Sample({"Input": r.normal((2, 3, 4, 5, 4)), "Filter": r.normal((4, 3, 2, 3, 2))}),
        Sample(
            {"Input": r.normal((1, 4, 4, 6, 5)), "Filter": r.normal((6, 2, 2, 2, 3))},
            {
                "strides": [1, 2, 1], "paddings": [1, 0, 2, 1, 0, 1], "dilations": [2, 1, 1],
                "groups": 2,
            },
        ),
        Sample(
            {"Input": r.normal((2, 3, 4, 5, 2)), "Filter": r.normal((2, 2, 3, 2, 2))},
            {"strides": [2, 2, 1], "padding_algorithm": "SAME", "data_format": "NDHWC"},
        ),
        Sample(
            {"Input": r.normal((2, 2, 3, 2, 4)), "Filter": r.normal((2, 2, 2, 3, 2))},
            {"strides": [1, 2, 3]},
        ),
    ]  # fmt: skip
