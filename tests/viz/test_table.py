"""Per-operator tables: known figures, and totals equal to those of the timeline."""

import csv
import io
import json

import pytest
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.table import GROUPINGS, table
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.viz.test_schedule import any_events
from tests.viz.traces import GraphFile, event, looping, straggling, task, trace, warming_up


@settings(deadline=None)
@given(any_events(), st.sampled_from([name for name in GROUPINGS if name != "layer"]))
def test_totals_are_those_of_the_timeline(made, by):
    steps = sorted({e.step for e in made})
    outer = sum(p.event.duration for p in Schedule(made).slices if p.depth == 0)
    found = table(made, by=by, steps=steps)
    assert found.total == pytest.approx(outer)
    assert sum(row.share for row in found.rows) == pytest.approx(1.0 if outer else 0.0)


def test_figures_of_a_type():
    found = table(straggling(2, seconds=1e-3))
    rows = {row.name: row for row in found.rows}
    grad = rows["mul_grad"]
    assert (grad.role, grad.device, grad.calls) == ("backward", "all", 4)
    assert (grad.total, grad.median, grad.min, grad.max) == pytest.approx((12e-3, 3e-3, 2e-3, 4e-3))
    assert grad.spread == pytest.approx(1e-3)
    assert grad.share == pytest.approx(12 / 29)
    assert grad.bytes == 256  # three inputs, one output, 64 bytes each
    assert grad.gflops == pytest.approx(4 * 2 * 4**3 / 12e-3 / 1e9)
    assert grad.critical == pytest.approx(8 / 12)
    assert grad.nodes == (1, 3)
    assert rows["sgd"].gflops is None
    assert [row.total for row in found.rows] == sorted((r.total for r in found.rows), reverse=True)


def test_what_a_loop_runs_has_rows_of_its_own_and_belongs_to_its_node():
    rows = {row.name: row for row in table(looping()).rows}
    assert {name: (row.calls, row.total) for name, row in rows.items() if row.total} == {
        "while": (1, 4),
        "mul": (2, 5),
        "relu": (1, 1),
    }
    node = next(row for row in table(looping(), by="node").rows if row.total)
    assert (node.name, node.calls, node.total, node.max) == ("while → y", 1, 10, 10)


def test_groups():
    made = straggling(2)
    assert next(r.name for r in table(made, by="role").rows) == "backward"
    assert [r.device for r in table(made, per_device=True).rows if r.name == "mul"] == ["1", "0"]
    nodes = table(made, by="node").rows
    assert [(r.name, r.device) for r in nodes][:2] == [("mul_grad → w@GRAD", "1"), ("sgd → w", "1")]
    tasks = {row.name: row for row in table(made, by="task").rows}
    assert tasks["forward_backward_dev1-1"].critical == pytest.approx(1.0)
    assert tasks["forward_backward_dev0-0"].critical == 0
    assert [row.name for row in table(made, by="layer").rows] == ["fc_0"]
    with pytest.raises(ValueError, match="by must be one of type, node, layer, task, role"):
        table(made, by="place")
    with pytest.raises(ValueError, match="holds no graph"):
        table(trace([task("t", 0, 0, 1)]), by="layer")


def test_first_steps_that_were_slower_count_if_they_are_asked_for():
    made = warming_up()
    found = table(made)
    outer = [p.event.duration for p in Schedule(made, [1, 2, 3]).slices if p.depth == 0]
    assert found.total == pytest.approx(sum(outer))
    assert found.title == "Time by type · 3 steps"
    assert found.notes == ["Not counted: the first step, slower than the others."]
    assert str(found).endswith(found.notes[0]) and found.notes[0] in found.svg
    assert found.sorted("max").payload()["notes"] == found.notes == found.to_json()["notes"]
    every = table(made, steps=range(4))
    assert every.total == pytest.approx(found.total + 5 * found.total / 3) and not every.notes


def test_time_between_operators_has_a_row():
    made = trace([task("t", 0, 0, 10), event("mul", "op", 0, "t", 2, 6)])
    assert {row.name: row.total for row in table(made).rows} == {"between operators": 6, "mul": 4}


