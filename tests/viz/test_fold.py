"""Folding: nothing is lost, no cycles arise, and a note tells what was folded."""

import pytest
from dpexec.viz.graphs.fold import AT_A_GLANCE, fold, fold_replicas, glance
from dpexec.viz.graphs.groups import Group, groups, twins
from dpexec.viz.graphs.layout import place
from dpexec.viz.graphs.model import from_graph
from dpexec.viz.graphs.order import topological
from hypothesis import given, settings
from hypothesis import strategies as st

import dpexec as fluid
from dpexec import viz
from dpexec.engine.graph.build import ReplicationOptions, build_ssa_graph
from tests.engine.run.nets import batches, classifier, train
from tests.viz.graphs import Graph, mlp
from tests.viz.test_draw import random_graphs


def deep_network(blocks=8):
    """Convolutions over pictures whose size halves once, with shortcuts."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        hidden = fluid.data("x", [None, 3, 8, 8])
        for number in range(blocks):
            stride = 2 if number == blocks // 2 else 1
            made = fluid.layers.conv2d(hidden, 4, 3, stride, 1, bias_attr=False)
            made = fluid.layers.batch_norm(made, act="relu")
            if stride == 1 and number:
                made = fluid.layers.elementwise_add(made, hidden)
            hidden = made
        loss = fluid.layers.mean(fluid.layers.fc(hidden, 1))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return main


def replicated(program, devices=2, **options):
    places = [fluid.CPUPlace()] * devices
    return build_ssa_graph(program, places, ReplicationOptions(**options)).to_json()


def check(diagram, folded):
    assert folded.operators == diagram.operators
    nodes = sorted(node for box in folded.boxes for node in box.nodes)
    assert nodes == sorted(node for box in diagram.boxes for node in box.nodes)
    assert len(topological(folded)) == len(folded.boxes)
    assert {box.device for box in folded.boxes} == {box.device for box in diagram.boxes}
    assert (len(folded.boxes) == len(diagram.boxes)) == (folded is diagram)
    assert folded is diagram or "folded into" in folded.notes[0]


@st.composite
def tangled_graphs(draw):
    """Random graphs whose layers and scopes go round in circles."""
    graph = draw(random_graphs())
    for node in graph["nodes"]:
        node["layer"] = draw(st.sampled_from(["fc_0", "fc_1"]))
        node["scope"] = draw(st.sampled_from(["/", "/a/", "/a/b/", "/b/"]))
    return graph


@settings(max_examples=80)
@given(tangled_graphs(), st.data())
def test_any_cut_through_the_groups_counts_all_and_has_no_cycle(graph, data):
    diagram, found = from_graph(graph), groups(graph)
    closed = data.draw(st.sets(st.sampled_from(range(len(found))))) if found else set()
    check(diagram, fold(diagram, found, closed))
    place(fold(diagram, found, closed))


@settings(max_examples=40)
@given(tangled_graphs())
def test_groups_are_a_tree_over_all_nodes(graph):
    found = groups(graph)
    for group in found:
        inside = [g for g in found if g.parent == group.id]
        assert sorted([*group.own, *(n for g in inside for n in g.nodes)]) == list(group.nodes)
        assert len(group.nodes) > 1
        assert all(g.id > group.id for g in inside)


@pytest.mark.parametrize("options", [{}, {"mode": "reduce", "shared_memory": False}])
def test_opening_every_group_gives_the_graph_back(options):
    data = replicated(deep_network(), **options)
    diagram, found = from_graph(data), groups(data)
    closed = {group.id for group in found}
    counts = []
    while closed:  # as a reader does: the outermost first
        folded = fold(diagram, found, closed)
        check(diagram, folded)
        counts.append(len(folded.boxes))
        closed.remove(min(closed))
    assert counts == sorted(counts)
    assert fold(diagram, found, closed) == diagram


def test_layers_and_stages_of_a_network_are_whole():
    data = replicated(classifier().main)
    found = groups(data)
    layers = [
        [data["nodes"][n]["name"] for n in group.nodes]
        for group in found
        if group.kind == "layer" and group.label == "fc_0"
    ]
    assert layers.count(["mul", "elementwise_add", "relu"]) == 2
    assert layers.count(["relu_grad", "elementwise_add_grad", "mul_grad"]) == 2
    assert layers.count(["sgd", "sgd"]) == 2
    assert layers.count(["all_reduce", "all_reduce"]) == 1
    stages = {group.label: len(group.nodes) for group in found if group.kind == "stage"}
    assert stages["forward on device 0"] == 8 and stages["all_reduce"] == 4


def test_name_scopes_are_groups():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        hidden = fluid.data("x", [None, 4])
        for name in ("encoder", "decoder"):
            with fluid.name_scope(name):
                hidden = fluid.layers.fc(fluid.layers.fc(hidden, 3, act="relu"), 4)
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(hidden))
    drawing = viz.draw(main, fold="scope")
    labels = [box.label for box in drawing.diagram.boxes if box.role == "forward"]
    assert labels == ["encoder ×5", "decoder ×5", "mean"]
    assert any(box.label.startswith("encoder") for box in drawing.diagram.boxes[3:])


def test_a_deep_network_opens_in_parts_and_says_so():
    drawing = viz.draw(replicated(deep_network(16)))
    boxes = drawing.diagram.boxes
    assert len(boxes) <= AT_A_GLANCE
    assert "folded into repeats" in drawing.svg
    forward = [box.label for box in boxes if box.role == "forward" and box.device == 0]
    assert forward.count("7 × [conv2d + batch_norm] ×28") == 2
    assert "folded" not in viz.draw(replicated(deep_network(16)), fold="none").svg


def test_the_tasks_of_a_plan_are_its_outermost_groups():
    plan = train(classifier(), batches(1), devices=2).compiled.plan
    drawing = viz.draw(plan, fold="stage")
    keys = [task["key"] for task in plan.to_json()["tasks"]]
    assert [box.task for box in drawing.diagram.boxes] == keys
    assert [box.count for box in drawing.diagram.boxes] == [len(t.nodes) for t in plan.tasks]


def test_what_a_plan_skips_is_said():
    plan = train(classifier(), batches(1), devices=2, skip_dead_ops=True).compiled.plan
    data = plan.to_json()
    skipped = [node["id"] for node in data["nodes"] if node["task"] is None]
    drawing = viz.draw(plan, fold="stage")
    boxes = [box for box in drawing.diagram.boxes if box.task is None]
    assert len(skipped) == len(plan.graph.ops) - len(plan.nodes)
    assert sorted(node for box in boxes for node in box.nodes) == skipped
    assert not skipped or f"{len(skipped)} of these operators the plan skips" in drawing.svg


def test_replicas_fold_into_one_lane():
    data = mlp(4).data()
    diagram = from_graph(data)
    one = fold_replicas(diagram, twins(data))
    assert one.operators == diagram.operators
    assert one.lanes == (0,)
    assert one.lane_name(0) == "devices 0 to 3: ×4"
    assert {box.count for box in one.boxes if box.device == 0} == {4}
    assert "replicas" in one.notes[0]


def test_what_one_replica_does_alone_is_said():
    data = mlp(4, reduce=True).data()
    one = fold_replicas(from_graph(data), twins(data))
    updates = [box for box in one.boxes if box.label == "sgd"]
    assert len(updates) == 4 and all(box.count == 1 for box in updates)
    assert sorted(box.detail.split(":")[0] for box in updates) == [
        f"device {d} only" for d in range(4)
    ]
    assert len(topological(one)) == len(one.boxes)
    folded = viz.draw(data, fold="stage", replicas="one").diagram
    updates = [box.detail.split(":")[0] for box in folded.boxes if box.role == "optimize"]
    assert sorted(updates) == [f"device {d} only" for d in range(4)]


def test_twins_are_the_same_operator_elsewhere():
    data = replicated(classifier().main, devices=3)
    for node, twin in zip(data["nodes"], twins(data), strict=True):
        if node["role"] == "collective":
            assert twin is None
        else:
            assert data["nodes"][twin]["device"] == 0
            assert data["nodes"][twin]["name"] == node["name"]


def test_glance_keeps_within_its_number():
    data = replicated(deep_network(40), devices=2)
    diagram, found = from_graph(data), groups(data)
    assert len(fold(diagram, found, glance(diagram, found)).boxes) <= AT_A_GLANCE


def test_a_folded_box_has_the_colour_of_most_of_its_operators():
    graph = Graph()
    names = [("mul", "forward"), ("mul_grad", "backward"), ("relu_grad", "backward")]
    for at, (name, role) in enumerate(names):
        graph.add(name, role, 0, [f"v{at}"], [f"v{at + 1}"])
    drawn = from_graph(graph.data())
    task = Group(0, "forward_backward_dev0", "stage", None, (0, 1, 2), (0, 1, 2))
    (box,) = fold(drawn, [task], {0}).boxes
    assert box.role == "backward"
