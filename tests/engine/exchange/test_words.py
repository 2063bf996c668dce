"""Words of other members in memory: waits, and who came last."""

import threading

import numpy as np
import pytest

from dpexec.engine.exchange import words
from dpexec.engine.exchange.wire import Tag
from dpexec.engine.kernels.located import address

pytest.importorskip("numba")

RANKS = (3, 8, 5)


@pytest.mark.parametrize("late", [None, 0, 2])
def test_who_came_last_is_said_however_soon_it_came(late, monkeypatch):
    monkeypatch.setattr(words, "_PATIENCE", 10**9)
    memory = np.ones(len(RANKS), np.int64)
    places = {address(memory) + 8 * at: rank for at, rank in enumerate(RANKS)}
    timer = threading.Timer(0.005, memory.fill, (1,))
    if late is not None:
        memory[late] = 0
        timer.start()
    last = words.wait_for({}, places, 1, 10.0, Tag(1, 0, "a test"))
    timer.cancel()
    assert last == (None if late is None else RANKS[late])
