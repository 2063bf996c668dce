"""The report of a run: its views, the colours of the graph, its formats."""

import json
import re
import xml.etree.ElementTree as ElementTree
import zlib
from base64 import b64decode

import pytest
from dpexec.viz.measured import memory_use, schedule
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.overlay import overlay_of
from dpexec.viz.pages import load
from dpexec.viz.pages.stack import stacked

from dpexec import viz
from dpexec.engine import trace as traces
from dpexec.engine.trace import Allocation, Trace
from tests.engine.run.nets import batches, classifier, train
from tests.viz.traces import GraphFile, event, looping, straggling, task, trace

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def run():
    return train(classifier(), batches(3), devices=2, trace=True).compiled


def kinds(report):
    return [view["type"] for view in report.payload()["views"]]


def test_a_report_has_every_view(run):
    report = viz.report(run)
    assert kinds(report) == ["text", "graph", "timeline", "memory", "table", "passes"]
    assert "median" in report.title


def test_a_saved_trace_gives_the_same_views(run, tmp_path):
    path = traces.save(run.trace, tmp_path / "trace.json", chrome=False)
    live, saved = viz.report(run), viz.report(path)
    shown = {view["type"]: view for view in saved.payload()["views"]}
    for view in live.payload()["views"]:
        if view["type"] in ("text", "timeline", "memory", "table"):
            assert json.loads(json.dumps(shown[view["type"]])) == json.loads(json.dumps(view))


def test_a_report_reads_its_file_once_and_places_slices_once(run, tmp_path, monkeypatch):
    path = traces.save(run.trace, tmp_path / "trace.json")
    counts = {"read": 0, "placed": 0, "replayed": 0}

    def counted(name, work):
        def call(*args):
            counts[name] += 1
            return work(*args)

        return call

    monkeypatch.setattr(load, "_read", counted("read", load._read))
    monkeypatch.setattr(schedule, "_place", counted("placed", schedule._place))
    monkeypatch.setattr(memory_use, "_replay", counted("replayed", memory_use._replay))
    viz.report(path, tmp_path / "report.html")
    assert counts == {"read": 1, "placed": 1, "replayed": 2}  # memory: of every device


def test_a_trace_without_graph_and_memory_has_the_rest():
    bare = Trace(straggling().events, {})
    assert kinds(viz.report(bare)) == ["text", "timeline", "table"]


def test_a_report_of_nothing_says_so():
    with pytest.raises(viz.FileError, match="no events"):
        viz.report(Trace())
    with pytest.raises(TypeError, match="no trace"):
        viz.report(3)


def test_a_report_writes_itself(run, tmp_path):
    viz.report(run, tmp_path / "report.html", title="My run")
    html = (tmp_path / "report.html").read_text()
    packed = re.search(r'octet-stream" id="data">(.*?)<', html)[1]
    page = json.loads(zlib.decompress(b64decode(packed)))
    assert page["title"] == "My run" and len(page["views"]) == 6


def test_pictures_stand_below_each_other(run):
    root = ElementTree.fromstring(viz.report(run).svg)
    pictures = root.findall(f"{SVG}svg")
    ends = [0.0]
    for picture in pictures:
        assert float(picture.get("y")) >= ends[-1]
        ends.append(float(picture.get("y")) + float(picture.get("height")))
        assert float(picture.get("width")) <= float(root.get("width"))
    assert len(pictures) == 6 and ends[-1] <= float(root.get("height"))


def test_a_picture_without_size_cannot_be_stacked():
    with pytest.raises(ValueError, match="width and height"):
        stacked(["<svg></svg>"], "x")


def test_the_graph_is_coloured_by_what_was_measured():
    overlay = overlay_of(Schedule(straggling(steps=2)))
    # nodes: mul, mul_grad of device 0; of device 1; all_reduce; sgd of both
    assert overlay["time"] == pytest.approx([1, 2, 2, 4, 1, 2, 2.5])
    assert overlay["slack"] == pytest.approx([3, 3, 0, 0, 0, 1, 0])
    assert overlay["effect"] == pytest.approx([0, 0, 2, 4, 1, 0, 2.5])
    assert overlay["critical"] == [2, 3, 4, 6]
    replay = overlay["replay"]
    stops = []
    for time, delay, before in zip(*(replay[c] for c in ("time", "delay", "before")), strict=True):
        stops.append(max((stops[at] for at in before), default=0) + delay + time)
    assert max(stops) == replay["step"] == 10_000_000_000
    owners = [replay["owners"][owner] for owner in replay["owner"]]
    assert sorted(owners) == [(0,), (1,), (2,), (3,), (4,), (5,), (6,)]
    assert "memory" not in overlay


def test_one_slice_that_was_interrupted_changes_no_figure_of_an_operator():
    graph = GraphFile(1)
    graph.task("t-0", 0, [graph.op("mul", 0, ["x"], ["h"]), graph.op("relu", 0, ["h"], ["y"])])
    events = []
    for step, mul in enumerate((1.0, 1.25, 3.5, 0.75, 1.0)):
        start = 1000.0 * step
        stop = start + mul + 2
        events += [
            task("t-0", 0, start, stop, step=step),
            event("mul", "op", 0, "t-0", start, start + mul, node=0, step=step),
            event("relu", "op", 0, "t-0", start + mul, stop, node=1, step=step),
        ]
    made = trace(events, graph)
    overlay = overlay_of(Schedule(made))
    assert overlay["time"] == overlay["effect"] == [1.0, 2.0]
    assert overlay["spread"] == [0.25, 0.0]
    row = next(row for row in viz.table(made).rows if row.name == "mul")
    assert (row.median, row.spread, row.max) == (1.0, 0.25, 3.5)
    assert viz.analyse(made).title == "Where the time goes · 5 steps, median 3.00 s ± 250 ms"


def test_a_loop_is_coloured_by_all_that_it_runs():
    assert overlay_of(Schedule(looping()))["time"] == pytest.approx([10])


def test_memory_at_the_peak_belongs_to_what_made_it():
    rows = (
        Allocation(0.0, 0, "w", 64, "parameter"),
        Allocation(1.0, 0, "h", 32, "temporary"),
        Allocation(2.0, 0, "w@GRAD", 64, "gradient"),
        Allocation(3.0, 0, "h", -32, "temporary"),
    )
    made = straggling()
    overlay = overlay_of(Schedule(Trace(made.events, made.meta, made.graph, rows)))
    assert overlay["memory"] == [32, 64, None, None, None, None, None]


def test_a_trace_without_a_graph_has_no_overlay():
    assert overlay_of(Schedule(trace(straggling().events))) is None
