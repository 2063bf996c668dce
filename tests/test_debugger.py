"""Blocks as short text, and as graphs for Graphviz."""

import re

import pytest

import dpexec as fluid
from dpexec import debugger


@pytest.fixture
def program():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        words = fluid.data("words", [None, 1], "int64", lod_level=1)
        flag = fluid.data("flag", [1], "bool")
        table = fluid.embedding(words, [5, 2], is_sparse=True)
        pooled = fluid.layers.sequence_pool(table, "sum")
        chosen = fluid.layers.cond(flag, lambda: pooled * 2.0, lambda: pooled)
        loss = fluid.layers.mean(fluid.layers.fc(chosen, 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main


def test_text_names_variables_and_operators(program):
    text = debugger.pprint_program_codes(program)
    assert "LoDTensor words (level=1, tensor(type=int64, shape=[-1, 1]))" in text
    assert (
        "tmp_0 = scale(X=sequence_pool_0.tmp_0) [{bias=0.0,bias_after_scale=True,scale=2.0}]"
        in (text)
    )
    assert "sub_block=block-1" in text
    assert "// block-1  parent-0" in text
    assert "@GRAD" not in text


def test_gradients_are_shown_if_asked(program):
    block = program.global_block()
    text = debugger.pprint_block_codes(block, show_backward=True)
    assert "SelectedRows embedding_0.w_0@GRAD (tensor(type=float32, shape=[5, 2]))" in text
    assert text.count("\n") > debugger.pprint_block_codes(block).count("\n")


def test_graph_has_an_edge_for_every_argument(program, tmp_path):
    block = program.global_block()
    path = tmp_path / "block.dot"
    debugger.draw_block_graphviz(block, ["sequence_pool_0"], str(path))
    text = path.read_text(encoding="utf-8")
    arguments = sum(len(op.input_arg_names) + len(op.output_arg_names) for op in block.ops)
    assert text.count("->") == arguments
    lines = [line for line in text.splitlines() if "color=orangered" in line]
    number = re.search(r'(var_\d+) \[label="sequence_pool_0.tmp_0\n', text).group(1)
    reading = [op for op in block.ops if "sequence_pool_0.tmp_0" in op.input_arg_names]
    assert sum(f"{number} -> " in line for line in lines) == len(reading)
    assert "label=mean shape=box]" in text
