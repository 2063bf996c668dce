"""Readers: functions that return iterators over samples; reading ahead in a background thread."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any

from dpexec.engine.core.errors import see
from dpexec.engine.trace.between import noted

__all__ = ["Prefetch", "check_readers", "items_of"]


def check_readers(*readers: Any) -> None:
    """Check that readers are functions; often a generator is given, which can be read once only.

    Raises:
        TypeError: one is not.
    """
    for reader in readers:
        if not callable(reader):
            problem = (
                "a reader must be a function that returns an iterator, but is "
                f"{type(reader).__name__}: give the function itself, without calling it"
            )
            raise see("a-generator-in-place-of-a-function", TypeError(problem))


def items_of(reader: Callable[[], Iterable[Any]]) -> Iterable[Any]:
    """What a reader returns.

    Raises:
        TypeError: it returns nothing, as a function without ``yield`` does.
    """
    found: Iterable[Any] | None = reader()
    if found is None:
        name = getattr(reader, "__qualname__", repr(reader))
        problem = f"reader {name} returned None: it must yield batches, or return an iterator"
        raise see("a-generator-in-place-of-a-function", TypeError(problem))
    return found


_threads = threading.local()
"""Of a thread that reads ahead: its waits for another one delay no step."""


_END = ("end", None)


class _Buffer:
    """A bounded queue between one producer and one consumer thread; both may close it."""

    def __init__(self, capacity: int) -> None:
        self.closed = False
        self._complete = False
        self._items: deque[Any] = deque()
        self.capacity = capacity
        self._changed = threading.Condition()

    def put(self, item: Any) -> bool:
        """Append an item, waiting for room; returns False if the buffer is closed or complete."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.closed or self._complete or len(self._items) < self.capacity
            )
            if not self._complete:
                self._items.append(item)
                self._changed.notify_all()
            return not (self.closed or self._complete)

    def get(self) -> Any:
        """Wait for the next item."""
        with self._changed:
            if not (self._items or self._complete):
                with nullcontext() if hasattr(_threads, "ahead") else noted("reading"):
                    self._changed.wait_for(lambda: self._items or self._complete)
            if not self._items:
                return _END
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def complete(self) -> None:
        """Accept no more items; waiting ones can still be consumed."""
        with self._changed:
            self._complete = True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def first(self, count: int) -> list[Any]:
        with self._changed:
            items = itertools.islice(() if self.closed else self._items, count)
            return [value for kind, value in items if kind == "item"]

    def waiting(self) -> int:
        with self._changed:
            return sum(kind == "item" for kind, _ in self._items)


class Prefetch(Iterator[Any]):
    """Iterates over a source that a thread prefetches.

    Exceptions of the source are raised in the consumer, with the source's traceback. The thread
    ends with the source, or when the iterator is closed or dropped.

    Args:
        source: function that returns the iterable; called in the thread. None: there is no thread;
            all items are pushed.
        capacity: largest number of waiting items.
        name: name of the thread.

    Example:
        >>> list(Prefetch(lambda: range(3), capacity=2))
        [0, 1, 2]
    """

    def __init__(
        self,
        source: Callable[[], Iterable[Any]] | None,
        capacity: int,
        name: str = "dpexec-prefetch",
    ) -> None:
        self._buffer = _Buffer(max(1, capacity))
        self._thread: threading.Thread | None = None
        if source is not None:
            self._thread = threading.Thread(  # it knows the buffer alone: this can be dropped
                target=_read, args=(source, self._buffer), name=name, daemon=True
            )
            self._thread.start()

    def __next__(self) -> Any:
        if self._buffer.closed:
            raise StopIteration
        kind, value = self._buffer.get()
        if kind == "item":
            return value
        self.close()
        if kind == "error":
            raise value
        raise StopIteration

    def close(self) -> None:
        """End the thread after the item that it is reading."""
        self._buffer.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def waiting(self) -> int:
        """The number of waiting items."""
        return self._buffer.waiting()

    @property
    def closed(self) -> bool:
        """Whether no more items can be consumed."""
        return self._buffer.closed

    def peek(self, count: int) -> list[Any]:
        """The next waiting items, without consuming them."""
        return self._buffer.first(count)

    def push(self, item: Any) -> bool:
        """Append an item; waits for room.

        Returns:
            False if the queue is closed or complete and the item was dropped.
        """
        return self._buffer.put(("item", item))

    def complete(self) -> None:
        """Accept no more items; waiting ones can still be consumed."""
        self._buffer.complete()

    def __del__(self) -> None:
        buffer = getattr(self, "_buffer", None)
        if buffer is not None:
            buffer.close()


def _read(source: Callable[[], Iterable[Any]], buffer: _Buffer) -> None:
    _threads.ahead = True
    try:
        for item in source():
            if not buffer.put(("item", item)):
                return
        buffer.put(_END)
    except BaseException as error:
        buffer.put(("error", error))
