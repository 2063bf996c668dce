"""``Checkpoints``: saves the state of training regularly, and resumes from it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

from dpexec.checkpoint.files import Folder, Stored
from dpexec.checkpoint.state import Trained, Training
from dpexec.engine.arguments.converted import as_integer
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.scope import Scope
from dpexec.engine.core.version import __version__
from dpexec.engine.executors.executor import Executor
from dpexec.parallel_executor import ParallelExecutor

__all__ = ["Checkpoints", "Resumed"]


class Resumed(NamedTuple):
    """The position from which training resumes.

    Args:
        step: number of completed steps.
        extra: the ``extra`` value saved with the state; None at the start.

    Example:
        >>> import dpexec as fluid
        >>> position = fluid.checkpoint.Resumed(step=7, extra={"epoch": 2})
        >>> epochs = range(position.extra["epoch"], 5)
        >>> position.step, list(epochs)
        (7, [2, 3, 4])
    """

    step: int
    extra: Any


class Checkpoints:
    """Saves the state of training every few steps; training resumed from it gives the same bits.

    The training thread only copies the state; another thread writes it. A process that is killed
    leaves complete checkpoints only. Use it in a ``with`` statement, which waits for the last one.

    Args:
        executor: runs the program; a ParallelExecutor has program and scope of its own.
        dirname: directory of the checkpoints: a path, or a URL of fsspec such as
            ``s3://bucket/runs/1``.
        main_program: a Program, a CompiledProgram, or several that are trained together; None takes
            the default main program.
        every: number of steps between checkpoints.
        keep: number of latest checkpoints to keep.
        scope: scope of the variables; None takes the global scope.

    Raises:
        TypeError: an executor or program has the wrong type.
        ValueError: ``every`` or ``keep`` is less than one.

    Example:
        >>> import dpexec as fluid, numpy as np, tempfile
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     x = fluid.data("x", [None, 4])
        ...     loss = fluid.layers.mean(fluid.layers.fc(x, 1))
        ...     _ = fluid.optimizer.Adam(0.1).minimize(loss)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> _ = exe.run(startup)
        >>> folder = tempfile.mkdtemp()
        >>> for last in 6, 9:  # the second time, training goes on where it was saved
        ...     with Checkpoints(exe, folder, main, every=3) as saved:
        ...         start, extra = saved.resume()
        ...         for step in range(start, last):
        ...             _ = exe.run(main, feed={"x": np.ones((2, 4), "float32")})
        ...             saved.step(extra={"epoch": 0})
        ...     print(start, extra)
        0 None
        6 {'epoch': 0}
    """

    def __init__(
        self,
        executor: Executor | ParallelExecutor,
        dirname: str | os.PathLike[str],
        main_program: Trained | Sequence[Trained] | None = None,
        every: int = 100,
        keep: int = 3,
        scope: Scope | None = None,
    ) -> None:
        for name, value in (("every", every), ("keep", keep)):
            if as_integer(value, name) < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        self._training = Training(executor, main_program, scope)
        self._folder = Folder(dirname)
        self._every, self._keep = every, keep
        self._done = 0
        self._begun = False
        self._writer = ThreadPoolExecutor(1, "dpexec-checkpoints")
        self._writing: Future[None] | None = None

    @property
    def steps(self) -> list[int]:
        """The steps with checkpoints, in order."""
        return self._folder.steps()

    def resume(self) -> Resumed:
        """Continue from the latest checkpoint; from the start if there is none.

        The startup program need not have been run: the values of all persistable variables are
        replaced.

        Raises:
            EnforceNotMet: the checkpoint is damaged, of a newer version, or of another program or
                number of replicas, or its file was renamed; nothing has changed then.
            OSError: the checkpoint cannot be read; nothing has changed then.
        """
        self._wait()
        self._begun = True
        steps = self._folder.steps()
        if not steps:
            self._folder.check_empty()
            return Resumed(0, None)
        stored = self._folder.read(steps[-1])
        self._training.give(stored, self._folder.path(steps[-1]))
        self._done = steps[-1]
        return Resumed(self._done, stored.about["extra"])

    def step(self, extra: Any = None) -> None:
        """Count a step, and save the state if it is due.

        Args:
            extra: further values needed to resume, such as the epoch and a reader's position;
                anything that JSON can represent.

        Raises:
            EnforceNotMet: the directory has checkpoints of an earlier run that was not resumed.
            TypeError: JSON cannot represent ``extra``.
            OSError: an earlier checkpoint could not be written.
        """
        if not self._begun:
            self._begin()
        self._done += 1
        if self._writing is not None and self._writing.done():
            self._wait()
        if self._done % self._every == 0:
            self.save(extra)

    def save(self, extra: Any = None) -> None:
        """Save the state now, between two steps; arguments and errors as for :meth:`step`."""
        if not self._begun:
            self._begin()
        self._wait()  # memory holds one copy of the state at a time
        about = {"dpexec": __version__, "step": self._done, "extra": extra}
        try:
            json.dumps(extra)
        except (TypeError, ValueError) as error:
            raise type(error)(f"extra takes what JSON can hold: {error}") from error
        stored = self._training.take()
        stored = replace(stored, about={**about, **stored.about})
        self._writing = self._writer.submit(self._write, self._done, stored)

    def _begin(self) -> None:
        steps = self._folder.steps()
        if steps:
            raise EnforceNotMet(
                f"{self._folder.path(steps[-1])} is a checkpoint of an earlier run: call resume() "
                "first to go on with it, or save to another directory"
            )
        self._begun = True

    def _write(self, step: int, stored: Stored) -> None:
        self._folder.write(step, stored)
        self._folder.keep(self._keep)

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Wait until the last checkpoint is written.

        Raises:
            OSError: the checkpoint could not be written.
        """
        try:
            self._wait()
        finally:
            self._writer.shutdown()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
