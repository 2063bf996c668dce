"""An operator of a user, declared at one place, and programs that show what follows from it."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers, viz
from dpexec.contrib.mixed_precision import AutoMixedPrecisionLists
from dpexec.engine.ir import opdef
from dpexec.extend import op, same_as
from tests.fakes.cupy import install


@op(
    "doubled",
    inputs="X",
    outputs="Out",
    infer=same_as("X"),
    ulps=0,
    capturable=True,
    makes_numbers=True,
    fuses=True,
    precision="white",
)
def doubled(xp, x):
    """Twice as much."""
    return x + x


@doubled.grad("Out@GRAD", outputs="X@GRAD")
def doubled_grad(xp, d_out):
    """Twice the gradient."""
    return d_out + d_out


def layer(x):
    block = fluid.default_main_program().global_block()
    name = fluid.unique_name.generate("doubled")
    out = block.create_var(name=name, dtype=x.dtype, shape=x.shape)
    block.append_op(type="doubled", inputs={"X": x}, outputs={"Out": out})
    return out


def net():
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [6, 4])
        hidden = layers.tanh(layer(layers.relu(layers.fc(x, 4))))
        rows = layer(layers.slice(layers.shape(x), [0], [0], [1]))
        loss = layers.mean(layers.reshape(hidden, [rows, -1]))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, startup, loss


def trained(place, fuse):
    main, startup, loss = net()
    build, run_as = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    build.enable_auto_fusion = fuse
    build.allow_cuda_graph_capture = isinstance(place, fluid.CUDAPlace)
    run_as.trace = not build.allow_cuda_graph_capture  # recorded steps have no graphs
    program = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, build, run_as, places=[place]
    )
    exe, feed = fluid.Executor(place), {"x": np.ones((6, 4), np.float32)}
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        losses = [exe.run(program, feed, [loss])[0].item() for _ in range(3)]
    return program, losses


def parts_of(program):
    return [node.get("parts", [node["name"]]) for node in program.graph.to_json()["nodes"]]


plain, losses = trained(fluid.CPUPlace(), fuse=False)
nodes = {node["name"]: node for node in plain.graph.to_json()["nodes"]}
assert nodes["doubled_grad"]["flops"] == 6 * 4
assert nodes["doubled_grad"]["bytes"] == 2 * 6 * 4 * 4
rows = {row.name: row for row in viz.table(plain, steps=[0, 1, 2]).rows}
assert rows["doubled_grad"].gflops

fused, again = trained(fluid.CPUPlace(), fuse=True)
assert again == losses
assert ["elementwise_add", "relu", "doubled", "tanh"] in parts_of(fused)
assert any("doubled_grad" in parts for parts in parts_of(fused) if len(parts) > 1)

with pytest.MonkeyPatch.context() as patch:
    cupy = install(patch, 1)
    captured, on_gpu = trained(fluid.CUDAPlace(0), fuse=False)
    np.testing.assert_allclose(on_gpu, losses, rtol=1e-5)
    assert [op.type for op in captured.plan.on_host].count("doubled") == 1
    assert any(name == "graph" for *_, name in cupy.machine.log)

assert "doubled" in AutoMixedPrecisionLists().white_list
del opdef._registry["doubled"], opdef._registry["doubled_grad"]
lists = AutoMixedPrecisionLists()
assert "doubled" not in {*lists.white_list, *lists.black_list, *lists.gray_list}
