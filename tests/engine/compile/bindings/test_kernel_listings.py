"""A trace lists, for every operator, the kernels that computed it."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine import kernels
from dpexec.engine.compile.bindings.kernel_listings import kernels_for
from dpexec.engine.ir.spec import Spec
from tests.engine.run.nets import batches, classifier, train

native = pytest.mark.skipif(not kernels.available(), reason="numba is not installed")


def traced(devices=2, **fields):
    return train(classifier(dropout=0.1), batches(2), devices, trace=True, **fields).compiled.trace


def ran(graph, name):
    """Names and kinds of the kernels of all operators of a type."""
    found = [node["kernels"] for node in graph["nodes"] if node["name"] == name]
    assert found and all(numbers == found[0] for numbers in found)
    return [(graph["listings"][n]["name"], graph["listings"][n]["kind"]) for n in found[0]]


@native
def test_machine_code_is_told_with_its_source_and_types():
    graph = traced(enable_auto_fusion=True).graph
    ((name, kind),) = ran(graph, "cross_entropy2")
    assert (name, kind) == ("dpexec.engine.kernels.losses._cross_entropy", "machine code")
    listing = next(one for one in graph["listings"] if one["name"] == name)
    assert listing["source"].startswith("@kernel") and "def _cross_entropy(" in listing["source"]
    assert listing["takes"].startswith("_cross_entropy(int64 ") and "float32 *" in listing["takes"]
    fused = [n for n in graph["nodes"] if n["name"] == "fusion_group" and n["kernels"]]
    sources = [graph["listings"][n]["source"] for node in fused for n in node["kernels"]]
    assert any("def group_" in source for source in sources)  # generated, in no file
    names = [(one["kind"], one["name"]) for one in graph["listings"]]
    assert len(set(names)) == len(names)


@native
def test_sums_in_whole_steps_are_machine_code():
    assert ran(traced().graph, "fused_all_reduce") == [
        ("dpexec.engine.kernels.collectives.add", "machine code")
    ]


@native
def test_what_needs_no_kernel_has_none():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [4, 6])
        out = fluid.layers.scale(fluid.layers.reshape(fluid.layers.scale(x, 2.0), [6, 4]), 3.0)
    execution = fluid.ExecutionStrategy()
    execution.trace = True
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        exec_strategy=execution, places=[fluid.CPUPlace()]
    )
    fluid.Executor().run(compiled, feed={"x": np.ones((4, 6), "float32")}, fetch_list=[out])
    graph = compiled.trace.graph
    assert ran(graph, "reshape2") == []
    assert all(len(n["kernels"]) == 1 for n in graph["nodes"] if n["name"] == "scale")


def test_without_machine_code_declarations_ran():
    graph = traced(native_kernels=False).graph
    assert ran(graph, "softmax") == [("dpexec.engine.ops.softmax.softmax", "declaration")]
    assert ran(graph, "fused_all_reduce") == [
        ("dpexec.engine.compile.plans.collectives.combined", "Python")
    ]


@native
def test_an_operator_by_itself():
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        x = fluid.data("x", [-1, 6])
        fluid.layers.relu(x)
        fluid.layers.while_loop(
            lambda i: i < 3, lambda i: [i + 1], [fluid.layers.zeros([1], "int64")]
        )
    relu, loop = (
        next(op for op in main.global_block().ops if op.type == t) for t in ("relu", "while")
    )
    (found,) = kernels_for(relu, {name: Spec((4, 6)) for name in ("x", relu.output_arg_names[0])})
    assert found["name"].endswith("each_relu") and "a_x[i]" in found["source"]
    assert kernels_for(relu, {"x": Spec((-1, 6))}) is None  # of unknown sizes
    assert kernels_for(loop, {}) is None
