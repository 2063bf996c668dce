"""Models from ONNX files are trained on, on one device and on two."""

from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid

pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

from dpexec.onnx import load

NETS = Path(__file__).parents[2] / "fixtures" / "onnx"


def losses(name, is_test, replicas, steps=6, rate=0.2):
    """Losses of some steps, and the parameters after them."""
    arrays = np.load(NETS / f"{name}.npz")
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = load(NETS / f"{name}.onnx", is_test=is_test)
        startup = fluid.Program()
        with fluid.program_guard(program, startup):
            target = fluid.data("target", [-1, 1], "int64")
            logits = fluid.layers.flatten(fetches[0])
            loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, target))
            fluid.optimizer.SGD(rate).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        compiled = fluid.CompiledProgram(program).with_data_parallel(
            loss.name, places=fluid.cpu_places(replicas)
        )
        feed = {feed: arrays[f"in_{i}"] for i, feed in enumerate(feeds)}
        feed = {feed: np.concatenate([x, x]) for feed, x in feed.items()}
        feed["target"] = np.array([[0], [1], [2], [0]])
        found = [exe.run(compiled, feed=feed, fetch_list=[loss])[0] for _ in range(steps)]
        names = [p.name for p in program.all_parameters() if p.trainable]
        scope = fluid.global_scope()
        values = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
        grads = {op.input("Param")[0] for op in program.global_block().ops if op.type == "sgd"}
    return [float(np.mean(loss)) for loss in found], values, grads


@pytest.mark.parametrize("name", ["resnet-script", "vit-dynamo", "bert-dynamo", "lstm-script"])
def test_loss_falls_and_every_parameter_is_trained(name):
    found, values, trained = losses(name, is_test=True, replicas=1)
    assert found[-1] < found[0] * 0.95
    # Of BERT's two results the pooled one is trained on; it needs all parameters, too.
    assert trained == set(values)


def test_two_replicas_have_the_same_bits_on_every_run():
    one, two = (losses("vit-script", is_test=True, replicas=2)[:2] for _ in range(2))
    assert one[0] == two[0]
    assert all(np.array_equal(one[1][name], two[1][name]) for name in one[1])


def test_two_replicas_compute_what_one_computes():
    one, two = (losses("mobilenet-dynamo", is_test=True, replicas=n)[0] for n in (1, 2))
    np.testing.assert_allclose(one, two, rtol=1e-5)


def test_normalization_uses_the_batch_when_not_is_test():
    with fluid.scope_guard(fluid.Scope()):
        # The exporters fold normalizations into convolutions; this net keeps one.
        program, _, _ = load(normalized(), is_test=False)
        op = next(op for op in program.global_block().ops if op.type == "batch_norm")
        assert not op.attr("is_test") and not op.attr("use_global_stats")
        statistics = [op.input(slot)[0] for slot in ("Mean", "Variance")]
        assert statistics == ["mean", "variance"]
        assert {p.name for p in program.all_parameters() if p.trainable} == {"scale", "bias"}


def normalized(epsilon=1e-3):
    from onnx import helper, numpy_helper

    names = ("scale", "bias", "mean", "variance")
    weights = [numpy_helper.from_array(np.arange(1, 4, dtype=np.float32), n) for n in names]
    node = helper.make_node("BatchNormalization", ["x", *names], ["y"], epsilon=epsilon)
    ports = [helper.make_tensor_value_info(n, 1, ["n", 3, 4, 4]) for n in "xy"]
    graph = helper.make_graph([node], "normalized", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)])


def test_normalization_with_a_large_epsilon_follows_the_batch():
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(np.float32)
    start = np.arange(1, 4, dtype=np.float32)
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    wanted = np.moveaxis(x, 1, -1) - mean
    wanted = np.moveaxis(wanted / np.sqrt(variance + 0.25) * start + start, -1, 1)
    with fluid.scope_guard(fluid.Scope()):
        program, _, fetches = load(normalized(epsilon=0.25), is_test=False)
        exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.global_scope()
        [made] = exe.run(program, feed={"x": x}, fetch_list=fetches)
        running = [np.array(scope.find_var(n).get_tensor()) for n in ("mean", "variance")]
    np.testing.assert_allclose(made, wanted, atol=1e-5)
    np.testing.assert_allclose(running, 0.9 * start + 0.1 * np.stack([mean, variance]), rtol=1e-5)


