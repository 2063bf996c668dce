"""The pass that sends several variables in one broadcast."""

from distributed import Client

import dpexec as fluid
from dpexec.engine.passes import FuseBroadcast, PassManager
from tests.engine.run.nets import Reduce, assert_same_bits, batches, classifier, train


def test_parameters_of_an_owner_go_together(replicated):
    graph = replicated(classifier(sizes=(8, 16, 16, 3)).main, mode="reduce", shared=False)
    manager = PassManager([FuseBroadcast()])
    assert graph.counts()["ops"]["broadcast"] == 6
    sent = {var.name for node in graph.ops if node.kind == "broadcast" for var in node.inputs}
    manager.run(graph)
    nodes = [node for node in graph.ops if node.kind == "broadcast"]
    assert [node.name for node in nodes] == ["fused_broadcast"] * 2
    assert {node.device for node in nodes} == {0, 1}
    assert {var.name for node in nodes for var in node.inputs} == sent
    assert manager.records[0].modified
    assert not FuseBroadcast().apply(graph)


def test_bits_stay():
    def run(client, fused):
        net = classifier(fluid.optimizer.Adam(0.01), sizes=(8, 16, 16, 3))
        options = {"fuse_broadcast_ops": fused, "scheduler": client}
        return train(net, batches(2), 2, Reduce, **options)

    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0") as c:
        apart, together = run(c, False), run(c, True)
        assert_same_bits(apart, together)
    assert together.compiled._engine.graph.counts()["ops"]["fused_broadcast"] == 2
