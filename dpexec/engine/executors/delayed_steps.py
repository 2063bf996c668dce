"""Steps as nodes of the user's own dask graphs: what ``Executor.delayed`` returns.

A node runs its step once, when dask computes it first. Computing it again, also after the loss of a
worker, returns the same result. Steps of a program run in the order in which they were delayed, so
the graph of each contains the earlier steps that have not run yet.

Variables lie in scopes of this process. So a step that dask sends to another process asks this one
to run it (on the workers, if the program runs there), and waits for the result:
:mod:`.steps_elsewhere`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import dask
from dask.delayed import Delayed, delayed

from dpexec.engine.core.scope import Scope
from dpexec.engine.executors.compiled_program import CompiledProgram, meant
from dpexec.engine.executors.steps_elsewhere import keep, offer
from dpexec.engine.ir.program import Program
from dpexec.engine.run.fetch import wanted

__all__ = ["DelayedStep", "Delaying"]


class DelayedStep:
    """Runs a step, or several, the first time that it is called.

    Args:
        make: runs one step.
        scope: where the variables of its program live.
        fetches: number of fetched values.
        several: whether it is called with a list of feeds, one for each step.

    Attributes:
        scope: as given.
        node: its node in the user's graphs, with the nodes before it; None once it has run.
    """

    def __init__(
        self, make: Callable[[Any], list[Any]], scope: Scope, fetches: int, several: bool
    ) -> None:
        self.scope = scope
        self.node: Delayed | None = None
        self._make: Callable[[Any], list[Any]] | None = make
        self._fetches, self._several = fetches, several
        self._made: list[list[Any]] = []  # what every step gave
        self._lock = threading.Lock()
        self.token = uuid.uuid4().hex
        keep(self.token, self)

    def __call__(self, feed: Any, before: Any = None) -> list[Any]:
        """Run the steps that have not run yet.

        Args:
            feed: see :meth:`Executor.run`; a list of them for several steps.
            before: result of the step before it; not used, but it makes dask run that one first.

        Returns:
            The value of each fetch; for several steps a list of values of each fetch.

        Raises:
            EnforceNotMet: a step failed. It can run again, as no variable has changed.
        """
        with self._lock:
            if self._make is not None:
                feeds = list(feed) if self._several else [feed]
                for fed in feeds[len(self._made) :]:
                    self._made.append(self._make(fed))
                self._make = self.node = None
            if not self._several:
                return list(self._made[0])
            return [[found[index] for found in self._made] for index in range(self._fetches)]

    def __reduce__(self) -> tuple[Any, ...]:
        return offer(self.token, self)


class Delaying:
    """The part of an executor that delays runs."""

    run: Callable[..., list[Any]]

    def delayed(
        self,
        program: Program | CompiledProgram | None = None,
        feed: Any = None,
        fetch_list: Any = None,
        scope: Scope | None = None,
        *,
        feeds: Any = None,
        **options: Any,
    ) -> Delayed:
        """A run, or several, as a node of a dask graph, which runs when it is computed.

        Values of ``feed`` may be dask collections and delayed values, and the fetches may be inputs
        of others. Any scheduler can compute it: threads, ``"sync"``, ``"processes"``, or a Client;
        other processes ask this one to do the run. The results have the bits of :meth:`run`, and
        variables change once, however often the node is computed. Runs of a program happen in the
        order in which they were delayed: computing one also computes those before it. A run that
        fails can be computed again. ``dask.annotate`` around this call applies to dask's task of
        the node and to the run.

        Args:
            program: see :meth:`run`.
            feed: see :meth:`run`.
            fetch_list: see :meth:`run`.
            scope: see :meth:`run`; None takes the scope that is the global one now.
            feeds: instead of ``feed``: a list of feeds, or a delayed value of one. The node runs
                once with each, one after another. If a run fails, those before it stay done, and
                computing the node again continues with the failed one.
            options: other arguments of :meth:`run`.

        Returns:
            As many delayed values as there are fetches: ``loss, = exe.delayed(...)``. With
            ``feeds`` each of them gives a list of values, one for each run.

        Raises:
            RuntimeError: the executor was closed.
            TypeError: not a program or scope, or a fetch of a wrong type.
            ValueError: both ``feed`` and ``feeds`` are given.

        Example:
            >>> import numpy as np
            >>> import dpexec as fluid
            >>> x = fluid.data("x", [None, 2])
            >>> mean = fluid.layers.mean(x)
            >>> exe = fluid.Executor(fluid.CPUPlace())
            >>> (found,) = exe.delayed(feed={"x": np.ones((3, 2), "float32")}, fetch_list=[mean])
            >>> (found * 2).compute()
            array([2.], dtype=float32)
        """
        if feed is not None and feeds is not None:
            raise ValueError("give feed, of a run, or feeds, of several, not both")
        program, scope = meant(program, scope, self)
        original = program if isinstance(program, Program) else program._original
        fetches, _ = wanted(fetch_list)
        how = {"fetch_list": fetch_list, "scope": scope, **options}
        notes = {**dask.get_annotations()}
        notes.pop("retries", None)  # they are for the task of the node

        def make(fed: Any) -> list[Any]:
            with dask.annotate(**notes):
                return self.run(program, fed, **how)

        several = feeds is not None
        step = DelayedStep(make, scope, len(fetches), several)
        call = delayed(step, name=f"step-of-{step.token}", pure=False, nout=len(fetches))
        key = f"{'train_steps' if several else 'train_step'}-{step.token}"
        step.node = call(feeds if several else feed, _before(step, original), dask_key_name=key)
        return step.node


def _before(step: DelayedStep, program: Program) -> Delayed | None:
    """The node of the step before this one in its scope; remember this one."""
    waiting = [other for other in program._delayed if other.node is not None]
    others = [other for other in waiting if other.scope is not step.scope]
    before = next((other.node for other in waiting if other.scope is step.scope), None)
    program._delayed = [*others, step]
    return before
