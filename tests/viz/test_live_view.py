"""The panels of the live view, and the view below a notebook cell."""

import gc
import os
import re
import signal
import sys
import time
import types
from xml.etree import ElementTree

import pytest
from dpexec.viz import live
from dpexec.viz.live_panels import live_view

from dpexec.dashboard.board import Board
from dpexec.dashboard.groups import Member
from dpexec.engine.trace import live as watching
from tests.dashboard.reports import BOXES, full_board, report
from tests.dashboard.test_monitor import Trainer
from tests.waiting import until


@pytest.fixture(autouse=True)
def _nobody_watches():
    if watching.watchers():
        gc.collect()  # engines that trained on the clusters of other tests


def picture(html):
    """The first SVG of a panel."""
    return ElementTree.fromstring(re.search(r"<svg.*?</svg>", html, re.S)[0])


def texts(html):
    """All texts of a panel."""
    return [text for text in re.findall(r">([^<>]+)<", html) if text.strip()]


def boxes_of_texts(svg):
    """Left, right and baseline of every text, as wide as its characters may be."""
    for element in svg.iter("text"):
        content = "".join(element.itertext())
        x, width = float(element.get("x")), 7.2 * len(content)
        sides = element.get("class") or ""
        left = x - width if "end" in sides else x - width / 2 if "middle" in sides else x
        yield left, left + width, float(element.get("y")), content


@pytest.mark.parametrize("name", live_view.PANELS)
def test_panel_is_well_formed_and_inside_its_picture(name):
    html = live_view.panel(full_board(), name)
    assert html.startswith('<div class="dpl">')
    for found in re.findall(r"<svg.*?</svg>", html, re.S):
        svg = ElementTree.fromstring(found)
        width, height = float(svg.get("width")), float(svg.get("height"))
        for element in svg.findall(".//rect"):
            assert float(element.get("x")) >= 0 and float(element.get("y")) >= 0
            right = float(element.get("x")) + float(element.get("width"))
            assert right <= width + 1 and float(element.get("y")) <= height


@pytest.mark.parametrize("name", live_view.PANELS)
def test_texts_do_not_overlap(name):
    board = with_members("0", "1")
    for found in re.findall(r"<svg.*?</svg>", live_view.panel(board, name), re.S):
        placed = list(boxes_of_texts(ElementTree.fromstring(found)))
        for i, (left, right, y, one) in enumerate(placed):
            for left2, right2, y2, other in placed[i + 1 :]:
                apart = right <= left2 or right2 <= left or abs(y - y2) >= 11
                assert apart, f"{one!r} lies on {other!r}"


def with_members(*names):
    """A board that workers have told of their steps."""
    board = full_board()
    groups = {"forward_backward_dev0": (0.02, 10), "all_reduce": (0.01, 10)}
    board.members = {name: Member(name, every=4) for name in names}
    for now in (time.time() - 5, time.time()):
        for member in board.members.values():
            member.add(10, groups, now)
    return board


def test_groups_of_every_worker_are_shown():
    shown = " ".join(texts(live_view.panel(with_members("0", "1"), "groups")))
    assert "worker 1: 20 steps, 500 ms each" in shown and "Measured in one of 4 steps." in shown
    assert shown.count("2.00 ms a step, 0%") == shown.count("1.00 ms a step, 0%") == 2
    assert "this process: 8 steps" in live_view.panel(full_board(), "groups")


def test_no_group_takes_more_of_a_step_than_the_recorded_steps_say():
    """The steps of the latest report may be shorter than those of which tasks were recorded."""
    board = full_board()
    board.step_seconds = board.recorded[-1][0] / 10
    shares = re.findall(r"a step, (\d+)%", live_view.panel(board, "groups"))
    assert shares and all(int(share) <= 100 for share in shares)


def test_time_between_tasks_is_when_no_device_works():
    """Tasks of two devices side by side do not count twice."""
    board = full_board()
    tasks = [[d, "", "task", BOXES[0]["keys"][0], BOXES[0]["keys"][0], 1.0, 4.0] for d in (0, 1)]
    board.recorded.clear()
    board.take_sample({"step": 1, "seconds": 5.0, "slices": tasks, "left_out": 0})
    assert "2.00 s a step, 40%" in live_view.panel(board, "groups")


