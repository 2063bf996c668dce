"""Checks of values that were begun on GPUs, and are looked at before a variable changes."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.step import Step, kernel_error
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
    """The checks of a step that nobody has looked at."""

    def __init__(self) -> None:
        self._begun: list[_Begun] = []
        self._lock = threading.Lock()

    def begin(self, check: Check, place: CUDAPlace, step: Step, inputs: Env) -> None:
        """Copy to the host what a check looks at, behind what is on the current stream.

        Args:
            check: what is to be looked at.
            place: the GPU.
            step: whose values they are.
            inputs: the values of its variables, for the message.
        """
        extremes, done = to_host(place, check.extremes)
        self._begun.append(_Begun(check, extremes, done, step, inputs))

    def look(self) -> None:
        """Wait for the copies.

        Raises:
            EnforceNotMet: a value was refused; names operator, variables and the user's line.
        """
        with self._lock:  # several updates may ask at the same time: none may go ahead
            while self._begun:
                self._begun[0].look()
                self._begun.pop(0)
