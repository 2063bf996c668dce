"""Predictors, which run a saved model repeatedly."""

from __future__ import annotations

import copy
import hashlib
import pickle
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from dpexec.engine.arguments.explained import explained
from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.places import Place
from dpexec.engine.core.scope import Scope
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.ir.program import Program
from dpexec.inference.config import AnalysisConfig, NativeConfig
from dpexec.inference.model import Model, Runner
from dpexec.inference.tensors import Array, Levels, PaddleTensor, ZeroCopyTensor

__all__ = [
    "AnalysisPredictor",
    "NativePaddlePredictor",
    "PaddlePredictor",
    "create_paddle_predictor",
]


class PaddlePredictor(ABC):
    """Base class of predictors; :func:`create_paddle_predictor` creates them.

    A predictor runs one batch at a time. Clones share the parameters, but have their own inputs and
    outputs, and may run concurrently in threads.

    A predictor can be pickled, so functions that Dask calls may take one as an argument. The pickle
    has the config, not the parameters: a process that gets it loads the model from the config's
    path, or from its buffers, once for all pickles of the same model.

    Args:
        config: what it was made of.
        model: the model to run.
        place: the device.
        by_name: identify inputs of :meth:`run` by name instead of order.

    Example:
        >>> import tempfile
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec import core
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.program_guard(fluid.Program()), tempfile.TemporaryDirectory() as folder:
        ...     y = fluid.layers.scale(fluid.data("x", [None, 2]), scale=2.0)
        ...     _ = fluid.io.save_inference_model(folder, ["x"], [y], exe)
        ...     predictor = core.create_paddle_predictor(core.AnalysisConfig(folder))
        >>> another = predictor.clone()  # for another thread; the parameters are shared
        >>> (found,) = another.run([core.PaddleTensor(np.ones((1, 2), "float32"))])
        >>> found.as_ndarray()
        array([[2., 2.]], dtype=float32)
    """

    def __init__(
        self, config: AnalysisConfig | NativeConfig, model: Model, place: Place, by_name: bool
    ) -> None:
        self._config, self._model, self._by_name = copy.copy(config), model, by_name
        self._runner = Runner(model, place)

    def __reduce__(self) -> tuple[Any, ...]:
        if "_version" in self.__dict__:  # it has arrived and was not used: leave its model alone
            return _arrived, (type(self), self._config, self._version)
        return _arrived, (type(self), self._config, self._model.version)

    def __getattr__(self, name: str) -> Any:
        # A pickled predictor loads its model when it is used. An error is then one of Dask's task;
        # raised while the message is read, it would cut the worker's connection.
        if name.startswith("__") or "_version" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        made: Any = type(self)
        loaded = made(self._config, _model_here(self._config, self._version))
        self.__dict__.update(loaded.__dict__)
        self.__dict__.pop("_version", None)  # another thread may have been here
        return getattr(self, name)

    def run(self, inputs: Sequence[PaddleTensor]) -> list[PaddleTensor]:
        """Run the model.

        Args:
            inputs: tensors in the model's order, or in any order if the config identifies them by
                name.

        Returns:
            The outputs, with their names and sequences.

        Raises:
            TypeError: an input is no PaddleTensor.
            EnforceNotMet: inputs are missing or unknown, or have wrong shapes or types. (For wrong
                numbers and names the original logs a line and returns nothing or random data.)
        """
        if not isinstance(inputs, (list, tuple)):
            raise TypeError(f"run takes a list of PaddleTensor, not {type(inputs).__name__}")
        for tensor in inputs:
            if not isinstance(tensor, PaddleTensor):
                raise TypeError(f"run takes a list of PaddleTensor, not of {type(tensor).__name__}")
        names = self._names(inputs)
        feed = {
            name: _fed(_elements(name, tensor), tensor.lod)
            for name, tensor in zip(names, inputs, strict=True)
        }
        found = zip(self._model.fetches, self._runner.run(feed), strict=True)
        return [PaddleTensor._of(value, name) for name, value in found]

    def _names(self, inputs: Sequence[PaddleTensor]) -> list[str]:
        feeds = self._model.feeds
        if len(inputs) != len(feeds):
            raise EnforceNotMet(
                f"the model has {len(feeds)} inputs, {', '.join(feeds)}, but got {len(inputs)}"
            )
        if not self._by_name:
            return feeds
        names = [tensor.name for tensor in inputs]
        if sorted(names) != sorted(feeds):
            raise EnforceNotMet(
                f"the inputs of the model are {', '.join(feeds)}, but got {', '.join(names)}"
            )
        return names

    @abstractmethod
    def clone(self) -> PaddlePredictor:
        """A predictor with the same parameters, but its own inputs and outputs."""

    def get_input_names(self) -> list[str]:
        """Names of the inputs; only for :class:`AnalysisPredictor`."""
        return []

    def get_output_names(self) -> list[str]:
        """Names of the outputs; only for :class:`AnalysisPredictor`."""
        return []

    def get_input_tensor(self, name: str) -> ZeroCopyTensor | None:
        """A persistent input; only for :class:`AnalysisPredictor`."""
        return None

    def get_output_tensor(self, name: str) -> ZeroCopyTensor | None:
        """A persistent output; only for :class:`AnalysisPredictor`."""
        return None

    def zero_copy_run(self) -> bool:
        """Run without copies; only for :class:`AnalysisPredictor`."""
        return False

    def get_serialized_program(self) -> bytes:
        """The program as ``__model__`` holds it."""
        return self._model.program.desc.serialize_to_string()

    def program(self) -> Program:
        """The program."""
        return self._model.program

    def scope(self) -> Scope:
        """The scope of this predictor; its parent holds the parameters."""
        return self._runner.scope


