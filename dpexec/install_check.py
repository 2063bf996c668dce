"""``fluid.install_check``: a quick check that dpexec works on this machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec import layers
from dpexec.compiler import CompiledProgram
from dpexec.engine.autodiff import append_backward
from dpexec.engine.core import unique_name
from dpexec.engine.core.places import CPUPlace, Place, cuda_places, is_compiled_with_cuda
from dpexec.engine.core.scope import Scope, scope_guard
from dpexec.engine.ir.program import Program, program_guard
from dpexec.executor import Executor
from dpexec.initializer import Constant
from dpexec.optimizer import SGD
from dpexec.param_attr import ParamAttr

__all__ = ["run_check"]

_ROWS = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def run_check() -> None:
    """Run a layer on one device and train it on all GPUs, or on two CPU devices; print the result.

    Source: ``fluid.install_check.run_check``.

    Raises:
        Exception: any error that keeps programs from running.

    Example:
        >>> import dpexec as fluid
        >>> fluid.install_check.run_check()  # doctest: +ELLIPSIS
        Running Verify Fluid Program ...
        ...
    """
    print("Running Verify Fluid Program ... ")
    places: list[Place] = [CPUPlace(), CPUPlace()]
    if is_compiled_with_cuda():
        places = list(cuda_places())
    _run(places[:1], train=False)
    print("Your Paddle Fluid works well on SINGLE GPU or CPU.")
    _run(places, train=True)
    print("Your Paddle Fluid works well on MUTIPLE GPU or CPU.")
    print(
        "Your Paddle Fluid is installed successfully! Let's start deep Learning with Paddle Fluid "
        "now"
    )


def _run(places: list[Place], train: bool) -> None:
    main, startup = Program(), Program()
    with scope_guard(Scope()), program_guard(main, startup), unique_name.guard():
        rows = layers.data("inp", [2], dtype="float32")
        made = layers.fc(rows, 3, param_attr=ParamAttr(initializer=Constant(0.1)))
        loss = layers.reduce_sum(made)
        exe = Executor(places[0])
        if not train:
            ((_, grad), *_) = append_backward(loss)
            exe.run(startup)
            exe.run(main, feed={"inp": _ROWS}, fetch_list=[loss, grad])
            return
        SGD(learning_rate=0.01).minimize(loss)
        exe.run(startup)
        replicas: Any = CompiledProgram(main).with_data_parallel(loss.name, places=places)
        exe.run(replicas, feed={"inp": np.tile(_ROWS, (len(places), 1))}, fetch_list=[loss])
