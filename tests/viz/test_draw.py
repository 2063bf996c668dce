"""Pictures: everything is there, in its lane, and nothing lies on anything else."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path

import graphviz
import pytest
from dpexec.viz.fold import fold
from dpexec.viz.layout import place
from dpexec.viz.model import from_ssa
from dpexec.viz.order import WIDEST, rows, topological
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexec import viz
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
    return GRAPHS[request.param]()


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
    return graph


def rectangles(diagram):
    """(box, left, right, row) of every box of every lane."""
    layout = place(diagram)
    for lane in layout.lanes:
        for item in lane.items():
            if item.box:
                yield item.box, lane, item.left, item.left + item.width, item.row


def titles(svg):
    root = ElementTree.fromstring(svg)
    return [t.text for g in root.iter(f"{SVG}g") for t in g.findall(f"{SVG}title")]


def test_every_operator_is_drawn_once_with_its_facts(graph):
    tooltips = titles(viz.draw(graph).svg)
    assert len(tooltips) == len(graph.ops)
    for op in graph.ops:
        tooltip = next(t for t in tooltips if t.startswith(f"{op.name} (op {op.id},"))
        for var in op.outputs:
            assert f"out: {var.name} v{var.version}" in tooltip


@settings(deadline=None, max_examples=60)
@given(random_graphs())
def test_no_box_touches_another_or_leaves_its_lane(graph):
    diagram = from_ssa(graph)
    boxes = list(rectangles(diagram))
    assert len(boxes) == sum(op.device is not None for op in graph.ops)
    for box, lane, left, right, _ in boxes:
        assert box.device == lane.device
        assert lane.x <= left
        assert right <= lane.x + lane.width
    for (_, _, left, right, row), (_, _, other_left, other_right, other_row) in combinations(
        boxes, 2
    ):
        assert row != other_row or right <= other_left or other_right <= left


@settings(deadline=None, max_examples=60)
@given(random_graphs())
def test_rows_point_down_and_give_collectives_room(graph):
    diagram = from_ssa(graph)
    table = rows(diagram)
    row_of = {box.id: number for number, row in enumerate(table) for box in row}
    assert sorted(row_of) == [op.id for op in graph.ops]
    for link in diagram.links:
        assert row_of[link.source] < row_of[link.target]
    for row in table:
        assert len(row) == 1 or all(box.device is not None for box in row)
        for lane in diagram.lanes:
            assert sum(box.device == lane for box in row) <= WIDEST


@settings(deadline=None, max_examples=60)
@given(random_graphs())
def test_folding_counts_every_operator_and_makes_no_cycle(graph):
    diagram = from_ssa(graph)
    folded = fold(diagram)
    assert folded.operators == len(graph.ops)
    assert len(topological(folded)) == len(folded.boxes)
    assert {box.device for box in folded.boxes} == {box.device for box in diagram.boxes}


def test_equal_replicas_look_equal():
    layout = place(from_ssa(mlp(3)))
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
    layout = place(from_ssa(mlp(3, 2, reduce=True)))
    box, row = next(pair for pair in layout.collectives.values() if pair[0].label == "broadcast")
    ports = [lane.device for lane in layout.lanes for i in lane.rows[row] if i.port_of is box]
    assert ports == [0, 1, 2]


def test_picture_is_the_same_whatever_the_hash_seed():
    script = "from tests.viz.graphs import mlp; from dpexec import viz; d = viz.draw(mlp()); "
    script += "print(d.svg + d.dot.source)"
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


def test_large_graph_is_folded_and_says_so():
    drawing = viz.draw(mlp(2, 20))
    assert len(drawing.diagram.boxes) < 12
    assert "folded: 370 operators are drawn as 9 stages" in drawing.svg
    assert "folded" not in viz.draw(mlp(2, 20), folded=False).svg


def test_order_only_dependencies_are_counted_not_drawn():
    graph = mlp(1)
    first, last = graph.ops[0], graph.ops[-1]
    dummy = graph.var("dummy", 0)
    dummy.kind = "dummy"
    first.outputs.append(dummy)
    last.inputs.append(dummy)
    drawing = viz.draw(graph)
    assert "1 dependencies that only keep an order are not drawn" in drawing.svg
    assert (first.id, last.id) not in {(x.source, x.target) for x in drawing.diagram.links}


def test_dot_has_a_cluster_per_device_and_collectives_outside():
    source = viz.draw(mlp(2)).dot.source
    clusters = source.split("subgraph ")[1:]
    assert len(clusters) == 2
    for number, cluster in enumerate(clusters):
        inside, _, _ = cluster.partition("\n\t}")
        assert f"device {number}" in inside
        assert "all_reduce" not in inside
        assert inside.count("sgd") > 0
    assert source.count('[label="all_reduce') == 4


@pytest.mark.parametrize("ending", ["svg", "html", "dot", "gv"])
def test_save_needs_no_graphviz(tmp_path, monkeypatch, ending):
    monkeypatch.setenv("PATH", "")
    path = viz.draw(mlp()).save(tmp_path / f"graph.{ending}")
    assert "all_reduce" in path.read_text()


def test_save_as_png_without_graphviz_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    monkeypatch.setattr(graphviz.Digraph, "pipe", _no_dot)
    with pytest.raises(RuntimeError, match=r"pip install 'dpexec\[viz\]'"):
        viz.draw(mlp()).save(tmp_path / "graph.png")


def _no_dot(self, format):
    raise graphviz.ExecutableNotFound(["dot"])


def test_save_to_unknown_ending_lists_the_known(tmp_path):
    with pytest.raises(ValueError, match=r"\.svg, \.html, \.dot"):
        viz.draw(mlp()).save(tmp_path / "graph.txt")


def test_draw_refuses_what_is_no_graph():
    with pytest.raises(TypeError, match="cannot draw a list"):
        viz.draw([1, 2])


def test_draw_refuses_a_cycle():
    graph = mlp(1)
    graph.ops[0].inputs.append(graph.ops[2].outputs[0])
    with pytest.raises(ValueError, match="cycle through ops"):
        viz.draw(graph).svg  # noqa: B018


def test_draw_refuses_a_role_without_colour():
    graph = mlp(1)
    graph.ops[0].role = "rpc"
    with pytest.raises(ValueError, match="role 'rpc'"):
        viz.draw(graph)


def test_notebook_shows_the_picture():
    drawing = viz.draw(mlp())
    assert drawing._repr_svg_() == drawing.svg
    assert repr(drawing) == "<Drawing: SSA graph · 2 devices · 46 operators · all_reduce>"
