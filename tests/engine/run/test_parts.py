"""Any store with any order and launch gives the same bits."""

import itertools

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.cluster.worker.gpus import WorkerLaunch
from dpexec.engine.cluster.worker.version_store import VersionStore
from dpexec.engine.cluster.worker.versions import StaleTaskError, Versions
from dpexec.engine.dispatch.engine import Engine
from dpexec.engine.run.host_launch import HostLaunch
from dpexec.engine.run.orders import DaskOrder, Inline
from dpexec.engine.run.scope_store import ScopeStore
from dpexec.engine.run.step_runner import StepRunner
from tests.engine.run.nets import batches, classifier, strategies

CPU = fluid.CPUPlace()
ORDERS = {
    "inline": Inline,
    "prepared": lambda: DaskOrder(2, True),
    "dask's threads": lambda: DaskOrder(2, False),
    "dask alone": lambda: DaskOrder(0, True),
}
LAUNCHES = {"host": HostLaunch, "worker": lambda: WorkerLaunch(CPU)}
STORES = ["scope", "versions"]


class Stepping:
    """A net on one device that makes its steps with given parts."""

    def __init__(self, store, order, launch):
        net, self.scope = classifier(fluid.optimizer.Adam(0.01), dropout=0.3), fluid.Scope()
        fluid.Executor(CPU).run(net.startup, scope=self.scope)
        self.engine = Engine(net.main, [CPU], self.scope, *strategies(), scale_loss_grad=True)
        self.loss, self.store = net.loss.name, store
        self.order, self.launch = ORDERS[order](), LAUNCHES[launch]()
        self.names = sorted(v.name for v in net.main.list_vars() if v.persistable)
        self.versions = Versions(0, {name: np.array(self.stored(name)) for name in self.names})

    def stored(self, name):
        return self.scope.find_var(name).get_tensor().numpy()

    def step(self, number, feed, order=None):
        engine, self.order = self.engine, order or self.order
        feeds = engine.feeds_of(feed)
        binding = engine.bindings.of(feeds, (self.loss,), True)
        engine.replicas.scope.set_run_count(engine.label, number - 1)
        store = ScopeStore(engine.replicas, engine.label)
        if self.store == "versions":
            store = VersionStore({0: self.versions}, number)
        runner = StepRunner(store, self.order, self.launch)
        (found,) = runner.step(binding, feeds, lambda: engine._shards(feeds), True)
        return found[self.loss] if isinstance(self.launch, WorkerLaunch) else found

    def train(self):
        losses = [self.step(number, feed) for number, feed in enumerate(batches(4), 1)]
        return [loss.tobytes() for loss in losses], self.state()

    def state(self):
        values = self.versions.values if self.store == "versions" else None
        return {
            name: (self.stored(name) if values is None else values[name]).tobytes()
            for name in self.names
        }


@pytest.fixture(scope="module")
def expected():
    return Stepping("scope", "inline", "host").train()


@pytest.mark.parametrize(
    ("store", "order", "launch"), [*itertools.product(STORES, ORDERS, LAUNCHES)]
)
def test_same_bits_with_all_parts(store, order, launch, expected):
    assert Stepping(store, order, launch).train() == expected


class Failing:
    """An order that fails where updates may begin, or behind them."""

    def __init__(self, late):
        self.late = late

    def run(self, tasks):
        for task in tasks.plan.tasks:
            if task.id in tasks.plan.updates and not self.late:
                raise ZeroDivisionError("before updates")
            tasks.run(task.id)
        raise ZeroDivisionError("after updates")


@pytest.mark.parametrize("late", [False, True])
def test_versions_stay_what_they_were_when_a_step_fails(late, expected):
    stepping = Stepping("versions", "inline", "host")
    first, *rest = batches(4)
    stepping.step(1, first)
    before = stepping.state()
    with pytest.raises(ZeroDivisionError):
        stepping.step(2, rest[0], Failing(late))
    assert stepping.state() == before and stepping.versions.step == 1
    stepping.order = Inline()
    for number, feed in enumerate(rest, 2):
        stepping.step(number, feed)
    assert stepping.state() == expected[1]
    with pytest.raises(StaleTaskError):
        stepping.versions.stand_at(1)


def test_a_scope_stays_what_it_was_when_a_step_fails_before_updates():
    stepping = Stepping("scope", "inline", "host")
    before = stepping.state()
    with pytest.raises(ZeroDivisionError, match="before updates"):
        stepping.step(1, batches(1)[0], Failing(late=False))
    assert stepping.state() == before
