"""The profiler: what it counts, its report, its trace, and that it leaves no trace when off."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import viz
from dpexec.engine import trace
from dpexec.engine.dispatch.traces import trace_of
from dpexec.engine.trace import profile
from tests.engine.run import nets

COLUMNS = ["Event", "Calls", "Total", "Min.", "Max.", "Ave.", "Ratio."]


@pytest.fixture(autouse=True)
def off():
    """No test finds the profiler on, or leaves it on."""
    profile.stop()
    yield
    profile.stop()


def compiled_net(devices=2, **options):
    net = nets.classifier(sizes=(8, 3))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup)
    build, execution = nets.strategies(**options)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=[fluid.CPUPlace()] * devices
    )
    feed = nets.batches(1)[0]
    return compiled, lambda: exe.run(compiled, feed=feed, fetch_list=[net.loss])


@pytest.fixture
def run():
    """A step on two devices, compiled already."""
    with fluid.scope_guard(fluid.Scope()):
        _, step = compiled_net()
        step()
        yield step


def tables(text):
    """The tables of both reports: lists of (name, calls, total, min, max, ave, ratio)."""
    found = []
    for part in text.split("Event Summary")[1:]:
        lines = part.splitlines()[2:]
        assert lines[0].split() == COLUMNS
        rows = []
        for line in lines[1:]:
            if not line.strip():
                break
            *name, calls, total, low, high, mean, ratio = line.split()
            rows.append((" ".join(name), int(calls), *map(float, (total, low, high, mean, ratio))))
        found.append(rows)
    return found


def test_report_counts_every_operator_of_every_device(run, capsys, tmp_path):
    with fluid.profiler.profiler("CPU", "total", str(tmp_path / "trace")):
        for _ in range(3):
            run()
    text = capsys.readouterr().out
    merged, by_thread = tables(text)
    calls = {name: count for name, count, *_ in merged}
    assert calls["mul+elementwise_add"] == calls["mul_grad"] == calls["Scale LossGrad"] == 6
    assert calls["sgd"] == 12
    assert calls["Fetch"] == 3
    assert sum(n for name, n in calls.items() if name.endswith("all_reduce")) >= 3
    assert [row[2] for row in merged] == sorted((row[2] for row in merged), reverse=True)
    assert all(name.startswith("thread") and "::" in name for name, *_ in by_thread)
    assert sum(row[1] for row in by_thread) == sum(calls.values())
    assert "Place: CPU" in text and "Sorted by total time in descending order" in text
    assert text.count("Profiling Report") == 2


def test_columns_agree_with_each_other(run, capsys, tmp_path):
    with fluid.profiler.profiler("CPU", None, str(tmp_path / "trace")):
        run()
    for _, calls, total, low, high, mean, ratio in tables(capsys.readouterr().out)[0]:
        assert low <= mean * 1.001 and mean <= high * 1.001
        assert mean * calls == pytest.approx(total, rel=1e-3)
        assert 0 < ratio <= 1


@pytest.mark.parametrize(
    ("key", "column"), [("calls", 1), ("total", 2), ("min", 3), ("max", 4), ("ave", 5)]
)
def test_sorted_key_orders_the_table(run, capsys, tmp_path, key, column):
    with fluid.profiler.profiler("All", key, str(tmp_path / "trace")):
        run()
    values = [row[column] for row in tables(capsys.readouterr().out)[0]]
    assert values == sorted(values, reverse=True)


def test_trace_file_opens_as_a_chrome_trace(run, tmp_path):
    path = tmp_path / "trace"
    with fluid.profiler.profiler("CPU", profile_path=str(path)):
        run()
    loaded = trace.load(path)
    assert {"mul+elementwise_add", "sgd", "Fetch"} <= {event.name for event in loaded}
    assert loaded.devices == (0, 1)


def test_plain_executor_is_profiled_and_reset_forgets(capsys, tmp_path):
    with fluid.scope_guard(fluid.Scope()):
        net = nets.classifier(sizes=(8, 3))
        exe = fluid.Executor(fluid.CPUPlace())
        fluid.profiler.start_profiler("CPU")
        exe.run(net.startup)
        fluid.profiler.reset_profiler()
        exe.run(net.main, feed=nets.batches(1)[0], fetch_list=[net.loss])
        fluid.profiler.stop_profiler("calls", str(tmp_path / "trace"))
    (table,) = tables(capsys.readouterr().out)  # one thread, one report
    calls = {name: count for name, count, *_ in table}
    assert calls["thread0::mul_grad"] == 1 and calls["thread0::sgd"] == 2
    assert "thread0::uniform_random" not in calls


def test_of_several_programs_the_trace_holds_the_graph_of_the_longest(run, tmp_path):
    path = tmp_path / "trace"
    with fluid.profiler.profiler("CPU", profile_path=str(path)):
        with fluid.scope_guard(fluid.Scope()):
            compiled_net(devices=1)  # runs its startup program
        for _ in range(400):
            run()
    loaded = trace.load(path)
    names = {node["id"]: node["name"] for node in loaded.graph["nodes"]}
    tasks = {task["key"] for task in loaded.graph["tasks"]}
    assert "fused_all_reduce" in names.values() and "uniform_random" not in names.values()
    for event in loaded:
        if event.step == 0:
            assert event.node is None and event.key not in tasks
        elif event.kind == "op":
            assert event.name.startswith(names[event.node]) and event.key in tasks
    assert {"sgd", "uniform_random"} <= {row.name for row in viz.table(path, steps=range(401)).rows}
    assert "uniform_random" not in viz.draw(path).svg
    assert viz.report(path).html


def test_nothing_ran(capsys, tmp_path):
    with fluid.profiler.profiler("CPU", profile_path=str(tmp_path / "trace")):
        pass
    text = capsys.readouterr().out
    assert tables(text) == [[]] and "merge all thread" not in text
    assert "Total time: 0\n" in text and "Ratio: 100%" in text


def test_recorder_of_the_strategy_goes_on(capsys, tmp_path):
    with fluid.scope_guard(fluid.Scope()):
        compiled, run = compiled_net(trace=True)
        run()
        engine = compiled._compile(fluid.global_scope(), fluid.CPUPlace())
        before = len(trace_of(engine, engine.recorder))
        with fluid.profiler.profiler("CPU", profile_path=str(tmp_path / "trace")):
            run()
        assert len(trace_of(engine, engine.recorder)) == 2 * before
    assert len(trace.load(tmp_path / "trace")) == before


def test_same_numbers_while_profiling(run, capsys, tmp_path):
    found = []
    for on in (False, True):
        with fluid.scope_guard(fluid.Scope()):
            _, step = compiled_net()
            if on:
                fluid.profiler.start_profiler("CPU")
            found.append([step()[0] for _ in range(2)])
    fluid.profiler.stop_profiler(profile_path=str(tmp_path / "trace"))
    np.testing.assert_array_equal(*found)


def test_wrong_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="state must be"):
        fluid.profiler.start_profiler("TPU")
    with pytest.raises(ValueError, match="tracer option"):
        fluid.profiler.start_profiler("CPU", "All")
    with (
        pytest.raises(ValueError, match="sorted_key"),
        fluid.profiler.profiler("CPU", "name", str(tmp_path / "trace")),
    ):
        pass
    assert profile.active() is None
    with pytest.raises(ValueError, match="output mode"):
        fluid.profiler.cuda_profiler("file", "text")
    with pytest.raises(NotImplementedError, match="cuda_profiler is not supported"):
        fluid.profiler.cuda_profiler("file")


def test_exception_in_the_block_stops_recording(capsys):
    with pytest.raises(KeyError), fluid.profiler.profiler("CPU"):
        raise KeyError
    assert profile.active() is None
    assert capsys.readouterr().out == ""


def test_stop_without_start_does_nothing(capsys):
    fluid.profiler.stop_profiler()
    fluid.profiler.reset_profiler()
    assert capsys.readouterr().out == ""