def test_sorting_puts_unknown_figures_last():
    found = table(straggling(2))
    assert [row.gflops is None for row in found.sorted("gflops").rows] == [False, False, True, True]
    assert next(row.name for row in found.sorted("name").rows) == "all_reduce"
    assert [row.calls for row in found.sorted("calls", up=True).rows] == [2, 4, 4, 4]
    with pytest.raises(ValueError, match="no column 'speed'; there are name, role"):
        found.sorted("speed")


def test_csv_json_text_and_picture_hold_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    found = table(straggling(2))
    rows = list(csv.DictReader(io.StringIO(found.csv)))
    assert [row["name"] for row in rows] == [row.name for row in found.rows]
    assert [float(row["total"]) for row in rows] == [row.total for row in found.rows]
    assert rows[-1]["gflops"] == ""
    assert [row["total"] for row in json.loads(found.json)["rows"]] == [r.total for r in found.rows]
    assert found.save(tmp_path / "ops.csv").read_text() == found.csv
    lines = str(found).splitlines()
    assert lines[0].split()[:3] == ["name", "role", "calls"]
    assert lines[1].split()[:4] == ["mul_grad", "backward", "4", "12.0"]
    assert all(row.name in found.svg for row in found.rows)
    data = found.payload()
    assert data["totals"][data["sort"][0]] == pytest.approx(found.total)
    assert len(data["nodes"]) == len(data["rows"]) == len(found.rows)


@pytest.mark.parametrize(
    ("room", "left_out"),
    [("200", []), ("110", ["min", "max"]), ("70", ["min", "max", "bytes/call", "role", "GFLOP/s"])],
)
def test_text_fits_its_terminal_and_says_what_it_leaves_out(room, left_out, monkeypatch):
    monkeypatch.setenv("COLUMNS", room)
    made = table(straggling(2))
    lines = str(made).splitlines()
    if left_out:
        assert f"Left out, for lines to fit: {', '.join(left_out)}." in " ".join(lines)
        assert not set(left_out) & set(lines[0].split())
        assert max(map(len, lines)) <= int(room)
    else:
        assert {"min", "max", "role"} <= set(lines[0].split())


def test_a_long_name_loses_its_middle_where_lines_would_not_fit(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    name = "fused_elemwise_activation_of_" + "very_" * 20 + "long_name"
    made = table(trace([task("t-0", 0, 0.0, 1.0), event(name, "op", 0, "t-0", 0.0, 1.0)]))
    lines = str(made).splitlines()
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if line.startswith("fused_"))
    assert row.split()[0].endswith("long_name") and "…" in row


def test_text_tells_rows_of_devices_apart():
    assert "device" in str(table(straggling(2), per_device=True)).splitlines()[0]
    assert "device" not in str(table(straggling(2))).splitlines()[0]


def test_an_operator_that_code_does_with_others_counts_their_flops_and_nodes():
    graph = GraphFile(1)
    nodes = [graph.op("mul", 0, ["x", "w"], ["h"]), graph.op("relu", 0, ["h"], ["y"])]
    graph.task("t-0", 0, nodes)
    parts = {"parts": ["mul", "relu"]}
    made = trace([event("mul+relu", "op", 0, "t-0", 0, 1e-9, node=0, **parts)], graph)
    (row,) = table(made).rows
    assert row.nodes == (0, 1)
    assert row.gflops == pytest.approx(2 * 4**3)
    assert row.bytes == 4 * 64  # x and w are read, h and y are written


def test_a_task_without_time_is_no_type_of_operator():
    """Machine code may have nothing to do for a collective."""
    key = "broadcast_dev0-1"
    events = [
        task("forward_dev0-0", 0, 0, 5),
        event("mul", "op", 0, "forward_dev0-0", 0, 5, node=0),
        task(key, 0, 5, 5),
        event("broadcast", "collective", 0, key, 5, 5, node=1),
    ]
    assert [row.name for row in table(trace(events)).rows] == ["mul", "broadcast"]
