"""Pictures: complete, every box in its lane, and without overlaps."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from dpexec.viz.graphs.layout import place
from dpexec.viz.graphs.model import from_graph
from dpexec.viz.graphs.order import WIDEST, rows
from dpexec.viz.pages.load import FileError
from hypothesis import given, settings
from hypothesis import strategies as st

import dpexec as fluid
from dpexec import viz
from tests.engine.run.nets import AllReduce, Reduce, batches, classifier, train
from tests.viz import big
from tests.viz.graphs import Graph, mlp

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
GRAPHS = {
    "one": lambda: mlp(1),
    "all_reduce": lambda: mlp(2, 3),
    "reduce": lambda: mlp(3, 2, reduce=True),
}


@pytest.fixture(params=GRAPHS)
def graph(request):
    return GRAPHS[request.param]().data()


@st.composite
def random_graphs(draw):
    """Replicas of a random program, with collectives thrown in."""
    graph = Graph()
    devices = range(draw(st.integers(1, 3)))
    for number in range(draw(st.integers(1, 25))):
        earlier = [f"v{k}" for k in range(number)]
        ins = draw(st.lists(st.sampled_from(earlier), max_size=3, unique=True)) if earlier else []
        if ins and len(devices) > 1 and draw(st.integers(0, 4)) == 0:
            ends = [(ins[0], d) for d in devices]
            outs = [(f"v{number}", d) for d in devices]
            graph.add("all_reduce", "collective", None, ends, outs, "all_reduce")
            continue
        name = draw(st.sampled_from(["mul", "elementwise_add_grad", "a_name_longer_than_any_box"]))
        role = draw(st.sampled_from(["forward", "backward", "optimize", "lr_sched"]))
        for device in devices:
            graph.add(name, role, device, ins, [f"v{number}"])
    return graph.data()


def rectangles(diagram):
    """(box, left, right, row) of every box of every lane."""
    layout = place(diagram)
    for lane in layout.lanes:
        for item in lane.items():
            if item.box:
                yield item.box, lane, item.left, item.left + item.width, item.row


def titles(svg, kind="rect"):
    root = ElementTree.fromstring(svg)
    groups = [g for g in root.iter(f"{SVG}g") if g.find(f"{SVG}{kind}") is not None]
    return [t.text for g in groups for t in g.findall(f"{SVG}title")]


def test_every_operator_is_drawn_once_with_its_facts(graph):
    tooltips = titles(viz.draw(graph).svg)
    assert len(tooltips) == len(graph["nodes"])
    for node in graph["nodes"]:
        tooltip = next(t for t in tooltips if t.startswith(f"{node['name']} (op {node['id']},"))
        for number in node["outputs"]:
            var = graph["vars"][number]
            assert f"out: {var['name']} v{var['version']} {var['shape']} float32" in tooltip


def test_every_line_says_what_flows_along_it(graph):
    drawing = viz.draw(graph)
    lines = titles(drawing.svg, "path")
    assert len([text for text in lines if text]) >= len(drawing.diagram.links)
    assert any("fc_0.tmp_0 v0 [-1, 200] float32" in text for text in lines)


def test_all_reduce_moves_the_bytes_of_the_gradients():
    net = classifier()
    compiled = train(net, batches(1), devices=2).compiled
    drawing = viz.draw(compiled)
    params = net.main.global_block().all_parameters()
    moved = sum(box.bytes for box in drawing.diagram.boxes if "all_reduce" in box.label)
    assert moved == sum(4 * int(p.spec.size) for p in params) == 780
    assert "in each step: all_reduce of 780 B" in drawing.svg


def test_operators_that_run_blocks_say_what_is_in_them():
    graph = mlp(1).data()
    graph["nodes"][0]["body"] = [
        {"name": "scale", "output": "x", "depth": 0},
        {"name": "conditional_block", "output": "", "depth": 0},
        {"name": "scale", "output": "y", "depth": 1},
    ]
    drawing = viz.draw(graph)
    assert drawing.diagram.boxes[0].detail == "runs scale ×2, conditional_block"
    assert (
        "runs 3 operators:\n    scale → x\n    conditional_block\n        scale → y\nin: "
        in next(t for t in titles(drawing.svg) if t.startswith("mul (op 0,"))
    )


@settings(max_examples=60)
@given(random_graphs())
def test_no_box_touches_another_or_leaves_its_lane(graph):
    diagram = from_graph(graph)
    boxes = list(rectangles(diagram))
    assert len(boxes) == sum(node["device"] is not None for node in graph["nodes"])
    for box, lane, left, right, _ in boxes:
        assert box.device == lane.device
        assert lane.x <= left
        assert right <= lane.x + lane.width
    for (_, _, left, right, row), (_, _, other_left, other_right, other_row) in combinations(
        boxes, 2
    ):
        assert row != other_row or right <= other_left or other_right <= left


@settings(max_examples=60)
@given(random_graphs())
def test_rows_point_down_and_give_collectives_room(graph):
    diagram = from_graph(graph)
    table = rows(diagram)
    row_of = {box.id: number for number, row in enumerate(table) for box in row}
    assert sorted(row_of) == [node["id"] for node in graph["nodes"]]
    for link in diagram.links:
        assert row_of[link.source] < row_of[link.target]
    for row in table:
        assert len(row) == 1 or all(box.device is not None for box in row)
        for lane in diagram.lanes:
            assert sum(box.device == lane for box in row) <= WIDEST


def test_equal_replicas_look_equal():
    layout = place(from_graph(mlp(3).data()))
    first, *others = [[i.x - lane.x for i in lane.items()] for lane in layout.lanes]
    for other in others:
        assert other == pytest.approx(first)


def test_texts_fit_into_their_boxes(graph):
    root = ElementTree.fromstring(viz.draw(graph).svg)
    for group in root.iter(f"{SVG}g"):
        rect, texts = group.find(f"{SVG}rect"), group.findall(f"{SVG}text")
        for text in texts:
            size = 10 if "detail" in text.get("class") else 12
            assert len(text.text) * size * 0.603 < float(rect.get("width"))


def test_collective_joins_all_lanes_it_writes_to():
    layout = place(from_graph(mlp(3, 2, reduce=True).data()))
    box, row = next(pair for pair in layout.collectives.values() if pair[0].label == "broadcast")
    ports = [lane.device for lane in layout.lanes for i in lane.rows[row] if i.port_of is box]
    assert ports == [0, 1, 2]


def test_picture_is_the_same_whatever_the_hash_seed():
    script = "from tests.engine.run.nets import *; from dpexec import viz; import json; "
    script += "r = train(classifier(fluid.optimizer.Adam(0.1)), batches(1), devices=2).compiled; "
    script += "d = viz.draw(r.graph); p = viz.draw(r.plan); "
    script += "print(d.svg + d.dot.source + json.dumps(d.payload()) + p.svg + p.dot.source)"
    texts = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
    assert "<svg" in texts.pop()


def test_order_only_dependencies_are_counted_not_drawn():
    graph = mlp(1)
    first, last = graph.ops[0], graph.ops[-1]
    dummy = graph.var("dummy", 0)
    dummy.kind = "dummy"
    first.outputs.append(dummy)
    last.inputs.append(dummy)
    drawing = viz.draw(graph.data())
    assert "1 dependency that only keeps an order is not drawn" in drawing.svg
    assert (first.id, last.id) not in {(x.source, x.target) for x in drawing.diagram.links}


def test_dot_has_a_cluster_per_device_and_collectives_outside():
    source = viz.draw(mlp(2).data()).dot.source
    clusters = source.split("subgraph ")[1:]
    assert len(clusters) == 2
    for number, cluster in enumerate(clusters):
        inside, _, _ = cluster.partition("\n\t}")
        assert f"device {number}" in inside
        assert "all_reduce" not in inside
        assert inside.count("sgd") > 0
    assert source.count('[label="all_reduce') == 4
    assert 'label="fc_0.tmp_0 v0 [-1, 200] float32"' in source


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_every_operator_is_in_the_cluster_of_its_device(mode):
    graph = train(classifier(), batches(1), devices=2, mode=mode).compiled.graph
    source = viz.draw(graph).dot.source
    _, *clusters = source.split("subgraph ")
    assert len(clusters) == 2
    inside = [cluster.partition("\n\t}")[0] for cluster in clusters]
    for node in graph.ops:
        found = [f"op_{node.id} [" in text for text in inside]
        assert found == [not node.is_collective and node.device == d for d in (0, 1)]
        assert source.count(f"\top_{node.id} [") == 1


def test_the_page_gets_groups_twins_and_fused_parts():
    fused = {"fuse_elewise_add_act_ops": True}
    compiled = train(classifier(), batches(1), devices=2, **fused).compiled
    data = viz.draw(compiled).payload()
    assert data["graph"] == compiled.graph.to_json()
    assert ["relu", "elementwise_add"] in data["parts"].values()
    assert len(data["twins"]) == len(compiled.graph.ops)
    for number, group in enumerate(data["groups"]):
        assert group["parent"] is None or group["parent"] < number
        assert not group["folded"]
    owned = [node for group in data["groups"] for node in group["nodes"]]
    assert len(owned) == len(set(owned))
    json.dumps(data, allow_nan=False)


def test_a_plan_shows_its_tasks_one_below_the_other():
    plan = train(classifier(), batches(1), devices=2).compiled.plan
    drawing = viz.draw(plan)
    frames = place(drawing.diagram).frames
    keys = {task["key"] for task in plan.to_json()["tasks"] if task["device"] is not None}
    assert {key for _, key, _, _ in frames} == keys
    for device in (0, 1):
        spans = sorted(span for d, _, *span in frames if d == device)
        assert all(last < first for (_, last), (first, _) in pairwise(spans))
    assert all(f"task {key}" in drawing.svg for key in keys)
    assert drawing.dot.source.count("cluster_task_") == len(keys)


def test_a_program_is_drawn_on_one_device():
    net = classifier()
    drawing = viz.draw(net.main)
    assert [box.label for box in drawing.diagram.boxes] == [
        op.type for op in net.main.global_block().ops
    ]
    assert drawing.diagram.lanes == (0,)


@pytest.mark.parametrize("ending", ["svg", "html", "json", "dot", "gv"])
def test_save_needs_no_graphviz(tmp_path, monkeypatch, ending):
    monkeypatch.setenv("PATH", "")
    path = viz.draw(mlp().data()).save(tmp_path / f"graph.{ending}")
    assert "all_reduce" in path.read_text()


def test_save_to_unknown_ending_lists_the_known(tmp_path):
    with pytest.raises(ValueError, match=r"\.svg, \.png, .*\.dot"):
        viz.draw(mlp().data()).save(tmp_path / "graph.txt")


def test_saved_and_live_look_the_same(tmp_path):
    compiled = train(classifier(), batches(1), devices=2).compiled
    for live in (compiled.graph, compiled.plan):
        assert viz.draw(live.save(tmp_path / "saved.json")).svg == viz.draw(live).svg
    drawing = viz.draw(compiled)
    assert drawing.svg == viz.draw(compiled.graph).svg
    assert viz.draw(drawing.save(tmp_path / "drawn.json")).svg == drawing.svg


@pytest.mark.parametrize("fold", ["auto", "none"])
def test_page_of_ten_thousand_operators_is_small(fold):
    drawing = viz.draw(big.graph(), fold=fold)
    assert "<svg" in drawing.svg
    assert len(drawing.html) < 5e6


def test_draw_refuses_what_is_no_graph():
    with pytest.raises(TypeError, match="cannot draw an object of type list"):
        viz.draw([1, 2])


def test_draw_refuses_a_role_without_colour():
    graph = mlp(1)
    graph.ops[0].role = "rpc"
    with pytest.raises(FileError, match="role 'rpc'"):
        viz.draw(graph.data())


@pytest.mark.parametrize("option", ["fold", "replicas"])
def test_draw_lists_the_ways_to_fold(option):
    with pytest.raises(ValueError, match=f"{option}='all': choose one of 'auto'"):
        viz.draw(mlp().data(), **{option: "all"})


def test_draw_of_a_program_without_operators():
    with pytest.raises(ValueError, match="no operators yet"):
        viz.draw(fluid.Program())


def test_notebook_shows_the_picture():
    drawing = viz.draw(mlp().data())
    bundle = drawing._repr_mimebundle_()
    head, rest = bundle["image/svg+xml"].split(">", 1)
    assert 'width="100%" style="max-width:' in head  # it takes the width of its page
    assert rest == drawing.svg.split(">", 1)[1]
    assert repr(drawing) == "<Drawing: 2 devices, 46 operators>"
