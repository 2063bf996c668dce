"""The passes that fuse batch norm with relu, and relu with depthwise convolution."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.graph.operators import Operators
from dpexec.engine.passes import FuseBatchNormActivation, FuseReluDepthwiseConv, PassManager
from tests.engine.run.nets import AllReduce, Net, Reduce, assert_same_bits, train


def images(normalized):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 4
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x, y = fluid.data("x", [None, 2, 6, 6]), fluid.data("y", [None, 1], "int64")
        hidden = fluid.layers.conv2d(x, 4, 3, bias_attr=False)
        hidden = fluid.layers.batch_norm(hidden, act="relu") if normalized else hidden
        hidden = fluid.layers.relu(fluid.layers.conv2d(hidden, 4, 3, padding=1))
        hidden = fluid.layers.conv2d(hidden, 8, 3, groups=4, use_cudnn=False)
        prediction = fluid.layers.fc(hidden, 3, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        test = main.clone(for_test=True)
        fluid.optimizer.Adam(0.01).minimize(loss)
    return Net(main, startup, loss, test, prediction)


def feeds(steps=2):
    rng = np.random.RandomState(2)
    return [
        {
            "x": rng.randn(6, 2, 6, 6).astype("float32"),
            "y": rng.randint(0, 3, (6, 1)).astype("int64"),
        }
        for _ in range(steps)
    ]


def types(program, step):
    manager = PassManager([], [step])
    operators = manager.rewrite(Operators(program))
    (record,) = manager.records
    return [op.type for op in operators.ops], record


def test_batch_norm_takes_relu():
    after, record = types(images(True).main, FuseBatchNormActivation())
    assert record.ops_before - record.ops_after == 2
    assert not {"batch_norm", "batch_norm_grad"} & set(after)
    assert {"fused_batch_norm_act", "fused_batch_norm_act_grad"} <= set(after)
    after, record = types(images(False).main, FuseBatchNormActivation())
    assert not record.modified


def test_depthwise_convolution_takes_relu():
    main = images(False).main
    after, record = types(main, FuseReluDepthwiseConv())
    assert record.ops_before - record.ops_after == 2
    assert not {"relu", "relu_grad"} & set(after)
    operators = Operators(main)
    FuseReluDepthwiseConv().rewrite(operators)
    for op in operators.ops:
        if op.type.startswith("depthwise"):
            assert op.attr("fuse_relu_before_depthwise_conv")
            assert op.input("Input") == ["conv2d_1.tmp_1"]


def test_relu_that_others_read_stays():
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        hidden = fluid.layers.relu(fluid.data("x", [None, 4, 6, 6]))
        made = fluid.layers.conv2d(hidden, 4, 3, padding=1, groups=4, use_cudnn=False)
        fluid.layers.elementwise_add(made, hidden)
    _, record = types(main, FuseReluDepthwiseConv())
    assert not record.modified


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("field", ["fuse_bn_act_ops", "fuse_relu_depthwise_conv"])
def test_bits_stay(field, mode, devices):
    plain, fused = (
        train(images(True), feeds(), devices, mode, **{field: on}) for on in (False, True)
    )
    assert_same_bits(plain, fused)
    records = {record.name: record for record in fused.compiled._engine.pass_records}
    assert records[field].modified


def test_test_program_has_the_bits_of_the_plain_one():
    net, (feed,) = images(True), feeds(1)
    found = []
    for on in (False, True):
        run = train(net, [feed], 1, fuse_bn_act_ops=on, fuse_relu_depthwise_conv=on)
        build = fluid.BuildStrategy()
        build.fuse_bn_act_ops = build.fuse_relu_depthwise_conv = on
        with fluid.scope_guard(run.scope):
            compiled = fluid.CompiledProgram(net.test, build).with_data_parallel(
                places=[fluid.CPUPlace()], build_strategy=build
            )
            exe = fluid.Executor(fluid.CPUPlace())
            found.append(exe.run(compiled, feed=feed, fetch_list=[net.prediction])[0])
    assert np.array_equal(*found)
