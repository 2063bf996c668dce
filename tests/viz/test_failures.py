"""Steps that failed: what views say about them, and that they are in no figure."""

import numpy as np
import pytest
from dpexec.viz.measured.schedule import Schedule

import dpexec as fluid
from dpexec import viz
from dpexec.engine.kernels import stamps
from dpexec.engine.trace import load

LIMIT = 50.0


def refuses(array):
    if np.asarray(array).max() > LIMIT:
        raise RuntimeError("too large for me")
    return array


def trained(batches, with_function=False):
    """A recorded run on two devices; batches that are refused raise, and the run goes on."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 4])
        hidden = fluid.layers.fc(x, 4, act="relu")
        if with_function:
            out = main.current_block().create_var(name="out", dtype="float32", shape=[-1, 4])
            fluid.layers.py_func(refuses, x, out)
            out.stop_gradient = True
        else:
            out = fluid.embedding(fluid.layers.cast(x, "int64"), (10, 4))
            out = fluid.layers.reduce_sum(out, 1)
        loss = fluid.layers.mean(fluid.layers.fc([hidden, out], 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
    how = fluid.ExecutionStrategy()
    how.trace = True
    two = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, exec_strategy=how, places=fluid.cpu_places(2)
    )
    errors = []
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        for batch in batches:
            try:
                exe.run(two, feed={"x": batch}, fetch_list=[loss])
            except (fluid.core.EnforceNotMet, ValueError) as error:
                errors.append(error)
    return two, errors


GOOD = np.full((4, 4), 2.0, "float32")
BAD = np.concatenate([GOOD[:2], np.full((2, 4), 99.0, "float32")])  # on device 1


def test_a_refused_value_is_told_with_operator_device_line_and_what_had_run():
    two, errors = trained([GOOD, GOOD, GOOD, BAD, GOOD])
    (error,) = errors
    assert (error.operator, error.device) == ("lookup_table_v2", 1)
    (event,) = (event for event in two.trace if event.kind == "failure")
    nodes = {node["id"]: node for node in two.trace.graph["nodes"]}
    failed = nodes[event.node]
    assert (failed["name"], failed["device"]) == ("lookup_table_v2", 1)
    assert (event.step, event.device, event.args["line"]) == (3, 1, failed["line"])
    before = {e.name for e in two.trace if e.step == 3 and e.device == 1 and e.kind == "op"}
    assert "cast" in " ".join(before)  # it ran in the same piece of code as what failed
    assert not any("sgd" in name for name in before)
    text = str(viz.analyse(two))
    told = " ".join(text.split())
    assert f"Step 3 failed on device 1 in lookup_table_v2, made at {failed['line']}: Ids: " in told
    assert "operators of device 1 had run." in told


def test_no_figure_counts_a_failed_step():
    two, _ = trained([GOOD, BAD, GOOD, GOOD, BAD])
    schedule = Schedule(two.trace)
    assert [step.number for step in schedule.steps] == [0, 2, 3]
    assert [step.number for step in schedule.failed] == [1, 4]
    found = viz.analyse(two)
    assert [step.step for step in found.analysis.steps] == [0, 2, 3]
    told = [(one["step"], one["operator"], one["device"]) for one in found.to_json()["failures"]]
    assert told == [(1, "lookup_table_v2", 1), (4, "lookup_table_v2", 1)]
    assert "failure" not in {row.role for row in viz.table(two).rows}


def test_a_function_of_the_user_is_named_with_the_line_that_raised():
    two, _ = trained([GOOD, GOOD, BAD], with_function=True)
    text = " ".join(str(viz.analyse(two)).split())
    assert "failed on device 1 in py_func" in text and "RuntimeError: too large for me" in text
    line = refuses.__code__.co_firstlineno + 2
    assert f"The function raised it at test_failures.py:{line}." in text


def test_a_batch_that_does_not_fit_is_told_as_such():
    two, _ = trained([GOOD, GOOD, np.ones((4, 5), "float32"), GOOD])
    text = " ".join(str(viz.analyse(two)).split())
    assert "Step 2 failed while it was fed: ValueError: The fed Variable 'x' should have" in text


def test_a_run_without_a_completed_step_has_a_report_but_no_figures(tmp_path):
    two, _ = trained([BAD, BAD])
    report = viz.report(two, tmp_path / "report.html")
    first, *others = report.payload()["views"]
    assert [section["heading"] for section in first["sections"]] == ["What failed"]
    assert [sentence["step"] for sentence in first["sections"][0]["sentences"]] == [0, 1]
    assert {view["type"] for view in others} >= {"graph", "timeline"}
    graph = next(view for view in others if view["type"] == "graph")
    ((node, text),) = graph["overlay"]["failed"].items()
    assert text.startswith("Step 0 failed on device 1 in lookup_table_v2")
    failed = next(n for n in graph["graph"]["nodes"] if str(n["id"]) == node)
    assert (failed["name"], failed["device"]) == ("lookup_table_v2", 1)
    with pytest.raises(ValueError, match="no step was completed\nStep 0 failed on device 1"):
        viz.analyse(two)


@pytest.mark.parametrize("chrome", [True, False])
def test_files_keep_failures(tmp_path, chrome):
    two, _ = trained([GOOD, GOOD, BAD])
    path = two.trace.save(tmp_path / "trace.json", chrome=chrome)
    assert load(path) == two.trace
    assert str(viz.analyse(path)) == str(viz.analyse(two.trace))


def test_rows_that_ran_before_a_refusal_keep_their_times():
    begin, ticks = 1_000, 50_000
    noted = np.array([begin, ticks, ticks + 30, ticks + 70, begin + 35, 7, 9], np.int64)
    ran, times = stamps.until_refusal(noted, begin + 40)
    assert ran == 2
    assert times == [1_000.0, 1_015.0, 1_035.0]
    clocks = np.array([1_000, 1_000, 1_015, 1_035, 1_035, 7, 9], np.int64)  # counters are clocks
    assert stamps.until_refusal(clocks, 1_040) == (2, times)
