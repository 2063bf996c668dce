"""Predictors: a saved model, ready to be run again and again."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence

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
    """What all predictors have. :func:`create_paddle_predictor` makes them.

    A predictor runs one batch at a time. Clones share the parameters, have inputs and outputs of
    their own, and may run in threads at once.

    Args:
        model: what to run.
        place: the device.
        by_name: inputs of :meth:`run` are told apart by their names, not by their order.
    """

    def __init__(self, model: Model, place: Place, by_name: bool) -> None:
        self._model, self._by_name = model, by_name
        self._runner = Runner(model, place)

    def run(self, inputs: Sequence[PaddleTensor]) -> list[PaddleTensor]:
        """Run the model.

        Args:
            inputs: in the model's order; in any order if the config says that names tell them
                apart.

        Returns:
            The outputs, with their names and sequences.

        Raises:
            TypeError: these are no PaddleTensors.
            EnforceNotMet: inputs are missing, unknown or do not fit. (The original writes a line
                about wrong numbers and names, and returns nothing, or something random.)
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
        """A predictor with the same parameters, and inputs and outputs of its own."""

    def get_input_names(self) -> list[str]:
        """Names of the inputs; an :class:`AnalysisPredictor` knows them."""
        return []

    def get_output_names(self) -> list[str]:
        """Names of the outputs; an :class:`AnalysisPredictor` knows them."""
        return []

    def get_input_tensor(self, name: str) -> ZeroCopyTensor | None:
        """An input that stays; an :class:`AnalysisPredictor` has them."""
        return None

    def get_output_tensor(self, name: str) -> ZeroCopyTensor | None:
        """An output that stays; an :class:`AnalysisPredictor` has them."""
        return None

    def zero_copy_run(self) -> bool:
        """Run without copies; an :class:`AnalysisPredictor` can."""
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
    """Runs a model on what it is given, and nothing else.

    Args:
        config: which model, and where.
        model: one that is loaded already.
    """

    def __init__(self, config: NativeConfig, model: Model | None = None) -> None:
        super().__init__(model or config._load(), config._place(), config.specify_input_name)
        self._config = copy.copy(config)

    def clone(self) -> NativePaddlePredictor:
        """A predictor with the same parameters."""
        return NativePaddlePredictor(self._config, self._model)


class AnalysisPredictor(PaddlePredictor):
    """Runs a model on what it is given, or on inputs and outputs that stay.

    Args:
        config: which model, and where.
        model: one that is loaded already.
    """

    def __init__(self, config: AnalysisConfig, model: Model | None = None) -> None:
        super().__init__(model or config._load(), config._place(), config.specify_input_name())
        self._config = AnalysisConfig(config)
        self._inputs = {name: ZeroCopyTensor(name, False) for name in self._model.feeds}
        self._outputs = {name: ZeroCopyTensor(name, True) for name in self._model.fetches}

    def clone(self) -> AnalysisPredictor:
        """A predictor with the same parameters, and inputs and outputs of its own."""
        return AnalysisPredictor(self._config, self._model)

    def run(self, inputs: Sequence[PaddleTensor]) -> list[PaddleTensor]:
        """Run the model: see :meth:`PaddlePredictor.run`.

        Raises:
            EnforceNotMet: the config is for ``zero_copy_run``.
        """
        if not self._config.use_feed_fetch_ops_enabled():
            raise EnforceNotMet("run needs config.switch_use_feed_fetch_ops(True)")
        return super().run(inputs)

    def zero_copy_run(self) -> bool:
        """Run the model on what was copied to its inputs; outputs keep what comes out.

        Returns:
            True.

        Raises:
            EnforceNotMet: the config is for ``run``, or inputs are missing or do not fit.
        """
        if self._config.use_feed_fetch_ops_enabled():
            raise EnforceNotMet("zero_copy_run needs config.switch_use_feed_fetch_ops(False)")
        feed = {name: _fed(one._value(), one.lod()) for name, one in self._inputs.items()}
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
        """Shapes of the inputs as the program declares them, -1 for what is open."""
        block = self._model.program.global_block()
        return {name: list(block.var(name).shape) for name in self._model.feeds}

    def get_input_tensor(self, name: str) -> ZeroCopyTensor:
        """An input.

        Raises:
            EnforceNotMet: there is none of this name.
        """
        return _found(self._inputs, name, "input")

    def get_output_tensor(self, name: str) -> ZeroCopyTensor:
        """An output.

        Raises:
            EnforceNotMet: there is none of this name.
        """
        return _found(self._outputs, name, "output")


def _found(tensors: dict[str, ZeroCopyTensor], name: str, kind: str) -> ZeroCopyTensor:
    if name not in tensors:
        raise EnforceNotMet(f"no {kind} called {name}; there are {', '.join(tensors)}")
    return tensors[name]


def _elements(name: str, tensor: PaddleTensor) -> Array:
    if tensor.data.empty():
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
    """Load a model and make a predictor for it.

    Args:
        config: which model, and where.

    Raises:
        TypeError: it is no config.
        EnforceNotMet: it names no model, or a file is missing or damaged.

    Example:
        config = fluid.core.AnalysisConfig("model")
        predictor = fluid.core.create_paddle_predictor(config)
        outputs = predictor.run([fluid.core.PaddleTensor(images)])
        probabilities = outputs[0].as_ndarray()
    """
    if isinstance(config, AnalysisConfig):
        return AnalysisPredictor(config)
    if isinstance(config, NativeConfig):
        return NativePaddlePredictor(config)
    raise TypeError(f"a predictor needs an AnalysisConfig or NativeConfig, not {config!r}")
