"""Train a small net while its workers are killed at random, and compare with undisturbed training.

Usage: python -m tests.distributed.chaos [--steps N] [--kills N] [--seed N] [--workers N]
[--mode allreduce|reduce] [--collectives tasks|gang]; without the last two, all four are tried.
"""

import argparse
import contextlib
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from tqdm import tqdm

from dpexec.engine.cluster.client import replica_group
from tests.distributed.clusters import Workers, workers
from tests.distributed.nets import NETS
from tests.engine.run.nets import AllReduce, Reduce, Run, assert_same_bits, train
from tests.waiting import until

MODES = {"allreduce": AllReduce, "reduce": Reduce}
COLLECTIVES = ("tasks", "gang")
_LATEST = 0.1  # seconds after the begin of a step


class Storm:
    """Kills workers, one at a time, between steps and in the middle of them.

    State is mirrored once, so there is always a second worker that has replicas: when all but one
    may have been killed, the storm calms down until their successors have come.

    Args:
        found: the cluster; workers are started in the place of those that are killed.
        steps: of the training.
        kills: how many.
        seed: decides which worker is killed when.
    """

    def __init__(self, found: Workers, steps: int, kills: int, seed: int) -> None:
        self._found, self._chosen = found, random.Random(seed)
        self._when = set(self._chosen.sample(range(1, steps, 2), kills))
        self._count = len(found.addresses())
        self._left = self._count - 1
        self.killed: list[tuple[int, int]] = []  # at which step, which process

    def over(self, feeds: list[Any], tell: Callable[[], object] = lambda: None) -> Iterator[Any]:
        """Batches, with workers that are killed around some of them.

        Args:
            feeds: the batches.
            tell: called before each.
        """
        timer: threading.Timer | None = None
        for step, feed in enumerate(feeds):
            tell()
            if timer is not None:
                timer.join()
            self._found.replace(self._count)
            if step + 1 in self._when and not self._left:
                self._calm_down()
            if step in self._when:
                timer = self._strike(step)
            yield feed
        if timer is not None:
            timer.join()

    def _calm_down(self) -> None:
        until(lambda: len(self._living()) == len(self._found.addresses()))
        self._found.wait_for(self._count)
        time.sleep(replica_group._LOOK + 0.1)  # then the next step sees who has joined
        self._left = self._count - 1

    def _living(self) -> list[str]:
        """The workers; the scheduler may not know yet that some are gone.

        Addresses come again, processes hardly ever.
        """
        killed, living = {pid for _, pid in self.killed}, []
        for address in self._found.addresses():
            with contextlib.suppress(ProcessLookupError):
                if self._found.pid(address) not in killed:
                    living.append(address)
        return living

    def _strike(self, step: int) -> threading.Timer:
        self._left -= 1
        pid = self._found.pid(self._chosen.choice(self._living()))
        self.killed.append((step, pid))
        wait = self._chosen.uniform(0.0, _LATEST)
        timer = threading.Timer(wait, os.kill, (pid, signal.SIGKILL))
        timer.start()
        return timer


def run(
    found: Workers,
    mode: str,
    collectives: str,
    steps: int,
    storm: Storm,
    tell: Callable[[], object] = lambda: None,
) -> tuple[Run, Run]:
    """Train in a storm, and on threads.

    Args:
        found: the cluster.
        mode: a key of ``MODES``.
        collectives: one of ``COLLECTIVES``.
        steps: how many.
        storm: what happens meanwhile.
        tell: called before each step in the storm.

    Returns:
        What both left behind.
    """
    replicas = len(found.addresses())
    net, feeds = NETS["images"](steps)
    options = {"scheduler": found.client, "collectives": collectives}
    there = train(net, storm.over(feeds, tell), replicas, MODES[mode], **options)
    return there, train(net, feeds, replicas)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="of each training")
    parser.add_argument("--kills", type=int, default=20, help="of workers, in each training")
    parser.add_argument("--seed", type=int, default=0, help="decides who is killed when")
    parser.add_argument("--workers", type=int, default=3, help="of the cluster, and replicas")
    parser.add_argument("--mode", choices=MODES, help="how gradients are aggregated")
    parser.add_argument("--collectives", choices=COLLECTIVES, help="where")
    return parser.parse_args()


def main() -> None:
    """Run the storms that were asked for."""
    options = _options()
    modes = [options.mode] if options.mode else list(MODES)
    kinds = [options.collectives] if options.collectives else COLLECTIVES
    with workers(options.workers) as found:
        for mode, kind in itertools.product(modes, kinds):
            storm = Storm(found, options.steps, options.kills, options.seed)
            began = time.monotonic()
            with tqdm(total=options.steps, desc=f"{mode}, {kind}", unit="step") as bar:
                there, alone = run(found, mode, kind, options.steps, storm, bar.update)
            seconds = time.monotonic() - began
            assert_same_bits(there, alone)
            print(
                f"{mode}, {kind}: {len(storm.killed)} kills in {options.steps} steps, "
                f"{seconds:.0f} s; losses and parameters have the bits of undisturbed training"
            )
            found.wait_for(options.workers)


if __name__ == "__main__":
    main()
