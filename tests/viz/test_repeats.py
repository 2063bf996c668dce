"""Equal blocks of a network: which are found, their names, and their content."""

from contextlib import nullcontext

import pytest
from dpexec.viz.graphs.groups import groups
from dpexec.viz.graphs.repeats import repeats
from dpexec.viz.pages.load import as_graph, program_graph

import dpexec as fluid
from dpexec import layers


def graph_of(net):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        fluid.optimizer.SGD(0.1).minimize(layers.mean(net(layers.data("x", [8]))))
    return as_graph(program_graph(main))


def found(net):
    return [(len(run.blocks), run.name) for run in repeats(graph_of(net))]


def layer(x, wide=16):
    """Two products and a sum around them, as in a transformer."""
    return layers.elementwise_add(x, layers.fc(layers.fc(x, wide, act="relu"), 8, act="tanh"))


def stacked(count, wrap=nullcontext, start=lambda x: x):
    def net(x):
        h = start(x)
        for _ in range(count):
            with wrap():
                h = layer(h)
        return layers.fc(h, 3)

    return net


def test_equal_layers_are_found_without_names():
    assert found(stacked(12)) == [(12, "2 fc")]


def test_what_stands_before_and_behind_belongs_to_no_block():
    (run,) = repeats(graph_of(stacked(5, start=lambda x: layers.softmax(layers.fc(x, 8)))))
    assert len(run.blocks) == 5 and {len(block) for block in run.blocks} == {7}


def test_blocks_are_called_as_their_name_scopes():
    def net(x):
        with fluid.name_scope("lighthouse"):
            return stacked(4, lambda: fluid.name_scope("floor"))(x)

    data = graph_of(net)
    assert [(len(run.blocks), run.name) for run in repeats(data)] == [(4, "lighthouse floor")]
    tree = groups(data)
    assert "4 × lighthouse floor" in {group.label for group in tree if group.kind == "repeat"}
    blocks = [group.label for group in tree if group.kind == "block"]
    assert blocks[:4] == [f"lighthouse floor {k}" for k in (1, 2, 3, 4)]


def test_blocks_keep_the_numbers_of_their_name_scopes():
    """Experts are often counted from 0, and what is equal may begin later."""

    def net(x):
        numbers = iter(range(3, 7))
        return stacked(4, lambda: fluid.name_scope(f"expert{next(numbers)}"))(x)

    blocks = [group.label for group in groups(graph_of(net)) if group.kind == "block"]
    assert blocks[:4] == [f"expert {k}" for k in (3, 4, 5, 6)]


def test_blocks_are_called_as_their_variables_count_them():
    def net(x):
        for number in range(3):
            x = layers.fc(x, 8, act="tanh", name=f"ffn_{number}_out")
            x = layers.fc(x, 8, act="relu", name=f"ffn_{number}_in")
        return x

    assert found(net) == [(3, "ffn")]


def test_names_that_the_user_gave_are_not_counted_over():
    def net(x):
        for name in ("upper", "lower"):
            with fluid.name_scope(name):
                x = layer(x)
        return x

    assert found(net) == []


@pytest.mark.parametrize("wide", [(16, 16, 32, 32), (16, 32, 16, 32)])
def test_other_shapes_are_other_blocks(wide):
    def net(x):
        for width in wide:
            x = layer(x, width)
        return x

    counts = [count for count, _ in found(net)]
    assert counts == ([2, 2] if wide[0] == wide[1] else [2])


def test_equal_operators_with_other_links_are_no_equal_blocks():
    def net(x):
        for crossed in (False, True, False):
            a, b = layers.fc(x, 8), layers.fc(x, 8)
            a, b = layers.tanh(a), layers.relu(a if crossed else b)
            x = layers.elementwise_add(a, b)
        return x

    assert all(count < 3 for count, _ in found(net))


def test_many_blocks_are_grouped_in_steps():
    tree = groups(graph_of(stacked(50)))
    labels = [group.label for group in tree if group.kind == "repeat"]
    assert [label.partition(" ")[0] for label in labels[:1]] == ["50"]
    assert sum(label.endswith(" 41 to 50") for label in labels) >= 3  # forward, backward, update
    inside = [group for group in tree if group.parent == 1]
    assert len(inside) <= 20


def test_operators_of_all_roles_belong_to_the_blocks_of_their_layers():
    data = graph_of(stacked(4))
    blocks = [group for group in groups(data) if group.kind == "block"]
    roles = {data["nodes"][node]["role"] for group in blocks for node in group.nodes}
    assert roles == {"forward", "backward", "optimize"}
    assert len(blocks) == 12
