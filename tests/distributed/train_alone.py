"""A trainer in a process of its own, for tests that kill it: ``train_alone.py SCHEDULER``.

It trains with tasks and with gangs, prints a line when both have made a step, and goes on until it
is killed.
"""

import sys
from collections.abc import Callable

from distributed import Client

import dpexec as fluid
from tests.engine.run.nets import batches, classifier, strategies


def trainer(client: Client, collectives: str) -> Callable[[object], object]:
    """A function that makes a step with a batch."""
    net, scope = classifier(fluid.optimizer.Adam(0.01)), fluid.Scope()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup, scope=scope)
    build, execution = strategies(scheduler=client, collectives=collectives)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=fluid.cpu_places(2)
    )
    return lambda feed: exe.run(compiled, feed=feed, fetch_list=[net.loss], scope=scope)


def main(address: str) -> None:
    """Train small nets on the cluster of a scheduler."""
    (feed,) = batches(1)
    with Client(address) as client:
        steps = [trainer(client, collectives) for collectives in ("tasks", "gang")]
        while True:
            for step in steps:
                step(feed)
            print("step", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
