"""The SSA graph of several devices: owners, broadcasts, versions and order."""

import dpexec as fluid
from dpexec.engine.graph.build import ReplicationOptions, build_ssa_graph
from tests.engine.run.nets import classifier, words


def replicate(net, devices=3, **options):
    return build_ssa_graph(net.main, [fluid.CPUPlace()] * devices, ReplicationOptions(**options))


def labels(graph, kind):
    return [node for node in graph.ops if node.kind == kind]


def test_operators_come_after_everything_they_wait_for():
    for options in ({}, {"mode": "reduce"}, {"mode": "reduce", "shared_memory": False}):
        graph = replicate(classifier(fluid.optimizer.Adam(0.1)), **options)
        position = {node: index for index, node in enumerate(graph.ops)}
        for node in graph.ops:
            writers = [var.writer for var in node.inputs if var.writer is not None]
            assert all(position[before] < position[node] for before in writers)


def test_every_version_has_one_writer():
    graph = replicate(classifier())
    for versions_of in graph.versions:
        for versions in versions_of.values():
            assert [var.version for var in versions] == list(range(len(versions)))
            assert all(var.writer is not None for var in versions[1:])


def test_parameter_is_overwritten_after_its_last_reader():
    graph = replicate(classifier(), devices=2)
    for versions_of in graph.versions:
        old, new = versions_of["fc_0.w_0"]
        for reader in old.readers:
            if reader is not new.writer:
                assert reader in {var.writer for var in new.writer.inputs}


def test_optimizer_runs_on_the_owner_only():
    graph = replicate(classifier(fluid.optimizer.Momentum(0.1, 0.9)), mode="reduce")
    updates = {n.op.inputs["Param"][0]: n.device for n in graph.ops if n.name == "momentum"}
    assert len(updates) == sum(node.name == "momentum" for node in graph.ops) == 4
    assert all(graph.owners[param] == device for param, device in updates.items())
    assert set(updates.values()) == {0, 1, 2}


def test_shared_memory_needs_no_parameter_broadcast():
    assert not labels(replicate(classifier(), mode="reduce"), "broadcast")
    apart = labels(replicate(classifier(), mode="reduce", shared_memory=False), "broadcast")
    assert sorted(node.inputs[0].name for node in apart) == [
        "fc_0.b_0", "fc_0.w_0", "fc_1.b_0", "fc_1.w_0",
    ]  # fmt: skip
    assert all({var.device for var in node.outputs} | {node.device} == {0, 1, 2} for node in apart)


def test_global_norm_clip_brings_the_norms_together():
    clip = fluid.clip.GradientClipByGlobalNorm(1.0)
    graph = replicate(classifier(fluid.optimizer.SGD(0.1, grad_clip=clip)), mode="reduce")
    assert labels(graph, "broadcast")


def test_sparse_gradients_are_gathered_and_broadcast():
    graph = replicate(words(), devices=2)
    (gather,) = labels(graph, "reduce")
    (spread,) = labels(graph, "broadcast")
    assert gather.inputs[0].name == spread.inputs[0].name == "embedding_0.w_0@GRAD"


def test_rows_that_repeat_on_a_device_are_added_up_before_others_get_them():
    for mode in ("all_reduce", "reduce"):
        graph = replicate(words(), devices=2, mode=mode, merge_rows=True)
        gather = next(n for n in labels(graph, "reduce") if "embedding" in n.inputs[0].name)
        merges = [var.writer for var in gather.inputs]
        assert [(node.name, node.device) for node in merges] == [
            ("merge_selected_rows", 0),
            ("merge_selected_rows", 1),
        ]
        assert [node.inputs[0].writer.name for node in merges] == ["lookup_table_v2_grad"] * 2
    assert replicate(words(), devices=1, merge_rows=True).counts() == (
        replicate(words(), devices=1).counts()
    )


def test_one_device_has_no_collectives():
    graph = replicate(classifier(), devices=1, mode="reduce")
    assert not any(node.is_collective for node in graph.ops)
    assert graph.counts()["ops"]["Scale LossGrad"] == 1
