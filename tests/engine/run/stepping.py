"""A net on one device, or some, whose steps are made with any of the parts that there are."""

import numpy as np

import dpexec as fluid
from dpexec.engine.cluster.worker.gpus import WorkerLaunch
from dpexec.engine.cluster.worker.version_store import VersionStore
from dpexec.engine.cluster.worker.versions import Versions
from dpexec.engine.dispatch.engine import Engine
from dpexec.engine.run.host_launch import HostLaunch
from dpexec.engine.run.orders import DaskOrder, Inline
from dpexec.engine.run.scope_store import ScopeStore
from dpexec.engine.run.step_runner import StepRunner
from dpexec.engine.run.whole_code import WholeCode
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
    """A net on one device, or some, that makes its steps with given parts."""

    def __init__(self, store, order, launch, in_code=False, net=None, devices=1):
        net = net or classifier(fluid.optimizer.Adam(0.01), dropout=0.3)
        self.scope = fluid.Scope()
        fluid.Executor(CPU).run(net.startup, scope=self.scope)
        self.engine = Engine(
            net.main, [CPU] * devices, self.scope, *strategies(), scale_loss_grad=True
        )
        self.loss, self.store = net.loss.name, store
        self.order, self.launch = ORDERS[order](), LAUNCHES[launch]()
        self.in_code = in_code
        self.names = sorted(v.name for v in net.main.list_vars() if v.persistable)
        self.replicas = {
            device: Versions(0, {name: np.array(self.stored(name)) for name in self.names})
            for device in range(devices)
        }
        self.versions = self.replicas[0]
        self.places = ScopeStore(self.engine.replicas, self.engine.label)
        if store != "scope":
            mirrored = [()] * devices if store == "waiting" else None  # updates wait for a step
            self.places = VersionStore(self.replicas, 0, mirrored)
        self.code = WholeCode(self.places, lambda *given: self.fetch(*given), None, 1)

    def stored(self, name):
        return self.scope.find_var(name).get_tensor().numpy()

    def step(self, number, feed, order=None):
        engine, self.order = self.engine, order or self.order
        feeds = engine.feeding.feeds_of(feed)
        binding = engine.bindings.of(feeds, (self.loss,), True)
        engine.replicas.scope.set_run_count(engine.label, number - 1)
        if self.store != "scope":
            self.places.settle()
            self.places.go_on(number)
        code = self.code if self.in_code else None
        runner = StepRunner(self.places, self.order, self.launch, code=code)
        (found,) = runner.step(binding, feeds, lambda: engine._shards(feeds), True)
        assert not self.in_code or number == 1 or [*code.by_binding.values()] != [None]
        return found[self.loss] if isinstance(self.launch, WorkerLaunch) else found

    def fetch(self, plan, envs, merged):
        return self.launch.fetch(plan, envs, merged, None)

    def train(self, feeds=None):
        losses = [self.step(number, feed) for number, feed in enumerate(feeds or batches(4), 1)]
        return [loss.tobytes() for loss in losses], self.state()

    def state(self):
        values = self.versions.at(self.versions.step) if self.store != "scope" else None
        return {
            name: (self.stored(name) if values is None else values[name]).tobytes()
            for name in self.names
        }
