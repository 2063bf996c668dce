"""Train a small net in a storm of faults, and compare with undisturbed training.

Usage: python -m tests.distributed.chaos [--steps N] [--kills N] [--others N] [--seed N]
[--workers N] [--replicas N] [--place "one host"|"many hosts"] [--mode allreduce|reduce]
[--collectives auto|gang|tasks]; without the last three, both places and modes are tried, with the
default collectives. Hosts of its own need root.
"""

import argparse
import contextlib
import itertools
import logging
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

import dask
from tqdm import tqdm

import dpexec as fluid
from dpexec.checkpoint import Checkpoints
from dpexec.engine.core.errors import SchedulerLostError
from tests.distributed.nets import NETS
from tests.distributed.weather import Undo, Weather, soon, weather
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    Run,
    assert_same_bits,
    persistables,
    strategies,
    train,
)

MODES = {"allreduce": AllReduce, "reduce": Reduce}
PLACES = ("one host", "many hosts")
LIMIT = 3  # seconds in which a worker has to answer
_LATEST = 0.1  # seconds after the begin of a step
_APART = 3  # steps from one fault to the next, so that state is mirrored again
_EVERY = 20  # steps between checkpoints
_GOAL = 3  # seconds that recovery may take, once it is known who is lost
_SILENT = ("stop", "part", "unplug")  # ways that are found out when the limit is over
_TAKE_REPLICAS = ("kill", "stop", "leave", "unplug")
"""What takes the replicas of a worker away, which must be said."""


@dataclass
class Fault:
    """What happened.

    Args:
        step: before or during which.
        way: what.
        victim: the worker.
        at_home: whether replicas lived there.
        seconds: what the step took, and the one after it if that was longer.
    """

    step: int
    way: str
    victim: str
    at_home: bool
    seconds: float = 0.0


@dataclass
class Storm:
    """Lets things go wrong between steps and in the middle of them, one at a time.

    Args:
        steps: of the training.
        kills: how many workers are killed.
        others: how often everything else happens.
        seed: decides what happens when.
        ways: what happens; None: all that can.
    """

    steps: int
    kills: int
    others: int
    seed: int
    ways: tuple[str, ...] | None = None
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chosen = random.Random(self.seed)
        self._due: dict[int, str] = {}
        self._undo: tuple[int, Undo] | None = None

    def plan(self, can: list[str]) -> None:
        """Decide what happens when, once it is known what can."""
        ways = [way for way in can if self.ways is None or way in self.ways]
        counts = {way: self.kills if way == "kill" else self.others for way in ways}
        found = [way for way, count in counts.items() for _ in range(count)]
        self.chosen.shuffle(found)
        if len(found) * _APART > self.steps - 2:
            raise SystemExit(
                f"{len(found)} faults, {_APART} steps apart, do not fit into {self.steps} steps: "
                f"take --steps {len(found) * _APART + 2} or fewer --kills and --others"
            )
        when = sorted(self.chosen.sample(range(1, self.steps - 1, _APART), len(found)))
        self._due = dict(zip(when, found, strict=True))

    def before(self, step: int, where: Weather, homes: list[str]) -> Any:
        """What is to happen in a step; gives a timer if that is in its middle."""
        if self._undo is not None and step >= self._undo[0]:
            self._undo, (_, undo) = None, self._undo
            undo()
        where.replace()
        way = self._due.pop(step, None)
        if way is None:
            return None
        if way == "scheduler" or len(where.living()) < 2:
            where.wait()  # a worker that begins without a scheduler looks for one for ever
        victim = self.chosen.choice(where.living())
        self.faults.append(Fault(step, way, victim, victim in homes))
        return soon(self.chosen.uniform(0.0, _LATEST), lambda: self._strike(where, way, victim))

    def _strike(self, where: Weather, way: str, victim: str) -> None:
        undo = where.ways[way](victim)
        if undo is not None:
            self._undo = self.faults[-1].step + 2, undo

    def calm_down(self) -> None:
        """Put right what was not yet."""
        if self._undo is not None:
            self._undo, (_, undo) = None, self._undo
            undo()

    def took(self, step: int, seconds: float) -> None:
        """A step has ended."""
        if self.faults and step - self.faults[-1].step < 2:
            self.faults[-1].seconds = max(self.faults[-1].seconds, seconds)


