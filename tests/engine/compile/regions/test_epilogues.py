"""Operators that are computed together with a neighbour have the bits of separate ones."""

import functools

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine import kernels
from dpexec.engine.kernels import batch_norm
from tests.engine.run.nets import Net

pytestmark = pytest.mark.skipif(not kernels.available(), reason="numba is not installed")

NORMALIZED = "batch_norm_0.tmp_2"


def images(shared=False, layout="NCHW"):
    """Two convolutions with a batch norm and a relu; the norm may have another reader."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 4
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x, y = fluid.data("x", [None, 3, 7, 5]), fluid.data("y", [None, 1], "int64")
        hidden = fluid.layers.conv2d(x, 4, 3, bias_attr=False)
        normalized = fluid.layers.batch_norm(hidden, data_layout=layout)
        hidden = fluid.layers.relu(normalized)
        if shared:
            hidden = fluid.layers.elementwise_add(hidden, normalized)
        prediction = fluid.layers.fc(fluid.layers.conv2d(hidden, 4, 3), 3, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        test = main.clone(for_test=True)
        fluid.optimizer.SGD(0.1).minimize(loss)
    return Net(main, startup, loss, test, prediction)


def train(net, fetch, compiled):
    rng = np.random.default_rng(2)
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(net.startup)
        target = compiled(net)
        for _ in range(3):
            x = rng.normal(size=(6, 3, 7, 5)).astype("float32")
            y = rng.integers(0, 3, (6, 1))
            loss = exe.run(target, feed={"x": x, "y": y}, fetch_list=[net.loss, *fetch])[0]
        names = sorted(p.name for p in net.main.list_vars() if p.persistable)
        tensors = [fluid.global_scope().find_var(name) for name in names]
        return loss, [np.array(t.get_tensor()) for t in tensors if t and t.get_tensor().shape()]


def parallel(net):
    return fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, places=fluid.cpu_places(2)
    )


@pytest.mark.parametrize("compiled", [parallel, lambda net: net.main], ids=["replicas", "plain"])
@pytest.mark.parametrize(
    ("options", "together"), [({}, True), ({"layout": "NHWC"}, True), ({"shared": True}, False)]
)
def test_a_batch_norm_does_the_relu_beside_it(options, together, compiled, monkeypatch):
    seen = set()

    def spy(function, code, *values, **attrs):
        seen.update({"relu"} if code.relu else {"relu_grad"} if code.clipped else ())
        return function(code, *values, **attrs)

    for lowering in (batch_norm.batch_norm, batch_norm.batch_norm_grad):
        monkeypatch.setattr(lowering, "function", functools.partial(spy, lowering.function))
    loss, parameters = train(images(**options), [], compiled)
    assert seen == ({"relu", "relu_grad"} if together else set())
    seen.clear()
    fetch = [NORMALIZED, NORMALIZED + "@GRAD"]
    loss_alone, parameters_alone = train(images(**options), fetch, compiled)
    assert not seen
    assert np.array_equal(loss, loss_alone)
    assert len(parameters) > 6
    for mine, theirs in zip(parameters, parameters_alone, strict=True):
        assert np.array_equal(mine, theirs)


def test_a_fused_addition_reads_the_product_that_another_one_adds_to():
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 4])
        product = fluid.layers.fc(x, 8, bias_attr=False)
        first, second = (fluid.layers.create_parameter([8], "float32") for _ in range(2))
        added = fluid.layers.elementwise_add(product, first)
        fused = fluid.layers.relu(fluid.layers.elementwise_add(product, second))
    build = fluid.BuildStrategy()
    build.fuse_elewise_add_act_ops = True
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        build_strategy=build, places=[fluid.CPUPlace()]
    )
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.arange(12, dtype="f4").reshape(3, 4)}
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        expected = exe.run(main, feed, [added, fused])
        for found, right in zip(exe.run(compiled, feed, [added, fused]), expected, strict=True):
            np.testing.assert_array_equal(found, right)
    names = [op["name"] for op in compiled.graph.to_json()["nodes"]]
    assert "fused_elemwise_activation" in names
