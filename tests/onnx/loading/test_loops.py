"""Loops over sequences whose lengths only a run tells, and steps of a number that is open."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dpexec as fluid
from dpexec.onnx import UnsupportedError, load
from dpexec.onnx.exporter import model_of

FLOAT, LONG, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info = helper.make_tensor_value_info
node = helper.make_node


def constant(name, value):
    return numpy_helper.from_array(np.array(value), name)


def model(nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def same(made, *feeds):
    """Compare with onnxruntime, also after writing the program again; the program is returned."""
    session = onnxruntime.InferenceSession(made.SerializeToString())
    program, names, fetches = load(made)
    again = model_of(program, names, fetches, opset=17).SerializeToString()
    again = onnxruntime.InferenceSession(again)
    exe = fluid.Executor(fluid.CPUPlace())
    for feed in feeds:
        expected = session.run(None, feed)
        shaped = {name: value.reshape(value.shape or 1) for name, value in feed.items()}
        for found in (exe.run(program, shaped, fetches), again.run(None, shaped)):
            for value, wanted in zip(found, expected, strict=True):
                np.testing.assert_allclose(value, wanted, rtol=1e-6)
    return program, names, fetches


SEQUENCE_ENDS = (
    [
        info("round", LONG, []),
        info("going", BOOL, []),
        helper.make_tensor_sequence_value_info("before", FLOAT, None),
    ],
    [info("again", BOOL, []), helper.make_tensor_sequence_value_info("after", FLOAT, None)],
)
"""Inputs and outputs of the body of a loop that changes a sequence."""


def bags(insert=(), body_nodes=()):
    """Sums of x[0 : i + 1] in each round, put into a sequence."""
    body = helper.make_graph(
        [
            node("Unsqueeze", ["round", "zero"], ["place"]),
            node("Add", ["place", "one"], ["end"]),
            node("Slice", ["x", "place", "end"], ["row"]),
            node("ReduceSum", ["row"], ["total"], keepdims=0),
            *body_nodes,
            node("SequenceInsert", ["before", "total", *insert], ["after"]),
            node("Identity", ["going"], ["again"]),
        ],
        "body",
        *SEQUENCE_ENDS,
    )
    return [
        node("SequenceEmpty", [], ["empty"]),
        node("Loop", ["count", "", "empty"], ["filled"], body=body),
        node("ConcatFromSequence", ["filled"], ["y"], axis=0, new_axis=1),
        node("SequenceLength", ["filled"], ["length"]),
        node("SequenceAt", ["filled", "last"], ["end_of_all"]),
    ]


CONSTANTS = [constant("zero", [0]), constant("one", [1]), constant("last", -1)]
BAGS_IN = [info("x", FLOAT, ["n", 3]), info("count", LONG, [])]


def test_a_loop_fills_a_sequence():
    outputs = [info("y", FLOAT, ["m"]), info("length", LONG, []), info("end_of_all", FLOAT, [])]
    made = model(bags(), BAGS_IN, outputs, CONSTANTS)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    feeds = [{"x": x, "count": np.array(count)} for count in (3, 1, 4)]
    program, _, _ = same(made, *feeds)
    assert {"while", "write_to_array"} <= {op.type for b in program.blocks for op in b.ops}


def test_the_number_of_rounds_may_be_a_scalar_of_a_dimension_that_is_open():
    body = helper.make_graph(
        [node("Add", ["before", "x"], ["after"]), node("Less", ["round", "end"], ["again"])],
        "body",
        [info("round", LONG, []), info("going", BOOL, []), info("before", FLOAT, ["n", 3])],
        [info("again", BOOL, []), info("after", FLOAT, ["n", 3])],
    )
    nodes = [
        node("Squeeze", ["many", "zero"], ["count"]),
        node("Cast", ["count"], ["going"], to=BOOL),
        node("Sub", ["count", "two"], ["end"]),
        node("Loop", ["count", "going", "x"], ["y"], body=body),
    ]
    inputs = [info("x", FLOAT, ["n", 3]), info("many", LONG, ["k"])]
    made = model(nodes, inputs, [info("y", FLOAT, ["n", 3])], [CONSTANTS[0], constant("two", 2)])
    x = np.ones((2, 3), "float32")
    same(made, *({"x": x, "many": np.array([many])} for many in (5, 1)))


def test_gradients_flow_through_a_sequence():
    made = model(bags(), BAGS_IN, [info("y", FLOAT, ["m"])], CONSTANTS)
    program, _, fetches = load(made)
    x = program.global_block().var("x")
    x.stop_gradient = False
    with fluid.program_guard(program):
        (slope,) = fluid.gradients(fluid.layers.reduce_sum(fluid.layers.square(fetches[0])), [x])
    value = np.arange(12, dtype=np.float32).reshape(4, 3)
    exe = fluid.Executor(fluid.CPUPlace())
    (found,) = exe.run(program, {"x": value, "count": np.array([3])}, [slope])
    expected = 2 * value.sum(axis=1, keepdims=True) * np.ones(3, np.float32)
    expected[3] = 0
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("insert", "nodes", "problem"),
    [
        (["zero"], (), "but not at its end"),
        ((), [node("SequenceInsert", ["before", "total"], ["other"])], "several uses"),
    ],
)
def test_sequences_that_are_more_than_appended_to(insert, nodes, problem):
    made = model(bags(insert, nodes), BAGS_IN, [info("y", FLOAT, ["m"])], CONSTANTS)
    with pytest.raises(UnsupportedError, match=problem):
        load(made)


def steps(**attrs):
    """A running total, and twice of it, over the first axis of x."""
    body = helper.make_graph(
        [
            node("Add", ["state", "row"], ["next"]),
            node("Mul", ["next", "two"], ["left"]),
            node("ReduceSum", ["row"], ["number"], keepdims=0),
        ],
        "body",
        [info("state", FLOAT, [3]), info("row", FLOAT, [3])],
        [info("next", FLOAT, [3]), info("left", FLOAT, [3]), info("number", FLOAT, [])],
    )
    nodes = [
        node("Scan", ["start", "x"], ["last", "all", "sums"], body=body, num_scan_inputs=1, **attrs)
    ]
    inputs = [info("start", FLOAT, [3])]
    outputs = [info("last", FLOAT, [3]), info("all", FLOAT, None), info("sums", FLOAT, ["n"])]
    return nodes, inputs, outputs, [constant("two", np.float32(2))]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("back", [0, 1])
def test_a_scan_over_an_open_number_of_steps(axis, back):
    attrs = {
        "scan_input_axes": [axis], "scan_input_directions": [back],
        "scan_output_axes": [axis, 0], "scan_output_directions": [1 - back, back],
    }  # fmt: skip
    nodes, inputs, outputs, constants = steps(**attrs)
    shape = ["n", 3] if axis == 0 else [3, "n"]
    made = model(nodes, [*inputs, info("x", FLOAT, shape)], outputs, constants)
    rng, start = np.random.default_rng(0), np.arange(3, dtype=np.float32)
    xs = [rng.normal(size=(n, 3)).astype(np.float32) for n in (4, 1, 2)]
    feeds = [{"start": start, "x": x if axis == 0 else x.T.copy()} for x in xs]
    program, _, _ = same(made, *feeds)
    assert "recurrent" in {op.type for op in program.global_block().ops}


def recurrent_net():
    """A DynamicRNN whose first state and static input are computed from the sequences."""
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    rows = fluid.layers.embedding(words, [20, 4])
    first = fluid.layers.fc(fluid.layers.sequence_pool(rows, "sum"), 3)
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        row, static = rnn.step_input(rows), rnn.static_input(first)
        before = rnn.memory(init=first, need_reorder=True)
        now = fluid.layers.fc([row, before, static], 3, act="tanh")
        rnn.update_memory(before, now)
        rnn.output(now)
    return rnn()


def test_exported_dynamic_rnns_load_with_the_same_results():
    """Its arrays are written by an ``If``: at a place, or at the end."""
    states, executor = recurrent_net(), fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    main = fluid.default_main_program()
    made = model_of(main, ["words"], [states.name], opset=17)
    program, names, fetches = load(made)
    for lengths in ([3, 1, 2], [1, 4]):
        ids = np.arange(sum(lengths)).reshape(-1, 1)
        feed = {"words": fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace())}
        (expected,) = executor.run(main, feed, [states], return_numpy=False)
        feed = dict(zip(names, [ids, np.array(lengths)], strict=True))
        found, found_lengths = executor.run(program, feed, fetches)
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)
        assert found_lengths.tolist() == lengths


def written_to_bag(condition, place=0, other="row"):
    """A bag to which a loop adds rows of x; then ``If`` replaces one, or appends."""
    insert = helper.make_graph(
        [
            node("SequenceErase", ["before", "at"], ["fewer"]),
            node("SequenceInsert", ["fewer", "row", "at"], ["put"]),
        ],
        "replace",
        [],
        [helper.make_tensor_sequence_value_info("put", FLOAT, None)],
    )
    append = helper.make_graph(
        [node("SequenceInsert", ["before", other], ["more"])],
        "append",
        [],
        [helper.make_tensor_sequence_value_info("more", FLOAT, None)],
    )
    body = helper.make_graph(
        [
            node("Gather", ["x", "round"], ["row"]),
            node("Neg", ["row"], ["minus"]),
            node(condition, ["round", "two"], ["chosen"]),
            node("If", ["chosen"], ["after"], then_branch=insert, else_branch=append),
            node("Identity", ["going"], ["again"]),
        ],
        "body",
        *SEQUENCE_ENDS,
    )
    nodes = [
        node("SequenceConstruct", ["x"], ["bag"]),
        node("Squeeze", ["count"], ["rounds"]),
        node("Loop", ["rounds", "", "bag"], ["all"], body=body),
        node("SequenceLength", ["all"], ["length"]),
        node("SequenceAt", ["all", "at"], ["first"]),
    ]
    inputs = [info("x", FLOAT, [4]), info("count", LONG, [1])]
    constants = [constant("two", 2), constant("at", place)]
    return model(nodes, inputs, [info("first", FLOAT, None), info("length", LONG, [])], constants)


@pytest.mark.parametrize("condition", ["Less", "Greater"])
def test_an_if_that_replaces_or_appends_writes_either_way(condition):
    """Whatever its condition is."""
    x = np.array([1, 2, 3, 4], "float32")
    made = written_to_bag(condition)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    program, _, fetches = load(made)
    for count in (1, 2, 4):
        feed = {"x": x, "count": np.array([count])}
        first, length = fluid.Executor(fluid.CPUPlace()).run(program, feed, fetches)
        expected_first, expected_length = session.run(None, feed)
        np.testing.assert_array_equal(first.reshape(-1), np.reshape(expected_first, -1))
        assert length == expected_length


def test_branches_that_write_other_tensors_are_refused():
    with pytest.raises(UnsupportedError, match="sequence"):
        load(written_to_bag("Less", other="minus"))
