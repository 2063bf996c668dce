"""Graph files: their content, and the same text in every process."""

import cProfile
import hashlib
import json
import pstats
import subprocess
import sys
from pathlib import Path

import pytest

import dpexec as fluid
from dpexec.engine.graph.build import ReplicationOptions, build_ssa_graph
from dpexec.engine.graph.describe import describe
from dpexec.engine.ir.spec import Spec
from tests.engine.run.nets import batches, classifier, train, words

ROOT = Path(__file__).parents[3]
SCRIPT = """
import json, dpexec as fluid
from dpexec.engine.graph.build import ReplicationOptions, build_ssa_graph
from tests.engine.run.nets import classifier
net = classifier(fluid.optimizer.Adam(0.1))
graph = build_ssa_graph(net.main, [fluid.CPUPlace()] * 3, ReplicationOptions(mode="reduce"))
print(json.dumps(graph.to_json()))
"""


def replicate(net, devices=2, **options):
    return build_ssa_graph(net.main, [fluid.CPUPlace()] * devices, ReplicationOptions(**options))


def node_of(data, **facts):
    return next(n for n in data["nodes"] if all(n[key] == value for key, value in facts.items()))


def test_nodes_and_variables_are_those_of_the_graph():
    graph = replicate(classifier())
    data = graph.to_json()
    assert [node["name"] for node in data["nodes"]] == [node.name for node in graph.ops]
    for node, row in zip(graph.ops, data["nodes"], strict=True):
        assert row["inputs"] == [var.id for var in node.inputs]
        assert row["outputs"] == [var.id for var in node.outputs]
    assert [(v["name"], v["version"], v["device"]) for v in data["vars"]] == [
        (var.name, var.version, var.device) for var in graph.vars
    ]


def test_layers_go_by_the_names_of_parameters():
    data = replicate(classifier(fluid.optimizer.Adam(0.1))).to_json()
    assert node_of(data, name="mul", device=0)["layer"] == "fc_0"
    assert node_of(data, name="relu", device=1)["layer"] == "fc_0"
    assert node_of(data, name="mul_grad", device=1)["layer"] == "fc_1"
    assert {n["layer"] for n in data["nodes"] if n["name"] == "adam"} == {"fc_0", "fc_1"}
    assert {n["layer"] for n in data["nodes"] if n["role"] == "collective"} == {"fc_0", "fc_1"}
    embedding = replicate(words()).to_json()
    assert node_of(embedding, name="lookup_table_v2_grad", device=0)["layer"] == "embedding_0"
    assert node_of(embedding, name="broadcast")["layer"] == "embedding_0"


def test_the_line_is_the_users():
    data = replicate(classifier()).to_json()
    assert node_of(data, name="relu", device=0)["line"].startswith("nets.py:")
    assert node_of(data, name="all_reduce")["line"] is None


def test_bytes_are_unknown_with_a_dimension():
    data = replicate(classifier()).to_json()
    facts = {var["name"]: var for var in data["vars"]}
    assert facts["x"]["shape"] == [-1, 8] and facts["x"]["bytes"] is None
    assert facts["fc_0.w_0@GRAD"]["bytes"] == 8 * 16 * 4
    assert facts["fc_0.w_0"]["persistable"] and facts["fc_0.w_0"]["dtype"] == "float32"
    sparse = replicate(words()).to_json()["vars"]
    assert {v["bytes"] for v in sparse if v["name"] == "embedding_0.w_0@GRAD"} == {None}


def test_shapes_of_a_batch_replace_what_is_declared():
    graph = replicate(classifier())
    data = describe(graph, specs=[{"x": Spec((6, 8))}, {"x": Spec((5, 8))}])
    shapes = {var["device"]: var["shape"] for var in data["vars"] if var["name"] == "x"}
    assert shapes == {0: [6, 8], 1: [5, 8]}


def test_a_plan_tells_the_task_of_every_node():
    plan = train(classifier(), batches(1), devices=2).compiled.plan
    data = plan.to_json()
    keys = [task["key"] for task in data["tasks"]]
    assert len(set(keys)) == len(plan.tasks)
    for task in data["tasks"]:
        assert {data["nodes"][number]["task"] for number in task["nodes"]} == {task["key"]}
        assert set(task["after"]) <= set(keys)


def test_nodes_name_the_operators_of_their_blocks():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        count = fluid.layers.fill_constant([1], "int64", 0)
        limit = fluid.layers.fill_constant([1], "int64", 3)
        going = fluid.layers.less_than(count, limit)
        loop = fluid.layers.While(going)
        with loop.block():
            last = fluid.layers.equal(count, limit)
            with fluid.layers.control_flow.ConditionalBlock([last], True).block():
                fluid.layers.increment(limit)
            fluid.layers.increment(count)
            fluid.layers.less_than(count, limit, cond=going)
    graph = build_ssa_graph(main, [fluid.CPUPlace()], ReplicationOptions(scale_loss_grad=False))
    data = graph.to_json()
    body = node_of(data, name="while")["body"]
    assert [(inner["depth"], inner["name"]) for inner in body] == [
        (0, "equal"),
        (0, "conditional_block"),
        (1, "increment"),
        (0, "increment"),
        (0, "less_than"),
    ]
    assert body[-1]["output"] == going.name
    assert body[-1]["reads"] == [count.name, limit.name] and body[-1]["writes"] == [going.name]
    assert body[-1]["shapes"] == [[1]] and body[-1]["line"].startswith("test_describe.py:")
    assert "body" not in node_of(data, name="less_than")


def test_fused_nodes_name_their_parts():
    fused = {"fuse_elewise_add_act_ops": True, "fuse_all_optimizer_ops": True}
    graph = train(classifier(), batches(1), devices=2, **fused).compiled.graph
    parts = {node["name"]: node["parts"] for node in graph.to_json()["nodes"] if "parts" in node}
    assert parts["fused_elemwise_activation"] == ["relu", "elementwise_add"]
    assert parts["fused_sgd"] == ["sgd"] * 4
    assert parts["fused_all_reduce"] == ["all_reduce fc_0.b_0@GRAD", "all_reduce fc_0.w_0@GRAD"]
    assert "mul" not in parts


@pytest.mark.parametrize("seeds", [("1", "2")])
def test_the_same_text_whatever_the_hash_seed(seeds):
    texts = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in seeds
    }
    assert len({hashlib.sha256(text).hexdigest() for text in texts}) == 1


def test_work_grows_with_the_number_of_nodes_and_no_faster():
    def calls_per_node(layers):
        graph = replicate(classifier(sizes=(8, *[4] * layers, 3)), devices=2)
        profile = cProfile.Profile()
        data = profile.runcall(describe, graph)
        return pstats.Stats(profile).total_calls / len(data["nodes"])

    assert calls_per_node(80) < 1.1 * calls_per_node(20)


def test_save_writes_what_to_json_returns(tmp_path):
    graph = replicate(classifier())
    assert json.loads(graph.save(tmp_path / "graph.json").read_text()) == graph.to_json()
