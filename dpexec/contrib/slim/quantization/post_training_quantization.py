"""Quantization of trained nets, without training again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec import io
from dpexec.contrib.slim.quantization.freezing import QuantizationFreezePass
from dpexec.contrib.slim.quantization.graphs import (
    inputs_of,
    load,
    out_scaled,
    outputs_of,
    paired,
    weighted,
)
from dpexec.contrib.slim.quantization.pairs import AddQuantDequantPass
from dpexec.contrib.slim.quantization.thresholds import kl_threshold
from dpexec.contrib.slim.quantization.transforming import QuantizationTransformPass
from dpexec.contrib.slim.quantization.weights import WeightQuantization
from dpexec.engine.core.scope import Scope, global_scope
from dpexec.engine.executors.executor import Executor
from dpexec.engine.graph.ir_graph import IrGraph
from dpexec.engine.graph.node_graph import Graph
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program

__all__ = ["PostTrainingQuantization", "WeightQuantization"]


def _supported() -> list[str]:
    return list(dict.fromkeys((*weighted(), *paired())))


class PostTrainingQuantization:
    """Runs a saved net on samples to find scales, and quantizes it with them.

    Args:
        executor: runs the net.
        scope: gets its variables; None is the global one.
        model_dir: directory of the net, written by ``save_inference_model``.
        model_filename: of the program; None is ``__model__``.
        params_filename: of all parameters, if they are in one file.
        batch_generator: yields batches; these may hold sequences.
        sample_generator: yields single samples instead.
        batch_size: of the batches that samples make.
        batch_nums: number of batches to use; None for all.
        algo: where scales come from: ``KL`` keeps most of a distribution, ``abs_max`` all of it;
            ``min_max`` leaves the net as it is, with the least and largest values as attributes.
        quantizable_op_type: the operators to quantize.
        is_full_quantize: quantize all operators that are supported.
        activation_bits: bits of the levels of inputs.
        weight_bits: bits of the levels of weights.
        activation_quantize_type: which quantizers the new net has: ``range_abs_max`` and
            ``moving_average_abs_max`` hold the scales, ``abs_max`` finds its own.
        weight_quantize_type: ``abs_max``, or ``channel_wise_abs_max`` with a scale for each output
            channel of convolutions.
        is_use_cache_file: keep the samples for ``KL`` in files instead of memory.
        cache_dir: where these are.

    Raises:
        AssertionError: an argument is missing or not supported.

    Example:
        >>> import tempfile
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec.contrib.slim.quantization import PostTrainingQuantization
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     out = fluid.layers.fc(fluid.data("x", [None, 4]), 2)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as folder:
        ...     _ = exe.run(startup)
        ...     _ = fluid.io.save_inference_model(folder + "/model", ["x"], [out], exe, main)
        ...     quantizer = PostTrainingQuantization(
        ...         exe,
        ...         model_dir=folder + "/model",
        ...         sample_generator=lambda: ([row] for row in np.eye(4, dtype="float32")),
        ...         batch_size=2,
        ...         algo="abs_max",
        ...     )
        ...     program = quantizer.quantize()
        ...     quantizer.save_quantized_model(folder + "/quantized")
        >>> [op.type for op in program.global_block().ops][1:4]
        ['fake_quantize_range_abs_max', 'mul', 'fake_dequantize_max_abs']
    """

    def __init__(
        self,
        executor: Executor | None = None,
        scope: Scope | None = None,
        model_dir: str | None = None,
        model_filename: str | None = None,
        params_filename: str | None = None,
        batch_generator: Callable[[], Iterable[Any]] | None = None,
        sample_generator: Callable[[], Iterable[Any]] | None = None,
        batch_size: int = 10,
        batch_nums: int | None = None,
        algo: str = "KL",
        quantizable_op_type: Sequence[str] = ("conv2d", "depthwise_conv2d", "mul"),
        is_full_quantize: bool = False,
        activation_bits: int = 8,
        weight_bits: int = 8,
        activation_quantize_type: str = "range_abs_max",
        weight_quantize_type: str = "channel_wise_abs_max",
        is_use_cache_file: bool = False,
        cache_dir: str = "./temp_post_training",
    ) -> None:
        if executor is None:
            raise AssertionError("The executor cannot be None.")
        if model_dir is None:
            raise AssertionError("The model_dir cannot be None.")
        if not sample_generator and not batch_generator:
            raise AssertionError(
                "The sample_generator and batch_generator cannot be None in the same time."
            )
        if batch_size <= 0:
            raise AssertionError("The batch_size should be greater than 0.")
        activations = ("range_abs_max", "moving_average_abs_max", "abs_max")
        for what, given, known in (
            ("algo", algo, ("KL", "abs_max", "min_max")),
            ("activation_quantize_type", activation_quantize_type, activations),
            ("weight_quantize_type", weight_quantize_type, ("abs_max", "channel_wise_abs_max")),
        ):
            if given not in known:
                raise AssertionError(f"The {what} is {given!r}, but should be one of {known}.")
        for type in quantizable_op_type:
            if type not in _supported():
                raise AssertionError(f"{type} is not supported for quantization.")
        self._executor, self._scope = executor, scope or global_scope()
        self._files = (model_dir, model_filename, params_filename)
        self._samples, self._batches = sample_generator, batch_generator
        self._batch_size, self._batch_nums = batch_size, batch_nums
        self._algo = algo
        self._types = _supported() if is_full_quantize else list(quantizable_op_type)
        self._activation_bits, self._weight_bits = activation_bits, weight_bits
        self._activation_type, self._weight_type = activation_quantize_type, weight_quantize_type
        self._cache_dir = cache_dir if is_use_cache_file else None
        self._program = Program()
        self._feeds: list[str] = []
        self._targets: list[Any] = []

    def quantize(self) -> Program:
        """Load the net, run it on the samples, and quantize it.

        Returns:
            The program of the quantized net; its weights are in the scope.

        Raises:
            AssertionError: there is no batch.
        """
        from dpexec.executor import scope_guard

        directory, model, params = self._files
        with scope_guard(self._scope):
            self._program, self._feeds, self._targets = io.load_inference_model(
                directory, self._executor, model, params
            )
            weights, others = self._names()
            found = self._look(others)
        least, largest = found.scales()
        for name in weights:
            value = load(self._scope, name)
            rows = value.reshape(len(value), -1)
            least[name], largest[name] = rows.min(axis=1).tolist(), rows.max(axis=1).tolist()
            if self._algo != "min_max":
                largest[name] = np.abs(rows).max(axis=1).tolist()
                if self._algo == "KL" and self._weight_type == "abs_max":
                    largest[name] = max(largest[name])
        if self._algo == "min_max":
            self._note_inputs(least, largest)
        else:
            self._program = self._quantized({name: largest[name] for name in others})
        self._note_outputs(least, largest)
        return self._program

    def save_quantized_model(
        self,
        save_model_path: str,
        model_filename: str | None = None,
        params_filename: str | None = None,
    ) -> None:
        """Save the net quantized by :meth:`quantize`.

        Args:
            save_model_path: the directory.
            model_filename: of the program; None is ``__model__``.
            params_filename: of all parameters; None is a file for each.

        Raises:
            OSError: the directory cannot be written.
        """
        from dpexec.executor import scope_guard

        with scope_guard(self._scope):
            io.save_inference_model(
                save_model_path,
                self._feeds,
                self._targets,
                self._executor,
                self._program,
                model_filename,
                params_filename,
            )

    def _noted(self) -> list[Operator]:
        """The operators whose outputs are looked at."""
        ops = self._program.global_block().ops
        return [op for op in ops if op.type in self._types or out_scaled(op)]

    def _names(self) -> tuple[list[str], list[str]]:
        """The weights to look at, and the other variables."""
        names: dict[str, None] = {}
        for op in self._noted():
            if op.type in self._types:
                names.update(dict.fromkeys(inputs_of(op)))
            names.update(dict.fromkeys(outputs_of(op)))
        kept = {var.name for var in self._program.list_vars() if var.persistable}
        return [name for name in names if name in kept], [n for n in names if n not in kept]

    def _look(self, names: list[str]) -> _Ranges | _Distributions:
        """Run the net and note what variables hold."""
        block = self._program.global_block()
        loader: Any = io.DataLoader.from_generator(
            feed_list=[block.var(name) for name in self._feeds],
            capacity=3 * self._batch_size,
            iterable=True,
        )
        place = self._executor.place
        if self._samples is not None:
            loader.set_sample_generator(self._samples, self._batch_size, True, place)
        else:
            loader.set_batch_generator(self._batches, place)
        found = _Distributions(self._cache_dir) if self._algo == "KL" else _Ranges(self._algo)
        for number, feed in enumerate(loader(), start=1):
            values = self._executor.run(self._program, feed, names, return_numpy=False)
            for name, value in zip(names, values, strict=True):
                found.add(name, np.array(value))
            if number == self._batch_nums:
                break
        return found

    def _quantized(self, scales: Mapping[str, float]) -> Program:
        """The program with quantizers, these scales, and weights as levels."""
        graph = IrGraph(Graph(self._program.desc), for_test=True)
        place = self._executor.place
        QuantizationTransformPass(
            self._scope,
            place,
            self._weight_bits,
            self._activation_bits,
            self._activation_type,
            self._weight_type,
            quantizable_op_type=[type for type in weighted() if type in self._types],
        ).apply(graph)
        types = [type for type in paired() if type in self._types]
        AddQuantDequantPass(self._scope, place, quantizable_op_type=types).apply(graph)
        for name, scale in scales.items():
            for kept in (f"{name}.scale", f"{name}.quant_dequant.scale"):
                if self._scope.find_var(kept) is not None:
                    self._scope.var(kept).get_tensor().set(np.array([scale], np.float32), place)
        QuantizationFreezePass(
            self._scope, place, self._weight_bits, self._activation_bits, self._weight_type
        ).apply(graph)
        return graph.to_program()

    def _note_inputs(self, least: Mapping[str, Any], largest: Mapping[str, Any]) -> None:
        for op in self._noted():
            for name in inputs_of(op) if op.type in self._types else ():
                op._set_attr(f"{name}.min", least[name])
                op._set_attr(f"{name}.max", largest[name])

    def _note_outputs(self, least: Mapping[str, Any], largest: Mapping[str, Any]) -> None:
        for op in self._noted():
            names = outputs_of(op)
            if len(names) != 1:
                raise AssertionError(f"{op.type} must have one output, but has {names}")
            if self._algo == "min_max":
                op._set_attr("out_min", least[names[0]])
                op._set_attr("out_max", largest[names[0]])
            else:
                op._set_attr("out_threshold", largest[names[0]])
            if op.type in self._types:
                op._set_attr("quantization_type", f"post_{self._algo.lower()}")


class _Ranges:
    """Least and largest values of variables, or of their magnitudes.

    Args:
        algo: ``abs_max`` for magnitudes.
    """

    def __init__(self, algo: str) -> None:
        self._magnitudes = algo == "abs_max"
        self._least: dict[str, Any] = {}
        self._largest: dict[str, Any] = {}

    def add(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Note what a variable holds."""
        value = np.abs(value) if self._magnitudes else value
        least, largest = float(value.min()), float(value.max())
        self._least[name] = min(self._least.get(name, least), least)
        self._largest[name] = max(self._largest.get(name, largest), largest)

    def scales(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The least and the largest values by variable."""
        if not self._largest:
            raise AssertionError("there is no batch to look at")
        return self._least, self._largest


class _Distributions:
    """Magnitudes of variables.

    Args:
        directory: where they are kept; None is memory.
    """

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._kept: dict[str, list[Any]] = {}
        if directory is not None:
            os.makedirs(directory, exist_ok=True)

    def add(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Note what a variable holds."""
        kept = self._kept.setdefault(name, [])
        magnitudes: Any = np.abs(value).ravel()
        if self._directory is not None:
            path = os.path.join(self._directory, f"{name.replace(os.sep, '_')}_{len(kept)}.npy")
            np.save(path, magnitudes)
            magnitudes = path
        kept.append(magnitudes)

    def scales(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """No least values, and the thresholds by variable; files are removed."""
        if not self._kept:
            raise AssertionError("there is no batch to look at")
        return {}, {name: kl_threshold(self._taken(kept)) for name, kept in self._kept.items()}

    def _taken(self, kept: list[Any]) -> np.ndarray[Any, Any]:
        if self._directory is None:
            return np.concatenate(kept)
        values = [np.load(path) for path in kept]
        for path in kept:
            os.remove(path)
        return np.concatenate(values)
