"""``WeightQuantization``: saved nets with weights in one or two bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dpexec import io
from dpexec.contrib.slim.quantization.graphs import load
from dpexec.contrib.slim.quantization.thresholds import rate_threshold
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.core.scope import global_scope
from dpexec.engine.executors.executor import Executor
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._quantization import largest_level

__all__ = ["WeightQuantization"]

_TYPES = ("conv2d", "depthwise_conv2d", "mul")
_KINDS = ("channel_wise_abs_max", "abs_max")


class WeightQuantization:
    """Stores the weights of a saved net as integers, with their scales as attributes.

    Args:
        model_dir: directory of the net, written by ``save_inference_model``.
        model_filename: of the program; None is ``__model__``.
        params_filename: of all parameters, if they are in one file.

    Example:
        >>> import pathlib, tempfile
        >>> import dpexec as fluid
        >>> from dpexec.contrib.slim.quantization import WeightQuantization
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     out = fluid.layers.fc(fluid.data("x", [None, 4]), 2)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as folder:
        ...     _ = exe.run(startup)
        ...     _ = fluid.io.save_inference_model(folder + "/model", ["x"], [out], exe, main)
        ...     quantizer = WeightQuantization(folder + "/model")
        ...     quantizer.quantize_weight_to_int(
        ...         folder + "/small", quantizable_op_type=["mul"], weight_bits=8
        ...     )
        ...     path = pathlib.Path(folder, "small", "quantized_model", "__model__")
        ...     small = fluid.Program.parse_from_string(path.read_bytes())
        >>> (op,) = (op for op in small.global_block().ops if op.type == "mul")
        >>> len(op.attr("fc_0.w_0_quant_scale"))  # one for each column of the weight
        2
    """

    _supported_quantizable_op_type: ClassVar = list(_TYPES)
    _supported_weight_quantize_type: ClassVar = list(_KINDS)

    def __init__(
        self,
        model_dir: str,
        model_filename: str | None = None,
        params_filename: str | None = None,
    ) -> None:
        self._files = (model_dir, model_filename, params_filename)

    def quantize_weight_to_int(
        self,
        save_model_dir: str,
        save_model_filename: str | None = None,
        save_params_filename: str | None = None,
        quantizable_op_type: Sequence[str] = ("conv2d", "mul"),
        weight_bits: int = 8,
        weight_quantize_type: str = "channel_wise_abs_max",
        generate_test_model: bool = False,
        threshold_rate: float = 0.0,
    ) -> None:
        """Save the net with integers, for engines that read these.

        Args:
            save_model_dir: gets a directory ``quantized_model``.
            save_model_filename: of the program; None is ``__model__``.
            save_params_filename: of all parameters; None is a file for each.
            quantizable_op_type: whose weights: of ``conv2d``, ``depthwise_conv2d`` and ``mul``.
            weight_bits: 8 or 16.
            weight_quantize_type: ``abs_max``, or ``channel_wise_abs_max`` with a scale for each
                output channel.
            generate_test_model: also save a net in ``test_model`` with the numbers that the
                integers stand for, which runs as the original did.
            threshold_rate: the part of the weights that may lie beyond the largest integer; for
                ``abs_max``.

        Raises:
            AssertionError: an argument is not supported.
            OSError: the directory cannot be written.
        """
        for type in quantizable_op_type:
            if type not in _TYPES:
                raise AssertionError(f"{type} is not supported for weight quantization.")
        if weight_bits not in (8, 16):
            raise AssertionError(f"weight_bits is {weight_bits}, but should be 8 or 16.")
        if weight_quantize_type not in _KINDS:
            raise AssertionError(
                f"weight_quantize_type is {weight_quantize_type!r}, but should be one of {_KINDS}."
            )
        rate = threshold_rate if weight_quantize_type == "abs_max" else None
        for name in (
            ("quantized_model", "test_model") if generate_test_model else ("quantized_model",)
        ):
            exe = Executor(CPUPlace())
            program, feeds, targets = io.load_inference_model(self._files[0], exe, *self._files[1:])
            kept = {var.name for var in program.list_vars() if var.persistable}
            for op in (op for block in program.blocks for op in block.ops):
                for weight in op.input_arg_names if op.type in quantizable_op_type else ():
                    if weight in kept:
                        _quantize(op, weight, weight_bits, rate, name == "test_model")
            io.save_inference_model(
                os.path.join(save_model_dir, name),
                feeds,
                targets,
                exe,
                program,
                save_model_filename,
                save_params_filename,
            )


def _quantize(op: Operator, name: str, bits: int, rate: float | None, back: bool) -> None:
    """Store a weight as integers.

    Args:
        op: reads it, and gets its scales.
        name: of the weight.
        bits: of the integers.
        rate: the part that may lie beyond the largest one; None for a scale per channel.
        back: store the numbers that the integers stand for instead.
    """
    value = load(global_scope(), name)
    if rate is None:
        channels = value if op.type != "mul" else np.moveaxis(value, -1, 0)
        largest: Any = np.abs(channels.reshape(len(channels), -1)).max(axis=1)
    else:
        largest = np.abs(value).max()
        if rate >= 1e-10:
            largest = np.float32(rate_threshold(value, rate))
            value = np.clip(value, -largest, largest)
    scales = largest / value.dtype.type(largest_level(bits))
    shape = [-1] + [1] * (value.ndim - 1) if op.type != "mul" else [-1]
    factor = np.reshape(scales, shape) if rate is None else scales
    levels = np.around(value / np.where(factor > 0, factor, 1))
    levels = levels.astype(np.int8 if bits == 8 else np.int16)
    stored = (levels * factor).astype(np.float32) if back else levels
    global_scope().var(name).get_tensor().set(stored, CPUPlace())
    kind = "channel_wise_abs_max" if rate is None else "abs_max"
    op._set_attr("quantization_type", f"post_weight_{kind}")
    op._set_attr("quantize_weight_bits", bits)
    op._set_attr(f"{name}_quant_scale", np.reshape(scales, -1).tolist())
