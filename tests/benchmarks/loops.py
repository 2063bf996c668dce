"""``python -m tests.benchmarks.loops``: programs with loops, on dpexec and on Paddle.

Both work in turn, as in ``python -m tests.benchmarks``. What predicts has no loss: the mean of what
is found stands for it.
"""

from __future__ import annotations

from tests.benchmarks.peers.loops import TITLES, WORKLOADS
from tests.benchmarks.sequences import main

if __name__ == "__main__":
    main("tests.benchmarks.loops", __doc__.partition("\n")[0], WORKLOADS, TITLES)