class NativePaddlePredictor(PaddlePredictor):
    """A predictor with :meth:`run` only.

    Args:
        config: the model and the device.
        model: a loaded model to use instead of loading the config's.

    Raises:
        TypeError: ``config`` is no ``NativeConfig``.

    Example:
        >>> import tempfile
        >>> import dpexec as fluid, numpy as np
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     y = fluid.layers.scale(fluid.data("x", [None, 2]), 2.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = fluid.io.save_inference_model(folder, ["x"], [y], exe, main)
        ...     config = fluid.core.NativeConfig()
        ...     config.model_dir = folder
        ...     predictor = fluid.core.create_paddle_predictor(config)
        >>> rows = fluid.core.PaddleTensor(np.array([[1.0, 2.0]], "float32"))
        >>> predictor.run([rows])[0].as_ndarray()
        array([[2., 4.]], dtype=float32)
    """

    _config: NativeConfig

    @explained
    def __init__(self, config: NativeConfig, model: Model | None = None) -> None:
        model = model or config._load()
        super().__init__(config, model, config._place(), config.specify_input_name)

    def clone(self) -> NativePaddlePredictor:
        """A predictor with the same parameters."""
        return NativePaddlePredictor(self._config, self._model)


class AnalysisPredictor(PaddlePredictor):
    """A predictor with :meth:`run`, or :meth:`zero_copy_run` on persistent inputs and outputs.

    Args:
        config: the model and the device.
        model: a loaded model to use instead of loading the config's.

    Example:
        >>> import tempfile
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec import core
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.program_guard(fluid.Program()), tempfile.TemporaryDirectory() as folder:
        ...     out = fluid.layers.scale(fluid.data("x", [None, 2]), scale=2.0, bias=1.0)
        ...     _ = fluid.io.save_inference_model(folder, ["x"], [out], exe)
        ...     config = core.AnalysisConfig(folder)
        ...     config.switch_use_feed_fetch_ops(False)
        ...     predictor = core.create_paddle_predictor(config)
        >>> predictor.get_input_tensor("x").copy_from_cpu(np.array([[1, 2]], "float32"))
        >>> predictor.zero_copy_run()
        True
        >>> predictor.get_output_tensor(predictor.get_output_names()[0]).copy_to_cpu()
        array([[3., 5.]], dtype=float32)
    """

    _config: AnalysisConfig

    @explained
    def __init__(self, config: AnalysisConfig, model: Model | None = None) -> None:
        model = model or config._load()
        super().__init__(config, model, config._place(), config.specify_input_name())
        self._inputs = {name: ZeroCopyTensor(name, False) for name in self._model.feeds}
        self._outputs = {name: ZeroCopyTensor(name, True) for name in self._model.fetches}

    def clone(self) -> AnalysisPredictor:
        """A predictor with the same parameters, but its own inputs and outputs."""
        return AnalysisPredictor(self._config, self._model)

    def run(self, inputs: Sequence[PaddleTensor]) -> list[PaddleTensor]:
        """Run the model: see :meth:`PaddlePredictor.run`.

        Raises:
            EnforceNotMet: the config selects ``zero_copy_run``.
        """
        if not self._config.use_feed_fetch_ops_enabled():
            raise EnforceNotMet("run needs config.switch_use_feed_fetch_ops(True)")
        return super().run(inputs)

    def zero_copy_run(self) -> bool:
        """Run the model on the values of its inputs; its outputs hold the results.

        Returns:
            True.

        Raises:
            EnforceNotMet: the config selects ``run``, or inputs are missing or have wrong shapes or
                types.
        """
        if self._config.use_feed_fetch_ops_enabled():
            raise EnforceNotMet("zero_copy_run needs config.switch_use_feed_fetch_ops(False)")
        feed = {
            name: _fed(each._value(), each._lod) if each._lod else each._value()
            for name, each in self._inputs.items()
        }
        for made, value in zip(self._outputs.values(), self._runner.run(feed), strict=True):
            made._store(value)
        return True

    def get_input_names(self) -> list[str]:
        """Names of the inputs, in the model's order."""
        return list(self._model.feeds)

    def get_output_names(self) -> list[str]:
        """Names of the outputs, in the model's order."""
        return list(self._model.fetches)

    def get_input_tensor_shape(self) -> dict[str, list[int]]:
        """Shapes of the inputs as declared in the program, with -1 for unknown dimensions."""
        block = self._model.program.global_block()
        return {name: list(block.var(name).shape) for name in self._model.feeds}

    def get_input_tensor(self, name: str) -> ZeroCopyTensor:
        """The persistent input of a name.

        Raises:
            EnforceNotMet: there is none of this name.
        """
        return _found(self._inputs, name, "input")

    def get_output_tensor(self, name: str) -> ZeroCopyTensor:
        """The persistent output of a name.

        Raises:
            EnforceNotMet: there is none of this name.
        """
        return _found(self._outputs, name, "output")


