"""Kill a saving process at random moments, each time looking at what it left.

Usage: python kill_saves.py DIRECTORY KILLS. A child saves states in turn, in state k every element
is k; what is loaded after a kill must be one whole state, the last reported one or the one after.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

import dpexec as fluid

KINDS = ("separate", "combined", "checkpoint")


def network():
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 8])
        for _ in range(4):
            x = fluid.layers.fc(x, 8)
    return main


def save(main, kind, directory, number):
    for var in main.all_parameters():
        tensor = fluid.global_scope().var(var.name).get_tensor()
        tensor.set(np.full(var.shape, number, "float32"))
    if kind == "separate":
        fluid.io.save_persistables(None, os.path.join(directory, kind), main)
    elif kind == "combined":
        fluid.io.save_persistables(None, directory, main, kind)
    else:
        fluid.save(main, os.path.join(directory, kind, "model"))


def load(main, kind, directory):
    """The number of the state that is on disk, or an AssertionError if it is none."""
    if kind == "separate":
        fluid.io.load_persistables(None, os.path.join(directory, kind), main)
    elif kind == "combined":
        fluid.io.load_persistables(None, directory, main, kind)
    else:
        fluid.load(main, os.path.join(directory, kind, "model"))
    values = [
        np.array(fluid.global_scope().find_var(var.name).get_tensor())
        for var in main.all_parameters()
    ]
    found = {float(number) for value in values for number in value.ravel()}
    assert len(found) == 1, f"{kind}: a mixture of states {sorted(found)}"
    return int(found.pop())


def kill_once(main, kind, directory, start, wait):
    """Let a child save states from ``start`` on and kill it; returns the last reported state."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        number = start
        while True:
            save(main, kind, directory, number)
            os.write(writer, b"x")
            number += 1
    os.close(writer)
    os.read(reader, 1)  # until it has saved once
    time.sleep(wait)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    saved = 1
    while data := os.read(reader, 65536):
        saved += len(data)
    os.close(reader)
    return start + saved - 1


def main(directory, kills):
    program = network()
    waits = random.Random(8)
    numbers = dict.fromkeys(KINDS, 0)
    for count in range(kills):
        kind = KINDS[count % len(KINDS)]
        reported = kill_once(program, kind, directory, numbers[kind], waits.uniform(0, 0.05))
        found = load(program, kind, directory)
        assert found in (reported, reported + 1), f"{kind}: {found} is not {reported}"
        numbers[kind] = found + 1
    for kind in KINDS:
        save(program, kind, directory, numbers[kind])
        assert load(program, kind, directory) == numbers[kind]
    left = [path.name for path in Path(directory).rglob(".dpexec-*")]
    assert not left, left
    print(f"{kills} kills, always a whole state")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
