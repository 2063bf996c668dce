"""Kills a training process at random moments: every checkpoint left must be of a whole step.

Usage: python -m tests.checkpoint.kill_training FOLDER KILLS.
"""

import os
import random
import signal
import sys
import time

import numpy as np

from dpexec.checkpoint.files import Folder
from tests.checkpoint.training import train

STEPS = 60


def kill_once(folder: str, wait: float) -> None:
    """Let a child train on, and kill it some time after it wrote its first checkpoint."""
    known = set(Folder(folder).steps())
    child = os.fork()
    if child == 0:
        train(folder, STEPS, every=1, keep=2, pause=0.001)
        os._exit(0)
    while set(Folder(folder).steps()) <= known:
        time.sleep(0.002)
    time.sleep(wait)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def main() -> None:
    """Kill, and compare what is left with what was never disturbed."""
    folder, kills = sys.argv[1], int(sys.argv[2])
    chosen = random.Random(3)
    for kill in range(1, kills + 1):
        kill_once(folder, chosen.uniform(0, 0.02))
        steps = Folder(folder).steps()
        # Each child that dies between writing and removing leaves one more than the two kept.
        assert 1 <= len(steps) <= 2 + kill, steps
        for step in steps:
            assert Folder(folder).read(step).about["step"] == step
    left = Folder(folder).steps()[-1]
    assert left < STEPS, "it was never interrupted"
    losses, state, _ = train(folder, left + 5)
    expected, whole, _ = train(folder + "-whole", left + 5)
    assert np.array_equal(losses, expected[left:])
    assert len(Folder(folder).steps()) <= 3
    for name, value in whole.items():
        assert np.array_equal(value, state[name]), name
    print(f"{kills} kills, the last before step {left + 1}")


if __name__ == "__main__":
    main()
