"""``python -m tests.benchmarks.families``: nets of the families of the zoo, on dpexec and Paddle.

Nothing in dpexec was tuned with these nets. Both train in turn, as in ``python -m
tests.benchmarks``.
"""

from __future__ import annotations

from tests.benchmarks.peers.family_workloads import TITLES, WORKLOADS
from tests.benchmarks.sequences import main

if __name__ == "__main__":
    main("tests.benchmarks.families", __doc__.partition("\n")[0], WORKLOADS, TITLES)
