"""A binding on a worker: its code is made once, for all numbers of rows that it leaves open."""

from __future__ import annotations

import threading

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.core.memory import no_cycles_sought
from dpexec.engine.ir.sizes import Counts, NeedsNumber

__all__ = ["WorkerBinding"]


class WorkerBinding:
    """A binding of the client, with code for the batches of a worker.

    Its code is made at once: if it were made in a step, other workers would wait for it.

    Args:
        binding: the binding, with the client's specs.

    Raises:
        RuntimeError: this worker makes code with other libraries than the client.
    """

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self._sizes: LimitedCache[tuple[Counts, ...], Binding] = LimitedCache(
            limit_of("sizes on a worker")
        )
        self._lock = threading.Lock()
        rows = binding.open_rows
        if rows is None:
            _ = binding.steps
        else:
            with no_cycles_sought():
                binding.make_code()
            self.of((rows.example,) * len(binding.given), by_task=True)

    def of(self, rows: tuple[Counts, ...], by_task: bool = False) -> Binding:
        """The binding for a batch.

        Args:
            rows: the numbers of rows on every device; (): none are left open.
            by_task: whether its tasks run one by one. If so, their steps are made at once; whole
                steps of code do not need them.
        """
        if not rows:
            return self.binding
        with self._lock:  # tasks of several replicas call this at the same time
            found = self._sizes.used(rows)
            if found is None:
                found = self._sizes[rows] = self._closed(rows)
            if by_task:
                _ = found.steps
            return found

    def _closed(self, rows: tuple[Counts, ...]) -> Binding:
        try:
            return self.binding.closed(rows)
        except NeedsNumber:  # primitives of this processor may need more memory than the client's
            return self.binding.alone(rows)
