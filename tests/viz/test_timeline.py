"""The timeline: the data of the page, and a picture without overlaps."""

import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest
from dpexec.viz.findings import analyse
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.pages.plot import text_width
from dpexec.viz.timeline import timeline

from dpexec.engine.trace import Event, Trace
from tests.viz.graphs import mlp
from tests.viz.traces import event, straggling, trace, warming_up

SVG = "{http://www.w3.org/2000/svg}"


def test_payload_holds_every_slice_with_what_was_recorded():
    made = straggling(3, seconds=1e-3)
    data = timeline(made).payload()
    slices = data["slices"]
    assert {len(column) for column in slices.values()} == {len(made)}
    assert sum(slices["duration"]) == round(sum(e.duration for e in made) * 1e9)
    for one, other in pairwise(zip(slices["track"], slices["start"], strict=True)):
        assert one <= other
    names = [data["names"][n] for n in slices["name"]]
    roles = [data["roles"][n] for n in slices["role"]]
    found = dict(zip(names, roles, strict=True))
    assert found["mul"] == "forward" and found["all_reduce"] == "collective"
    assert data["span"] == (0, 30_000_000)
    assert [t["group"] for t in data["tracks"]] == ["device 0", "device 1", "all devices"]
    assert [names[n] for n in data["critical"]] == ["mul", "mul_grad", "all_reduce", "sgd"] * 3
    waits = {(names[a].split("-")[0], names[b].split("-")[0]) for a, b in data["flows"]}
    assert waits == {
        ("forward_backward_dev1", "all_reduce"),
        ("all_reduce", "optimizer_dev0"),
        ("all_reduce", "optimizer_dev1"),
    }


def test_layers_and_equal_blocks_are_told_with_the_slices():
    data = mlp(devices=2, layers=6).data()
    made = timeline(recorded(data)).payload()
    groups = made["groups"]
    assert {group["kind"] for group in groups} == {"repeat", "block"}
    inner = [node for group in groups for node in group["nodes"]]
    assert len(inner) == len(set(inner))  # each in its innermost group alone
    for number, group in enumerate(groups):
        assert group["parent"] is None or group["parent"] < number
    blocks = [group for group in groups if group["kind"] == "block"]
    assert {groups[block["parent"]]["kind"] for block in blocks} == {"repeat"}
    assert "groups" not in timeline(Trace(recorded(data).events)).payload()


def recorded(data):
    """Every operator of a graph, one after another."""
    events = [
        event(n["name"], "op", n["device"], f"op-{n['id']}", i, i + 1, node=n["id"])
        for i, n in enumerate(data["nodes"])
        if n["device"] is not None
    ]
    return Trace(tuple(events), {"steps": 1}, data)


def test_the_page_opens_at_the_step_that_figures_are_of():
    made = warming_up()
    assert timeline(made).payload()["typical"] == Schedule(made).typical.number
    assert analyse(made).analysis.path.step == Schedule(made).typical.number != 0


def test_steps_can_be_chosen():
    view = timeline(straggling(4), steps=[2])
    assert set(view.payload()["slices"]["step"]) == {2}
    assert "step 2" in view.title
    with pytest.raises(ValueError, match="no step 9"):
        timeline(straggling(), steps=[9])


def boxes(svg, kind):
    """(left, right, top, bottom) of the elements of a kind."""
    root = ElementTree.fromstring(svg)
    for node in root.iter(SVG + kind):
        classes = (node.get("class") or "").split()
        x, y = float(node.get("x", 0)), float(node.get("y", 0))
        if kind == "rect" and "bar" in classes:
            yield x, x + float(node.get("width")), y, y + float(node.get("height"))
        elif kind == "text":
            size = 10 if "small" in classes else 16 if "title" in classes else 12
            width = text_width(node.text or node[0].tail, size) * 0.9
            left = x - width * (0.5 if "middle" in classes else 1 if "end" in classes else 0)
            yield left, left + width, y - size * 0.7, y


def overlapping(found):
    found = sorted(found)
    for place, (_, right, top, bottom) in enumerate(found):
        for other in found[place + 1 :]:
            if other[0] >= right - 0.01:
                break
            if top < other[3] - 0.01 and other[2] < bottom - 0.01:
                yield found[place], other


@pytest.mark.parametrize("seconds", [1e-6, 1.0, 3333.0])
def test_nothing_overlaps_in_the_picture(seconds):
    svg = timeline(straggling(2, seconds=seconds)).svg
    assert not list(overlapping(boxes(svg, "rect")))
    assert not list(overlapping(boxes(svg, "text")))
    assert "communication (hatched)" in svg and "critical path" in svg
    assert "40% waiting for a straggler" in svg


def test_slices_narrower_than_a_pixel_become_one_and_are_counted():
    events = [event("mul", "op", 0, "t", 0, 1.0)]
    events += [event("relu", "op", 0, "t", 1 + n * 1e-5, 1 + n * 1e-5 + 9e-6) for n in range(1000)]
    svg = timeline(trace(events)).svg
    assert "1000 of 1001 slices are narrower than a pixel" in svg
    assert svg.count('class="bar') < 20


def test_100_000_slices_are_merged_to_what_can_be_seen():
    events = []
    for number in range(25_000):
        start, device, step = number * 1e-4, number % 4, number // 250
        key = f"task_dev{device}"
        events.append(Event(key, "task", device, key, start, start + 9e-5, device, {}, None, step))
        for part in range(3):
            begin = start + part * 3e-5
            events.append(
                Event("mul", "op", device, key, begin, begin + 2e-5, device, {}, None, step)
            )
    made = Trace(tuple(sorted(events, key=lambda e: (e.start, -e.stop))))
    view = timeline(made)
    assert len(view.payload()["slices"]["start"]) == 100_000
    assert len(view.svg) < 1e6