class _Heard(logging.Handler):
    """What the log says of workers."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def run(
    place: str,
    mode: str,
    collectives: str,
    storm: Storm,
    workers: int = 3,
    tell: Callable[[], object] = lambda: None,
    replicas: int = 0,
) -> tuple[Run, Run]:
    """Train in a storm, and on threads; a new cluster goes on where a scheduler has ended.

    Args:
        place: one of ``PLACES``.
        mode: a key of ``MODES``.
        collectives: of ``ExecutionStrategy``.
        storm: what happens meanwhile.
        workers: of the cluster.
        tell: called after each step in the storm.
        replicas: how many; 0: one per worker.

    Returns:
        What both left behind.

    Raises:
        AssertionError: a worker was lost, and no log line says so.
    """
    net, feeds = NETS["images"](storm.steps)
    losses: list[Any] = [None] * storm.steps
    heard, logger, there = _Heard(), logging.getLogger("dpexec"), None
    short = {"distributed.comm.timeouts.connect": "5s"}  # who ends looks for a scheduler that long
    logger.addHandler(heard)
    try:
        with dask.config.set(short), TemporaryDirectory() as folder:
            while there is None:
                with (
                    contextlib.suppress(SchedulerLostError),
                    weather(place, workers, storm.chosen) as found,
                ):
                    how = MODES[mode], collectives, replicas or workers
                    there = _go_on(found, folder, net, feeds, losses, storm, how, tell)
    finally:
        logger.removeHandler(heard)
    text = "\n".join(heard.texts)
    lost = [f for f in storm.faults if f.at_home and f.way in _TAKE_REPLICAS]
    assert not [fault for fault in lost if fault.victim not in text]
    return there, train(net, feeds, replicas or workers)


def _go_on(
    found: Weather,
    folder: str,
    net: Any,
    feeds: list[Any],
    losses: list[Any],
    storm: Storm,
    how: tuple[Any, str, int],
    tell: Callable[[], object],
) -> Run:
    """Train from the latest checkpoint on.

    Raises:
        SchedulerLostError: the scheduler has ended.
    """
    mode, collectives, devices = how
    options = {"collectives": collectives, "collective_timeout": LIMIT, "scheduler": found.client}
    build, execution = strategies(mode, **options)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=fluid.cpu_places(devices)
    )
    if not storm.faults:
        storm.plan(list(found.ways))
    timer = None
    try:
        with fluid.scope_guard(scope), Checkpoints(exe, folder, compiled, every=_EVERY) as saved:
            exe.run(net.startup)
            for step in range(saved.resume().step, len(feeds)):
                engine = compiled._engine
                homes = engine._cluster.address if engine and engine._cluster else []
                timer = storm.before(step, found, homes)
                began = time.monotonic()
                losses[step] = exe.run(compiled, feed=feeds[step], fetch_list=[net.loss])[0]
                storm.took(step, time.monotonic() - began)
                saved.step()
                tell()
                if timer is not None:
                    timer.join()
            state = persistables(net.main, scope)
    finally:
        if timer is not None:
            timer.join()
        storm.calm_down()
    return Run(losses, state, compiled, scope)


def _report(faults: list[Fault]) -> None:
    """Print what each kind of fault cost."""
    for way in sorted({fault.way for fault in faults}):
        took = [fault.seconds for fault in faults if fault.way == way]
        limit = _GOAL + (LIMIT if way in _SILENT else 0)
        late = sum(seconds > limit for seconds in took)
        print(
            f"  {way:9} {len(took):4} times, steps with it took {statistics.median(took):.1f} s, "
            f"at most {max(took):.1f} s; {late} more than {limit} s"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="of each training")
    parser.add_argument("--kills", type=int, default=20, help="of workers, in each training")
    parser.add_argument("--others", type=int, default=3, help="of every other fault")
    parser.add_argument("--seed", type=int, default=0, help="decides what happens when")
    parser.add_argument("--workers", type=int, default=3, help="of the cluster")
    parser.add_argument("--replicas", type=int, default=0, help="0: one per worker")
    parser.add_argument("--place", choices=PLACES, help="where workers are")
    parser.add_argument("--mode", choices=MODES, help="how gradients are aggregated")
    parser.add_argument("--collectives", default="auto", help="see ExecutionStrategy")
    return parser.parse_args()


def main() -> None:
    """Run the storms that were asked for."""
    options = _options()
    places = [options.place] if options.place else PLACES
    modes = [options.mode] if options.mode else list(MODES)
    for place, mode in itertools.product(places, modes):
        storm = Storm(options.steps, options.kills, options.others, options.seed)
        began, what = time.monotonic(), f"{place}, {mode}, {options.collectives}"
        with tqdm(total=options.steps, desc=what, unit="step") as bar:
            args = storm, options.workers, bar.update, options.replicas
            there, alone = run(place, mode, options.collectives, *args)
        seconds = time.monotonic() - began
        assert_same_bits(there, alone)
        print(
            f"{what}: {len(storm.faults)} faults in {options.steps} steps, {seconds:.0f} s; "
            f"losses and parameters have the bits of undisturbed training"
        )
        _report(storm.faults)


if __name__ == "__main__":
    main()
