"""A step moment by moment, and films of it: running operators and waits."""

import io
import json

import pytest
from dpexec.viz.animate import animate
from dpexec.viz.animate_frames import READABLE, scale_of
from dpexec.viz.graphs.svg import placed
from dpexec.viz.measured.moments import Waiting, Work, moments
from dpexec.viz.measured.schedule import Schedule
from PIL import Image

from dpexec import cli, viz
from dpexec.engine.trace import Event, Trace, save
from tests.engine.run.nets import batches, classifier, train
from tests.viz.graphs import mlp
from tests.viz.traces import GraphFile, event, looping, straggling, task, trace


def test_known_answers():
    found = moments(Schedule(straggling(3)))
    assert (found.start, found.stop) == (10.0, 20.0) and found.step == 1
    assert found.works == (
        Work((0,), 10, 11),
        Work((2,), 10, 12),
        Work((1,), 11, 13),
        Work((3,), 12, 16),
        Work((4,), 16, 17),
        Work((5,), 17, 19),
        Work((6,), 17.5, 20),
    )
    assert found.waits == (
        Waiting(0, 13, 16, (4,), "for device 1: forward_backward_dev1"),
        Waiting(1, 17, 17.5, (6,), "to be started: it is ready"),
    )
    assert moments(Schedule(straggling(3)), 2).start == 20.0
    with pytest.raises(ValueError, match="no step 7"):
        moments(Schedule(straggling(3)), 7)


def test_loops_tasks_without_operators_and_traces_without_a_graph():
    loop = moments(Schedule(looping()))
    assert {node for work in loop.works for node in work.nodes} == {0}
    graph = GraphFile(1)
    graph.task("a-0", 0, [graph.op("mul", 0, ["x"], ["h"]), graph.op("relu", 0, ["h"], ["y"])])
    alone = moments(Schedule(trace([task("a-0", 0, 0, 2)], graph)))
    assert alone.works == (Work((0, 1), 0, 2),)
    bare = moments(Schedule(trace([event("mul", "op", 0, "a", 0, 1)])))
    assert bare.works == () and bare.waits == ()


def test_a_real_step_has_all_operators_and_no_device_waits_while_it_works():
    ran = train(classifier(), batches(3), devices=2, fuse_all_optimizer_ops=True, trace=True)
    recorded = ran.compiled.trace
    found = moments(Schedule(recorded))
    at_work = {node for work in found.works for node in work.nodes}
    planned = {node for job in recorded.graph["tasks"] for node in job["nodes"]}
    assert at_work == planned
    device = {node["id"]: node["device"] for node in recorded.graph["nodes"]}
    for wait in found.waits:
        for work in found.works:
            if device[work.nodes[0]] == wait.device:
                assert work.stop <= wait.start + 2e-9 or work.start >= wait.stop - 2e-9


def frame(film, number):
    film.seek(number)
    return film.convert("RGB")


def test_a_film_shows_what_runs_and_what_is_still_to_come(tmp_path):
    made = animate(straggling(3), seconds=2.0, rate=10)
    film = Image.open(io.BytesIO(made.save(tmp_path / "step.gif").read_bytes()))
    assert film.format == "GIF" and film.n_frames == 20 and film.info["duration"] == 100
    places = placed(made.drawing.diagram)
    scale = min(1.0, 960 / places.width, 620 / places.height)
    left = (960 - places.width * scale) / 2
    boxes = {box.nodes[0]: places.boxes[box.id] for box in made.drawing.diagram.boxes}

    def look(number, node):
        """How the frame of a box is drawn: accent, or as dark as its text is."""
        x, y, w, h = boxes[node]
        picture = frame(film, number)
        edge = picture.getpixel((round(left + (x + w / 2) * scale), round(30 + y * scale) - 2))
        strong = edge[2] > edge[0] + 60
        area = (left + x * scale, 30 + y * scale, left + (x + w) * scale, 30 + (y + h) * scale)
        darkest, _ = picture.crop(tuple(map(round, area))).convert("L").getextrema()
        return "running" if strong else "future" if darkest > 90 else "done"

    assert look(1, 0) == "running" and look(1, 3) == "future" and look(1, 5) == "future"
    assert look(8, 0) == "done" and look(8, 3) == "running" and look(8, 5) == "future"
    assert look(19, 6) == "done"
    with pytest.raises(ValueError, match="has no two frames"):
        animate(straggling(3), seconds=0.01)
    with pytest.raises(viz.FileError, match="the trace has no graph"):
        animate(Trace(straggling().events, {}, None))


def test_a_graph_folds_until_a_film_shows_its_texts():
    graph = mlp(layers=4).data()
    events = [
        Event(node["name"], "op", node["device"], f"op-{at}", at, at + 1.0, node=node["id"])
        for at, node in enumerate(graph["nodes"])
    ]
    recorded = Trace(tuple(events), {}, graph)
    made = animate(recorded)
    assert scale_of(made.drawing.diagram) < READABLE <= scale_of(made.for_film.diagram)
    chosen = animate(recorded, fold="none")
    assert chosen.for_film is chosen.drawing


def test_a_page_holds_what_the_playhead_goes_through(tmp_path, capsys):
    made = animate(straggling(3), step=2)
    assert made.title == "Step 2 · 10.0 s on 2 devices"
    play = made.payload()["views"][1]["play"]
    assert play["step"] == 2 and play["span"] == (20_000_000_000, 30_000_000_000)
    assert play["waits"][0]["text"] == "for device 1: forward_backward_dev1"
    assert json.dumps(play)
    assert "play" in made.html and "<svg" in made.svg
    path, film = save(straggling(3), tmp_path / "t.json"), tmp_path / "t.gif"
    assert cli.main(["viz", str(path), "--report", str(film)]) == 0
    assert Image.open(io.BytesIO(film.read_bytes())).n_frames == 96
    assert capsys.readouterr().out == ""
