"""A saved model in its own scope, and its runner."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from dpexec.engine import kernels
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.places import Place, available_cpus
from dpexec.engine.core.scope import Scope
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.dispatch.engine import Engine
from dpexec.engine.executors.executor import Executor
from dpexec.engine.ir.program import Program
from dpexec.engine.kernels import onednn
from dpexec.engine.parameter_server.remote import remote_of
from dpexec.engine.passes.prediction import optimized
from dpexec.io.inference import read_program
from dpexec.io.loading import read_vars
from dpexec.io.selection import get_program_persistable_vars
from dpexec.io.variables import put

__all__ = ["Model", "Runner", "load_model"]


@dataclass(frozen=True)
class Model:
    """A program with its parameters, shared by all its runners.

    Attributes:
        program: the model's program, after the passes.
        feeds: names of the inputs.
        fetches: names of the outputs.
        parameters: the scope with the persistable variables.
        version: names, sizes and times of the model's files, which tell it from a later one.
    """

    program: Program
    feeds: list[str]
    fetches: list[str]
    parameters: Scope
    version: tuple[tuple[str, int, int], ...] = ()


class Runner:
    """Runs a model on one device. Several runners may use the same model concurrently.

    Args:
        model: the model to run.
        place: the device.
    """

    def __init__(self, model: Model, place: Place) -> None:
        self.model = model
        self.scope = Scope(model.parameters)
        self._executor, self._process = Executor(place), os.getpid()
        self._engine: Engine | None = None  # of requests that have arrays alone

    def run(self, feed: dict[str, Any]) -> list[Any]:
        """The outputs, in the order of ``model.fetches``: arrays, or tensors with sequences.

        Args:
            feed: arrays, or tensors with sequences, by name.

        Raises:
            EnforceNotMet: an input is missing, has a wrong shape or type, or makes an operator
                fail.
        """
        program, fetches = self.model.program, self.model.fetches
        if program._predictor_threads > 1 and self._process != os.getpid():
            self._leave_threads()
        try:
            engine = self._usual_engine(feed)
            if engine is None:
                found = self._run(feed)
            elif (made := engine.repeated.run(program, feed, fetches, True)) is not None:
                found = made
            else:
                found = engine.run(engine.batches(program, feed), fetches, wait=False)
        except EnforceNotMet:
            raise
        except ValueError as error:  # what Executor says of feeds; predictors have one error
            raise EnforceNotMet(str(error)) from None
        for name, value in zip(fetches, found, strict=True):
            if not isinstance(value, np.ndarray | LoDTensor):
                raise EnforceNotMet(
                    f"output {name} is a {type(value).__name__}: predictors give tensors"
                )
        return found

    def _usual_engine(self, feed: Mapping[str, Any]) -> Engine | None:
        """The engine of earlier requests, if it is right for this one, too."""
        engine = self._engine
        if engine is None or engine.version != self.model.program._version:
            return None
        for value in feed.values():
            if type(value) is not np.ndarray:
                return None
        return engine

    def _run(self, feed: dict[str, Any]) -> list[Any]:
        """A request as the executor makes it, which also finds the engine for later ones."""
        program, scope, executor = self.model.program, self.scope, self._executor
        found = executor.run(program, feed, self.model.fetches, scope=scope, return_numpy=False)
        self._engine = None
        if remote_of(program) is None and all(type(v) is np.ndarray for v in feed.values()):
            known = program.global_block().vars
            self._engine = executor.usual_engine(program, known, feed, scope)
        return found

    def _leave_threads(self) -> None:
        """Go on with one thread: a process that was forked has none of the library's others."""
        self.model.program._predictor_threads = 1
        self._executor, self._process = Executor(self._executor.place), os.getpid()
        self._engine = None


def load_model(
    model_dir: str,
    prog_file: Any,
    params_file: Any,
    from_memory: bool,
    threads: int = 1,
    left_out: Collection[str] | None = (),
) -> Model:
    """Load a model saved by ``save_inference_model``.

    Args:
        model_dir: a directory with ``__model__`` and a file for each parameter, or empty.
        prog_file: without ``model_dir``, the file of the program or its content.
        params_file: without ``model_dir``, the file of all parameters or its content.
        from_memory: whether the two are contents instead of files.
        threads: how many work on a request, if there are as many processors.
        left_out: names of the passes that are not applied; None: none is.

    Raises:
        EnforceNotMet: no model is given, or a file is missing or damaged.
    """
    folder: str | None
    values: str | bytes | None
    if from_memory:
        program = Program.parse_from_string(_as_bytes(prog_file))
        folder, values, files = None, _as_bytes(params_file), []
    elif model_dir:
        program = read_program(model_dir, "__model__")
        folder, values = model_dir, None
        files = sorted(os.path.join(model_dir, name) for name in os.listdir(model_dir))
    elif prog_file and params_file:
        program = read_program(*os.path.split(prog_file))
        folder, values = os.path.split(params_file)
        files = [prog_file, params_file]
    else:
        raise EnforceNotMet(
            "the config names no model: give a directory, or the files of program and parameters"
        )
    parameters = Scope()
    for name, value in read_vars(folder, get_program_persistable_vars(program), values).items():
        put(name, value, parameters)
    version = tuple(_state(file) for file in files)  # here, as files that lack are named by then
    feeds, fetches = program.desc.get_feed_target_names(), program.desc.get_fetch_target_names()
    if left_out is not None and onednn.available() and kernels.available():
        program = optimized(program, parameters, fetches, left_out)
    program._predictor_threads = min(threads, available_cpus())
    return Model(program, feeds, fetches, parameters, version)


def _state(file: str) -> tuple[str, int, int]:
    found = os.stat(file)
    return file, found.st_size, found.st_mtime_ns


def _as_bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content
