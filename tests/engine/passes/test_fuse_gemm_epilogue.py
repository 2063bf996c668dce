"""The pass that fuses products with bias and relu, forward and backward."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.graph.operators import Operators
from dpexec.engine.passes import FuseGemmEpilogue, PassManager
from tests.engine.gpu.programs import NETS, assert_same_bits, feeds_of, trained
from tests.engine.run.nets import AllReduce, Reduce, classifier
from tests.fakes.cupy import install


def rewritten(program, kept=()):
    manager = PassManager([], [FuseGemmEpilogue()])
    return manager.rewrite(Operators(program, kept)), manager.records[0]


def types(operators):
    return [op.type for op in operators.ops]


def test_layers_and_their_gradients_are_fused():
    operators, record = rewritten(classifier(sizes=(4, 5, 6, 3)).main)
    assert record.modified
    assert types(operators).count("fused_gemm_epilogue") == 3
    assert types(operators).count("fused_gemm_epilogue_grad") == 3
    left = {"mul", "mul_grad", "elementwise_add", "elementwise_add_grad", "relu"}
    assert not left & set(types(operators)) and "relu_grad" in types(operators)
    forward, *_, backward = (op for op in operators.ops if op.type.startswith("fused"))
    assert forward.attr("activation") == "relu"
    assert backward.role_var == ["fc_0.b_0", "fc_0.b_0@GRAD", "fc_0.w_0", "fc_0.w_0@GRAD"]


def test_gradient_that_is_fetched_between_stays():
    net = classifier(sizes=(4, 5, 6, 3))
    operators, _ = rewritten(net.main, ["fc_1.tmp_0@GRAD"])
    assert types(operators).count("mul_grad") == types(operators).count("elementwise_add_grad") == 1
    assert types(operators).count("mul") == 1  # that gradient reads its result


@pytest.mark.parametrize(("shape", "axis"), [([4], 0), ([4, 4], -1)])
def test_other_sums_stay(shape, axis):
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        x, y = fluid.data("x", [4, 2]), fluid.data("y", shape)
        weight = fluid.layers.create_parameter([2, 4], "float32")
        fluid.layers.elementwise_add(fluid.layers.mul(x, weight), y, axis=axis)
    operators, record = rewritten(main)
    assert not record.modified and "mul" in types(operators)


def test_bias_in_front_of_the_product_stays():
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [1, 2])
        weight = fluid.layers.create_parameter([2, 3], "float32")
        bias = fluid.layers.create_parameter([1, 3], "float32")
        fluid.layers.elementwise_add(bias, fluid.layers.mul(x, weight))
    assert not rewritten(main)[1].modified


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("name", ["momentum", "dropout", "regression", "sequences"])
def test_bits_stay_without_the_library(monkeypatch, name, mode):
    install(monkeypatch, 2)
    net, feeds, gpus = NETS[name](), feeds_of(name, 2), [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    found = trained(net, gpus, mode, feeds, fuse_gemm_epilogue=True)
    assert_same_bits(found, trained(net, gpus, mode, feeds))
    others = {"enable_auto_fusion": True, "fuse_elewise_add_act_ops": True}
    both = trained(net, gpus, mode, feeds, fuse_gemm_epilogue=True, **others)
    for parameter, value in both[1].items():
        np.testing.assert_allclose(found[1][parameter], value, 1e-4, 1e-6, err_msg=parameter)
