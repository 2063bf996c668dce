"""Flops and bytes of operators, compared with counts by hand."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.dtypes import VarType, as_var_type
from dpexec.engine.graph.costs import bytes_of, flops_of, macs_of
from dpexec.engine.ir import opdef
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.spec import Spec
from tests.engine.ops.calls import SampleCall, samples

LOOKUP = {"W": (1000, 8), "Ids": (5, 1)}


def call(type, inputs, outputs, **attrs):
    """An operator, and what is known of its variables: shapes, or lists of them."""
    specs, slots = {}, ({}, {})
    for given, names in zip((inputs, outputs), slots, strict=True):
        for slot, shapes in given.items():
            shapes = shapes if isinstance(shapes, list) else [shapes]
            names[slot] = [f"{slot}_{number}" for number in range(len(shapes))]
            kind = as_var_type("int64" if slot in ("Ids", "Label") else "float32")
            specs |= {
                name: Spec(shape, kind) for name, shape in zip(names[slot], shapes, strict=True)
            }
    block = fluid.Program().global_block()
    return Operator(block, type, *slots, attrs, None, False), specs.get


PRODUCTS = [
    ("mul", {"X": (8, 16, 5), "Y": (80, 3)}, {"Out": (8, 3)}, {}, 8 * 80 * 3),
    (
        "mul",
        {"X": (8, 16, 5), "Y": (5, 3)},
        {"Out": (8, 16, 3)},
        {"x_num_col_dims": 2},
        8 * 16 * 5 * 3,
    ),
    ("matmul", {"X": (7, 2, 3), "Y": (7, 3, 5)}, {"Out": (7, 2, 5)}, {}, 7 * 2 * 3 * 5),
    ("matmul", {"X": (3, 2), "Y": (3, 5)}, {"Out": (2, 5)}, {"transpose_X": True}, 2 * 3 * 5),
    ("matmul", {"X": (2, 8), "Y": (8, 5)}, {"Out": (2, 20)}, {"head_number": 4}, 2 * 8 * 5),
    ("bmm", {"X": (7, 2, 3), "Y": (7, 3, 5)}, {"Out": (7, 2, 5)}, {}, 7 * 2 * 3 * 5),
    ("fc", {"Input": (8, 80), "W": (80, 3), "Bias": (3,)}, {"Out": (8, 3)}, {}, 8 * 80 * 3),
    (
        "conv2d",
        {"Input": (8, 4, 32, 32), "Filter": (16, 2, 3, 3)},
        {"Output": (8, 16, 30, 30)},
        {"groups": 2},
        8 * 16 * 30 * 30 * 2 * 9,
    ),
    (
        "conv2d_transpose",
        {"Input": (8, 4, 5, 5), "Filter": (4, 6, 3, 3)},
        {"Output": (8, 6, 11, 11)},
        {"strides": [2, 2]},
        8 * 25 * 4 * 6 * 9,
    ),
    (
        "mul_grad",
        {"X": (8, 80), "Y": (80, 3), "Out@GRAD": (8, 3)},
        {"X@GRAD": (8, 80), "Y@GRAD": (80, 3)},
        {},
        2 * 8 * 80 * 3,
    ),
    (
        "mul_grad",
        {"X": (8, 80), "Y": (80, 3), "Out@GRAD": (8, 3)},
        {"X@GRAD": [], "Y@GRAD": (80, 3)},
        {},
        8 * 80 * 3,
    ),
    (
        "conv2d_grad",
        {"Input": (2, 3, 8, 8), "Filter": (4, 3, 3, 3), "Bias": (4,), "Output@GRAD": (2, 4, 6, 6)},
        {"Input@GRAD": [], "Filter@GRAD": (4, 3, 3, 3), "Bias@GRAD": (4,)},
        {},
        2 * 4 * 36 * 27,
    ),
    (
        "multihead_matmul",
        {"Input": (2, 5, 6), "W": (6, 3, 6), "Bias": (3, 6), "BiasQK": (2, 3, 5, 5)},
        {"Out": (2, 5, 6)},
        {"head_number": 3},
        2 * 5 * 6 * 18 + 2 * (2 * 3 * 5 * 5 * 2),
    ),
]


@pytest.mark.parametrize(("type", "inputs", "outputs", "attrs", "macs"), PRODUCTS)
def test_products(type, inputs, outputs, attrs, macs):
    made = call(type, inputs, outputs, **attrs)
    assert (macs_of(*made), flops_of(*made)) == (macs, 2 * macs)


STATE, ROWS = 4, 7
LSTM = {"Input": (ROWS, 16), "Weight": (STATE, 16), "Bias": (1, 16)}
OTHERS = [
    ("relu", {"X": (8, 5)}, {"Out": (8, 5)}, {}, 40),
    ("relu_grad", {"Out": (8, 5), "Out@GRAD": (8, 5)}, {"X@GRAD": (8, 5)}, {}, 40),
    ("sin", {"X": (8, 5)}, {"Out": (8, 5)}, {}, 40),
    ("elementwise_add", {"X": (8, 5), "Y": (5,)}, {"Out": (8, 5)}, {}, 40),
    ("reduce_sum", {"X": (8, 5)}, {"Out": (8,)}, {}, 40),
    ("sum", {"X": [(8, 5)] * 3}, {"Out": (8, 5)}, {}, 80),
    ("pool2d", {"X": (2, 3, 8, 8)}, {"Out": (2, 3, 4, 4)}, {"ksize": [2, 2]}, 96 * 4),
    (
        "pool2d",
        {"X": (2, 3, 8, 8)},
        {"Out": (2, 3, 1, 1)},
        {"ksize": [2, 2], "global_pooling": True},
        384,
    ),
    ("softmax", {"X": (8, 5)}, {"Out": (8, 5)}, {}, 5 * 40),
    (
        "layer_norm",
        {"X": (8, 5), "Scale": (5,), "Bias": (5,)},
        {"Y": (8, 5), "Mean": (8,), "Variance": (8,)},
        {},
        8 * 40,
    ),
    (
        "layer_norm_grad",
        {"X": (8, 5), "Scale": (5,), "Mean": (8,), "Variance": (8,), "Y@GRAD": (8, 5)},
        {"X@GRAD": (8, 5), "Scale@GRAD": (5,), "Bias@GRAD": (5,)},
        {},
        2 * 8 * 40,
    ),
    (
        "lstm",
        LSTM,
        {"Hidden": (ROWS, STATE), "Cell": (ROWS, STATE)},
        {},
        ROWS * (2 * STATE * 4 * STATE + 13 * STATE),
    ),
    (
        "adam",
        {"Param": (9,), "Grad": (9,)},
        {"ParamOut": (9,)},
        {},
        12 * 9,
    ),
    (
        "fused_sgd",
        {"Param": [(9,), (4, 2)], "Grad": [(9,), (4, 2)]},
        {"ParamOut": [(9,), (4, 2)]},
        {},
        2 * 17,
    ),
    ("reshape2", {"X": (8, 5)}, {"Out": (40,), "XShape": (0, 8, 5)}, {}, 0),
    ("lookup_table", LOOKUP, {"Out": (5, 8)}, {}, 0),
    ("relu", {"X": (-1, 5)}, {"Out": (-1, 5)}, {}, None),
    ("top_k", {"X": (8, 5)}, {"Out": (8, 2), "Indices": (8, 2)}, {}, None),
]


@pytest.mark.parametrize(("type", "inputs", "outputs", "attrs", "flops"), OTHERS)
def test_flops(type, inputs, outputs, attrs, flops):
    assert flops_of(*call(type, inputs, outputs, **attrs)) == flops


@pytest.mark.parametrize(
    ("type", "inputs", "outputs", "size"),
    [
        ("relu", {"X": (8, 5)}, {"Out": (8, 5)}, 2 * 4 * 40),
        ("lookup_table", LOOKUP, {"Out": (5, 8)}, 2 * 4 * 40 + 8 * 5),
        ("shape", {"Input": (8, 5)}, {"Out": (2,)}, 4 * 2),
        (
            "elementwise_add_grad",
            {"X": (8, 5), "Y": (5,), "Out@GRAD": (8, 5)},
            {"X@GRAD": (8, 5), "Y@GRAD": (5,)},
            4 * (40 + 40 + 5),
        ),
        ("relu", {"X": (-1, 5)}, {"Out": (-1, 5)}, None),
    ],
)
def test_bytes(type, inputs, outputs, size):
    assert bytes_of(*call(type, inputs, outputs)) == size


def test_graph_files_tell_both():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [6, 4])
        loss = fluid.layers.mean(fluid.layers.fc(x, 3, bias_attr=False))
        fluid.optimizer.SGD(0.1).minimize(loss)
    graph = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=[fluid.CPUPlace()])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    exe.run(graph, feed={"x": np.ones((6, 4), np.float32)})
    found = {node["name"]: node for node in graph.graph.to_json()["nodes"]}
    assert found["mul"]["flops"] == 2 * 6 * 4 * 3
    assert found["mul"]["bytes"] == 4 * (6 * 4 + 4 * 3 + 6 * 3)
    assert found["mul_grad"]["flops"] == 2 * 6 * 4 * 3  # x wants no gradient
    assert found["sgd"]["flops"] == 2 * 12


def test_counts_need_no_more_than_samples_have():
    counted = 0
    for type, definition in opdef.registered().items():
        for sample in samples(type)[:2] if definition.samples and definition.infer else ():
            made = SampleCall(type, sample, np.float32)
            variables = made.op.block.vars.items()
            specs = {name: v.spec for name, v in variables if v.type == VarType.LOD_TENSOR}
            flops = flops_of(made.op, specs.get)
            assert flops is None or flops >= 0, type
            counted += flops is not None
    assert counted > 300