def test_a_task_is_divided_among_roles_by_their_operators():
    """The first task has three forward operators and one backward operator."""
    svg = picture(live_view.panel(full_board(), "graph"))
    width = {name: [] for name in ("forward", "backward")}
    for element in svg.iter("rect"):
        if element.get("class") in width:
            width[element.get("class")].append(float(element.get("width")))
    assert width["forward"] == pytest.approx([3 * each for each in width["backward"]], rel=1e-3)


def test_worker_that_has_left_is_named_and_its_groups_are_gone():
    board = with_members("0", "1")
    board.members["1"].left = time.time() - 4
    shown = live_view.panel(board, "groups")
    assert "Worker 1 has left 4.00 s ago." in shown
    assert "worker 0" in shown and "worker 1" not in shown


def test_worker_that_is_silent_while_others_train_is_named():
    board = with_members("0", "1")
    board.members["1"].at -= 12
    board.last_step = time.time()
    assert "Worker 1 was last heard of 12.0 s ago." in live_view.panel(board, "groups")


def test_many_workers_and_groups_stay_a_picture():
    board = with_members(*map(str, range(20)))
    more = {f"forward_backward_dev{number}": (0.1, 1) for number in range(1, 31)}
    board.members["1"].add(0, more, time.time())
    shown = live_view.panel(board, "groups")
    assert "21 further groups" in shown
    assert "12 further workers are not drawn." in shown
    assert shown.count(" a step, ") < 50


def test_graph_says_what_is_slow_and_what_runs():
    board = full_board()
    assert "▲ 3.0×" in texts(live_view.panel(board, "graph"))
    board.current = {"step": 9, "since": 2.0, "done": [BOXES[0]["keys"][0]], "running": None}
    graph = live_view.panel(board, "graph")
    assert {'class="done"', 'class="running slow"', 'class="waiting"'} <= set(
        re.findall(r'class="(?:done|running|waiting)[ a-z]*"', graph)
    )
    assert "in step 9 for 2.00 s" in texts(live_view.panel(board, "figures"))


def test_roles_differ_in_pattern_too():
    graph = live_view.panel(full_board(), "graph")
    assert {"dpl-backward", "dpl-collective", "dpl-optimize"} <= set(
        re.findall(r'fill="url\(#([a-z-]+)\)"', graph)
    )


def test_lanes_show_tasks_operators_and_transfers():
    board = full_board()
    key = BOXES[1]["keys"][0]
    row = [None, "", "transfer", key, key, 0.011, 0.02]
    board.take_sample({**board.sample, "slices": [*board.sample["slices"], row]})
    lanes = live_view.panel(board, "lanes")
    assert {"device 0", "device 1", "between", "transfer", "relu"} <= set(texts(lanes))
    assert f"transfer {key}, 9.00 ms" in texts(lanes)
    assert "Step 8, 60.0 ms." in texts(lanes)


def test_many_devices_are_cut_and_it_is_said():
    board = full_board()
    extra = [{**BOXES[0], "keys": [f"forward_dev{d}-{d}"], "device": d} for d in range(2, 12)]
    board.apply(report(9, 110.0, graph=[*BOXES, *extra], devices=["CPUPlace"] * 12))
    graph = live_view.panel(board, "graph")
    assert "device 7" in texts(graph) and "device 8" not in texts(graph)
    assert "4 further devices are not drawn." in graph


@pytest.mark.parametrize("losses", [[], [[1, 2.0]], [[1, 2.0], [2, 2.0]], [[1, float("nan")]]])
def test_curve_of_few_or_strange_values(losses):
    board = Board()
    board.apply(report(1, 1.0, loss=losses))
    assert "nan" not in live_view.panel(board, "loss")


