"""Which model a predictor runs, and where."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, NoReturn

from dpexec.engine.core.places import CPUPlace, CUDAPlace, Place, array_module
from dpexec.engine.kernels import onednn
from dpexec.engine.passes.prediction import OF_INTEGERS
from dpexec.inference.model import Model, load_model

__all__ = ["AnalysisConfig", "NativeConfig"]


def _refuse(what: str) -> NoReturn:
    raise NotImplementedError(f"dpexec has no {what}: it runs the model's own operators")


def _number_of_threads(number: int) -> int:
    if not isinstance(number, int) or number < 1:
        raise ValueError(f"a request is worked on by 1 thread or more, not by {number!r}")
    return number


class NativeConfig:
    """The older configuration, with plain attributes.

    Attributes:
        model_dir: a directory with ``__model__`` and a file for each parameter.
        prog_file: the file of the program, if there is no ``model_dir``.
        param_file: the file of all parameters, if there is no ``model_dir``.
        use_gpu: whether to run on a GPU.
        device: index of the GPU.
        fraction_of_gpu_memory: stored, but without effect: memory is allocated as needed.
        specify_input_name: identify inputs by name instead of order.

    Example:
        >>> from dpexec import core
        >>> config = core.NativeConfig()
        >>> config.model_dir, config.use_gpu = "model", False  # attributes, not methods
    """

    def __init__(self) -> None:
        self.model_dir = ""
        self.prog_file = ""
        self.param_file = ""
        self.use_gpu = False
        self.device = 0
        self.fraction_of_gpu_memory = -1.0
        self.specify_input_name = False
        self._threads = 1

    def set_cpu_math_library_num_threads(self, number: int) -> None:
        """How many threads work on a request: see :class:`AnalysisConfig`.

        Raises:
            ValueError: the number is no whole number from 1.
        """
        self._threads = _number_of_threads(number)

    def cpu_math_library_num_threads(self) -> int:
        """How many threads work on a request, 1 by default."""
        return self._threads

    def _place(self) -> Place:
        return CUDAPlace(self.device) if self.use_gpu else CPUPlace()

    def _load(self) -> Model:
        return load_model(
            self.model_dir,
            self.prog_file,
            self.param_file,
            from_memory=False,
            threads=self._threads,
            left_out=None,
        )


class AnalysisConfig:
    """Which model a predictor runs, and where.

    Created from a ``model_dir``, from a ``prog_file`` and ``params_file``, as a copy of another
    config, or empty; then call :meth:`set_model` or :meth:`set_model_buffer`. A ``model_dir`` takes
    precedence over files. Options for the passes, memory and kernels of the original's predictor
    are stored and can be queried, but do not change results.

    Args:
        model: a directory, the file of a program, or another config.
        params_file: the file of all parameters, if ``model`` is the file of a program.

    Raises:
        TypeError: ``model`` is neither a path nor a config.

    Example:
        >>> from dpexec import core
        >>> config = core.AnalysisConfig("model")  # the folder of save_inference_model
        >>> config.switch_use_feed_fetch_ops(False)  # for zero_copy_run
        >>> config.model_dir(), config.use_gpu(), config.use_feed_fetch_ops_enabled()
        ('model', False, False)
    """

    class Precision(enum.IntEnum):
        """Precisions of engines; dpexec always computes with the model's own types."""

        Float32 = 0
        Int8 = 1
        Half = 2

    def __init__(
        self, model: str | AnalysisConfig | None = None, params_file: str | None = None
    ) -> None:
        self._model_dir = ""
        self._prog_file: Any = ""
        self._params_file: Any = ""
        self._from_memory = False
        self._gpu: int | None = None
        self._pool_mb = 100
        self._feeds_and_fetches = True
        self._by_name = False
        self._ir_optim = True
        self._deleted: frozenset[str] = frozenset()
        self._mkldnn = False
        self._threads = 1
        self._silent = False
        if isinstance(model, AnalysisConfig):
            self.__dict__.update(model.__dict__)
        elif model is not None:
            self.set_model(model, params_file)

    # ---- the model

    def set_model(self, model: str, params_file: str | None = None) -> None:
        """Set the model's directory, or the program's file and the parameters' file.

        Raises:
            TypeError: an argument is no path.
        """
        for path in (model, params_file):
            if path is not None and not isinstance(path, str):
                raise TypeError(f"a model is named by strings, not by {path!r}")
        if params_file is None:
            self._model_dir = model
        else:
            self._prog_file, self._params_file = model, params_file

    def set_model_buffer(
        self, program: bytes | str, program_size: int, params: bytes | str, params_size: int
    ) -> None:
        """Set the contents of both files, with their lengths."""
        self._prog_file, self._params_file = program[:program_size], params[:params_size]
        self._from_memory = True

    def set_prog_file(self, path: str) -> None:
        """Set the file of the program."""
        self._prog_file = path

    def set_params_file(self, path: str) -> None:
        """Set the file of all parameters."""
        self._params_file = path

    def model_dir(self) -> str:
        """The directory."""
        return self._model_dir

    def prog_file(self) -> Any:
        """The file of the program, or its content."""
        return self._prog_file

    def params_file(self) -> Any:
        """The file of all parameters, or its content."""
        return self._params_file

    def model_from_memory(self) -> bool:
        """Whether the model was given as contents instead of files."""
        return self._from_memory

    def _load(self) -> Model:
        optimizes = self._ir_optim and self._gpu is None
        integers = self._mkldnn and onednn.adds_bytes_exactly()
        left_out = self._deleted if integers else self._deleted | OF_INTEGERS
        return load_model(
            self._model_dir,
            self._prog_file,
            self._params_file,
            self._from_memory,
            self._threads,
            left_out=left_out if optimizes else None,
        )

    # ---- the device

    def enable_use_gpu(self, memory_pool_init_size_mb: int, device_id: int = 0) -> None:
        """Run on a GPU.

        Args:
            memory_pool_init_size_mb: stored, but without effect: memory is allocated as needed.
            device_id: index of the GPU.

        Raises:
            RuntimeError: there is no such GPU.
        """
        CUDAPlace(device_id)
        self._gpu, self._pool_mb = device_id, memory_pool_init_size_mb

    def disable_gpu(self) -> None:
        """Run on the CPU."""
        self._gpu = None

    def use_gpu(self) -> bool:
        """Whether a GPU is used."""
        return self._gpu is not None

    def gpu_device_id(self) -> int:
        """The index of the GPU."""
        return self._gpu or 0

    def memory_pool_init_size_mb(self) -> int:
        """The stored size, 100 by default."""
        return self._pool_mb

    def fraction_of_gpu_memory_for_pool(self) -> float:
        """The share of GPU memory that corresponds to the pool's size; 0 on the CPU."""
        if self._gpu is None:
            return 0.0
        _, total = array_module(self._place()).cuda.Device(self._gpu).mem_info
        return float(self._pool_mb * 2**20 / total)

    def _place(self) -> Place:
        return CPUPlace() if self._gpu is None else CUDAPlace(self._gpu)

    # ---- inputs and outputs

    def switch_use_feed_fetch_ops(self, x: bool = True) -> None:
        """Select the interface: True for ``run``, False for ``zero_copy_run``."""
        self._feeds_and_fetches = bool(x)

    def use_feed_fetch_ops_enabled(self) -> bool:
        """Whether the predictor uses ``run``."""
        return self._feeds_and_fetches

    def switch_specify_input_names(self, x: bool = True) -> None:
        """Identify the inputs of ``run`` by name instead of order."""
        self._by_name = bool(x)

    def specify_input_name(self) -> bool:
        """Whether inputs are identified by name."""
        return self._by_name

    # ---- kept for fluid's sake

    def switch_ir_optim(self, x: bool = True) -> None:
        """Whether passes make fewer operators of the model, as they do by default on CPUs.

        They need oneDNN (``dpexec[fast]``). Results may differ in their last bits from those of the
        program as it was saved. The guide to prediction lists the passes.
        """
        self._ir_optim = bool(x)

    def ir_optim(self) -> bool:
        """Whether passes are applied, True by default."""
        return self._ir_optim

    def switch_ir_debug(self, x: bool = True) -> None:
        """Ignored: there are no passes whose programs could be written."""

    def delete_pass(self, name: str) -> None:
        """Leave out a pass by its name; a name that no pass has is ignored, as in the original."""
        self._deleted |= {name}

    def set_optim_cache_dir(self, path: str) -> None:
        """Ignored: nothing is cached on disk."""

    def enable_memory_optim(self) -> None:
        """Ignored: memory is always reused."""

    def enable_profile(self) -> None:
        """Ignored: use ``fluid.profiler`` and ``fluid.dashboard``, which include predictors."""

    def disable_glog_info(self) -> None:
        """Stored only: predictors do not log anything."""
        self._silent = True

    def glog_info_disabled(self) -> bool:
        """Whether messages were switched off."""
        return self._silent

    def set_cpu_math_library_num_threads(self, number: int) -> None:
        """How many threads work on a request: on its products, and on rows of other operators.

        There are at most as many as the process has processors. Results have the same bits with
        any number; where the library's would differ, one thread works. Needs oneDNN
        (``dpexec[fast]``).

        Raises:
            ValueError: the number is no whole number from 1.
        """
        self._threads = _number_of_threads(number)

    def cpu_math_library_num_threads(self) -> int:
        """How many threads work on a request, 1 by default."""
        return self._threads

    def enable_mkldnn(self) -> None:
        """Have nets that ``contrib.slim.quantization`` froze compute with integers of 8 bits.

        It has no effect on a processor without VNNI, whose sums of such integers are not exact.
        Other nets use oneDNN without it, where it is installed. See the guide to prediction.
        """
        self._mkldnn = True

    def mkldnn_enabled(self) -> bool:
        """Whether it was enabled."""
        return self._mkldnn

    def set_mkldnn_op(self, types: Iterable[str]) -> None:
        """Ignored: each operator uses its fastest kernel."""

    def set_mkldnn_cache_capacity(self, capacity: int = 0) -> None:
        """Ignored: kernels are made for all sizes."""

    def tensorrt_engine_enabled(self) -> bool:
        """False: there is no TensorRT."""
        return False

    def lite_engine_enabled(self) -> bool:
        """False: there is no Paddle Lite."""
        return False

    # ---- refused

    def enable_tensorrt_engine(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise NotImplementedError: TensorRT."""
        _refuse("TensorRT engine")

    def set_trt_dynamic_shape_info(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise NotImplementedError: TensorRT."""
        _refuse("TensorRT engine")

    def enable_lite_engine(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise NotImplementedError: Paddle Lite."""
        _refuse("Paddle Lite engine")

    def enable_quantizer(self) -> NoReturn:
        """Raise NotImplementedError: the quantizer of MKL-DNN."""
        _refuse("quantizer of MKL-DNN")

    def quantizer_config(self) -> NoReturn:
        """Raise NotImplementedError: the quantizer of MKL-DNN."""
        _refuse("quantizer of MKL-DNN")

    def pass_builder(self) -> NoReturn:
        """Raise NotImplementedError: users cannot compose passes."""
        _refuse("passes of the original's analysis")

    def to_native_config(self) -> NativeConfig:
        """Convert to a :class:`NativeConfig`."""
        made = NativeConfig()
        made.model_dir = self._model_dir
        made.prog_file, made.param_file = self._prog_file, self._params_file
        made.use_gpu, made.device = self.use_gpu(), self.gpu_device_id()
        made.fraction_of_gpu_memory = self.fraction_of_gpu_memory_for_pool()
        made.specify_input_name = self._by_name
        return made
