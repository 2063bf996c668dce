"""Asynchronous checks of values on GPUs, whose results are read before a variable changes."""

from __future__ import annotations

import threading
from typing import Any

from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.step import Step, kernel_error
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.places import CUDAPlace
from dpexec.engine.core.ranges import Check
from dpexec.engine.gpu.copies import to_host

__all__ = ["Checks"]


@dataclass(frozen=True)
class _Begun:
    check: Check
    extremes: Any
    done: Any
    step: Step
    inputs: Env

    def look(self) -> None:
        self.done.synchronize()
        try:
            self.check.look(*self.extremes.tolist())
        except ValueError as error:
            op = self.step.node.op
            assert op is not None
            raise kernel_error(op, self.step.node, self.inputs, error) from error


class Checks:
    """The checks of a step whose results were not read yet."""

    def __init__(self) -> None:
        self._begun: list[_Begun] = []
        self._lock = threading.Lock()

    def begin(self, check: Check, place: CUDAPlace, step: Step, inputs: Env) -> None:
        """Enqueue the copy of a check's values to the host on the current stream.

        Args:
            check: the check.
            place: the GPU.
            step: the step that is checked.
            inputs: the values of the step's variables, for the error message.
        """
        extremes, done = to_host(place, check.extremes)
        self._begun.append(_Begun(check, extremes, done, step, inputs))

    def look(self) -> None:
        """Wait for the copies and check them.

        Raises:
            EnforceNotMet: a value is invalid; names operator, variables and the user's line.
        """
        with self._lock:  # concurrent updates must all wait until the checks are done
            while self._begun:
                self._begun[0].look()
                self._begun.pop(0)
