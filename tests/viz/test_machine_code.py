"""The machine code of an operator's kernels."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers, viz
from dpexec.engine.trace import Trace
from tests.engine.run.nets import batches, classifier, train


@pytest.fixture(scope="module")
def run():
    return train(classifier(), batches(3), devices=2, trace=True).compiled


def test_an_operator_has_source_llvm_and_assembly(run):
    node = next(node for node in run.trace.graph["nodes"] if node["name"] == "sgd")
    by_type, by_number = viz.machine_code(run, "sgd"), viz.machine_code(run.trace, node["id"])
    assert {one.name for one in by_number} <= {one.name for one in by_type}
    one = by_number[0]
    assert "def " in one.python and one.takes.endswith("-> int64")
    assert "define " in one.llvm and ".globl" in one.assembly
    assert one.name in str(by_type) and one.assembly.rstrip() in str(by_type)


def test_what_there_is_none_of_says_so(run):
    with pytest.raises(ValueError, match=r"no operator 'nothing'; there are .*mul_grad"):
        viz.machine_code(run, "nothing")
    graph = {**run.trace.graph, "listings": [], "nodes": [{"id": 0, "name": "relu"}]}
    with pytest.raises(ValueError, match="did the work of 'relu', but nothing that was recorded"):
        viz.machine_code(Trace(run.trace.events, run.trace.meta, graph), "relu")


def loop():
    """A loop of three rounds in one branch of two."""
    x = layers.data("x", [16])
    hidden = layers.fc(x, 16)

    def looped():
        counter = layers.fill_constant([1], "int64", 0)
        limit = layers.fill_constant([1], "int64", 3)
        going = layers.less_than(counter, limit)
        with layers.While(going).block():
            layers.assign(layers.tanh(layers.fc(hidden, 16)), hidden)
            layers.increment(counter)
            layers.less_than(counter, limit, cond=going)
        return hidden

    always = layers.less_than(
        layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 1)
    )
    return layers.cond(always, looped, lambda: hidden)


def test_operators_of_blocks_have_the_kernels_that_ran():
    loss = layers.mean(loop())
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    execution = fluid.ExecutionStrategy()
    execution.trace = True
    replicas = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, exec_strategy=execution, places=fluid.cpu_places(2)
    )
    for _ in range(2):
        executor.run(replicas, feed={"x": np.ones((8, 16), "float32")}, fetch_list=[loss])
    graph = replicas.trace.graph
    inner = [one for node in graph["nodes"] for one in node.get("body", ())]
    assert {one["depth"] for one in inner} == {0, 1}
    kinds = {one["name"]: {graph["listings"][n]["kind"] for n in one["kernels"]} for one in inner}
    assert kinds["tanh"] == kinds["mul"] == {"machine code"}
    assert kinds["while"] == {"declaration"}
    assert all(__file__.endswith(one["line"].partition(":")[0]) for one in inner)
    assert "tanh" in viz.machine_code(replicas, "tanh")[0].python