_LOADED: LimitedCache[bytes, Model] = LimitedCache(limit_of("models that arrived"))
_LOADING = threading.Lock()  # threads of a worker get the same predictor at the same time


def _arrived(
    kind: type[PaddlePredictor], config: AnalysisConfig | NativeConfig, version: object
) -> PaddlePredictor:
    """What a pickled predictor becomes; it has no model yet."""
    made = kind.__new__(kind)
    made.__dict__.update(_config=config, _version=version)
    return made


def _model_here(config: AnalysisConfig | NativeConfig, version: object) -> Model:
    """The model of a config, loaded once in this process."""
    key = hashlib.sha256(pickle.dumps((config, version))).digest()
    with _LOADING:
        found = _LOADED.used(key)
        if found is None:
            found = _LOADED[key] = config._load()
    return found


def _found(tensors: dict[str, ZeroCopyTensor], name: str, kind: str) -> ZeroCopyTensor:
    if name not in tensors:
        raise EnforceNotMet(f"no {kind} called {name}; there are {', '.join(tensors)}")
    return tensors[name]


def _elements(name: str, tensor: PaddleTensor) -> Array:
    if tensor.data.empty() and 0 not in tensor.shape:  # a batch may have no rows
        raise EnforceNotMet(f"the PaddleTensor for input {name} has no data")
    return tensor.as_ndarray()


def _fed(array: Array, lod: Levels) -> Array | LoDTensor:
    if not lod:
        return array
    made = LoDTensor()
    made.array = array
    made.set_lod(lod)
    return made


def create_paddle_predictor(config: AnalysisConfig | NativeConfig) -> PaddlePredictor:
    """Load a model and create a predictor for it.

    Args:
        config: the model and the device.

    Returns:
        An :class:`AnalysisPredictor` or a :class:`NativePaddlePredictor`, by the config.

    Raises:
        TypeError: the argument is no config.
        EnforceNotMet: the config names no model, or a file is missing or damaged.

    Example:
        >>> import tempfile
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec import core
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> with fluid.program_guard(fluid.Program()), tempfile.TemporaryDirectory() as folder:
        ...     x = fluid.data("x", [None, 2])
        ...     y = fluid.layers.scale(x, scale=2.0, bias=1.0)
        ...     _ = fluid.io.save_inference_model(folder, ["x"], [y], exe)
        ...     predictor = core.create_paddle_predictor(core.AnalysisConfig(folder))
        >>> (found,) = predictor.run([core.PaddleTensor(np.array([[1, 2]], "float32"))])
        >>> found.as_ndarray()
        array([[3., 5.]], dtype=float32)
    """
    if isinstance(config, AnalysisConfig):
        return AnalysisPredictor(config)
    if isinstance(config, NativeConfig):
        return NativePaddlePredictor(config)
    raise TypeError(f"a predictor needs an AnalysisConfig or NativeConfig, not {config!r}")