@pytest.mark.parametrize(("name", "marks"), [("throughput", "2,000"), ("bytes", "8 MiB")])
def test_rates_that_hardly_change_have_marks_from_zero_on(name, marks):
    board = Board()
    for step in range(4):
        more = {"samples": 2500 * step, "bytes": (10 << 20) * step + step}
        board.apply(report(step, float(step), **more))
    shown = texts(live_view.panel(board, name))
    assert "0" in shown and marks in shown


def test_curve_leaves_a_gap_where_the_loss_is_no_number():
    board = Board()
    values = [3.0, 2.0, float("nan"), float("inf"), 1.0, 0.5]
    board.apply(report(6, 1.0, loss=[[i, v] for i, v in enumerate(values)]))
    path = picture(live_view.panel(board, "loss")).find(".//path[@class='curve']").get("d")
    assert path.count("M") == 2 and path.count("L") == 2


def test_names_from_programs_are_escaped():
    board = full_board()
    board.apply(report(9, 120.0, loss_name="<script>alert(1)</script>"))
    page = live_view.overview(board)
    assert "<script" not in page and "&lt;script&gt;" in page


def test_nothing_trains_yet():
    assert "Nothing trains yet" in live_view.panel(Board(), "figures")


class Outputs:
    """What a notebook would show."""

    def __init__(self):
        self.shown = []

    def display(self, content, raw, display_id):
        assert raw and display_id
        self.shown.append(content["text/html"])
        return self

    def update(self, content, raw):
        assert raw
        self.shown.append(content["text/html"])


@pytest.fixture
def notebook(monkeypatch):
    outputs = Outputs()
    module = types.ModuleType("IPython.display")
    module.display = outputs.display
    package = types.ModuleType("IPython")
    package.get_ipython = lambda: outputs
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return outputs


def test_live_view_follows_training_twice_a_second_at_most(notebook):
    trainer = Trainer()

    def train_until_shown():
        trainer.step()
        return len(notebook.shown) >= 4

    start = time.monotonic()
    with live(trainer.compiled) as view:
        assert "Nothing trains yet" in notebook.shown[0]
        until(train_until_shown)
        assert repr(view) == "<LiveView: following>"
    most = 2 * (time.monotonic() - start) + 2  # the first and the last one are extra
    assert len(notebook.shown) <= most
    assert "operators in 5 tasks" in notebook.shown[-1]
    assert "device 1" in notebook.shown[-1] and "forward + backward" in notebook.shown[-1]
    said = ["This view ended at " in shown for shown in notebook.shown]
    assert said == [False] * (len(said) - 1) + [True], "what a notebook stores says that it ended"
    assert 'class="state"' in notebook.shown[-1] and "dpl-ended" in notebook.shown[-1]  # not shown
    assert not watching.watchers()
    assert repr(view) == "<LiveView: closed>"


def test_live_view_whose_process_ends_is_missed_once_and_training_goes_on(notebook):
    trainer = Trainer()
    trainer.step()
    view = live(trainer.compiled)

    def kill():
        os.kill(view._process.pid, signal.SIGKILL)
        view._thread.join(10)

    with pytest.warns(UserWarning, match="no longer shown, but goes on: .* ended with SIGKILL"):
        kill()
    assert repr(view) == "<LiveView: closed>" and not watching.watchers()
    assert "This view ended at " in notebook.shown[-1]
    trainer.step()
    view.close()


def test_live_view_ends_when_nobody_has_the_executor_any_more(notebook):
    trainer = Trainer()
    trainer.step()
    view = live(trainer.compiled)
    process = view._process
    until(lambda: len(notebook.shown) > 1)
    assert repr(view) == "<LiveView: following>"
    del trainer
    gc.collect()
    until(lambda: repr(view) == "<LiveView: closed>")
    view.close()
    assert process._process.returncode is not None
    assert not watching.watchers()


def test_live_in_a_script_says_what_to_do(notebook, monkeypatch):
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: None)
    with pytest.raises(RuntimeError, match=r"this is none; elsewhere use dpexec\.dashboard\.serve"):
        live()
    assert not notebook.shown and not watching.watchers()


def test_live_without_ipython_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(RuntimeError, match=r"needs IPython.*dpexec\.dashboard\.serve"):
        live()
    assert not watching.watchers()
