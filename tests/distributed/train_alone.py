"""A trainer in a process of its own, for tests that kill it: ``train_alone.py SCHEDULER MODE``.

It prints a line after every step, and trains until it is killed.
"""

import sys

from distributed import Client

import dpexec as fluid
from tests.runtime.nets import batches, classifier, strategies


def main(address: str, collectives: str) -> None:
    """Train a small net on the cluster of a scheduler."""
    net, feeds = classifier(fluid.optimizer.Adam(0.01)), batches(4)
    with Client(address) as client:
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(net.startup)
        build, execution = strategies(scheduler=client, collectives=collectives)
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, execution, places=fluid.cpu_places(2)
        )
        while True:
            for feed in feeds:
                exe.run(compiled, feed=feed, fetch_list=[net.loss])
                print("step", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