def test_rows_of_attention_without_any_place_have_the_gradient_0():
    from onnx import helper, numpy_helper

    weights = {"w": np.ones([3, 3], np.float32), "zero": np.zeros((), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Add", ["scores", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["shares"]),
        helper.make_node("IsNaN", ["shares"], ["none"]),
        helper.make_node("Where", ["none", "zero", "shares"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(n, 1, ["n", 3]) for n in ("x", "mask", "y")]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "masked", ports[:2], ports[2:], tensors)
    mask = np.array([[0, 0, -np.inf], [-np.inf] * 3], np.float32)
    feed = {"x": np.array([[1, 2, 3], [4, 5, 6]], np.float32), "mask": mask}
    gradients = []
    for rows in (2, 1):  # with the row that sees nothing, and without it
        with fluid.scope_guard(fluid.Scope()):
            program, _, fetches = load(helper.make_model(graph))
            with fluid.program_guard(program, fluid.Program()):
                loss = fluid.layers.reduce_sum(fluid.layers.square(fetches[0]))
                [(_, gradient)] = fluid.backward.append_backward(loss)
            fetched = [*fetches, gradient]
            given = {name: array[:rows] for name, array in feed.items()}
            y, found = fluid.Executor(fluid.CPUPlace()).run(program, feed=given, fetch_list=fetched)
            gradients.append(found)
            np.testing.assert_allclose(y, np.array([[0.5, 0.5, 0], [0, 0, 0]])[:rows], atol=1e-6)
    assert np.isfinite(gradients[0]).all()
    np.testing.assert_allclose(*gradients, atol=1e-6)


KIND, FOLDED = (
    "pkg.torch.export.graph_signature.InputSpec.kind",
    "pkg.onnxscript.optimizer.folded_from",
)
ORIGINS = {
    "layer.weight": (True, {KIND: "PARAMETER"}),
    "layer.angles": (False, {KIND: "BUFFER"}),
    "lifted": (False, {KIND: "CONSTANT_TENSOR"}),
    "turned": (True, {FOLDED: "['layer.other', 'val_1']"}),
    "own": (True, {FOLDED: "['val_0', 'w']"}),
    "cos": (False, {FOLDED: "['_to_copy', 'arange', 'arange_1', 'cos']"}),
    "ones": (False, {FOLDED: "['val_16', 'val_2']"}),
    "torn": (True, {FOLDED: "['val_16', "}),
    "silent": (True, {}),
}


def test_what_the_exporter_calls_buffers_and_constants_is_not_trained():
    sums = ["x", *ORIGINS]
    nodes = [helper.make_node("Sum", sums, ["y"])]
    weights = [numpy_helper.from_array(np.full(3, i, "float32"), n) for i, n in enumerate(ORIGINS)]
    told = []
    for name, (_, properties) in ORIGINS.items():
        told.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]))
        helper.set_model_props(told[-1], properties)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 3]) for n in "xy"]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights, value_info=told)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = load(proto)
        trained = {p.name for p in program.all_parameters() if p.trainable}
        assert trained == {name for name, (wanted, _) in ORIGINS.items() if wanted}
        x = np.zeros((2, 3), "float32")
        [made] = fluid.Executor(fluid.CPUPlace()).run(program, {feeds[0]: x}, fetches)
        np.testing.assert_array_equal(made, np.full((2, 3), sum(range(len(ORIGINS)))))
        program, *_ = load(proto, trainable=["cos"])
        assert [p.name for p in program.all_parameters() if p.trainable] == ["cos"]
