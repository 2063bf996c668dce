"""``dpexec viz`` and ``dpexec run --report --trace``: output, files and errors."""

import json
import random
import sys

import pytest

import dpexec as fluid
from dpexec import cli, viz
from dpexec.engine.trace import Trace, save
from tests.viz.traces import straggling

SCRIPT = """
import numpy as np
import paddle.fluid as fluid
main, startup = fluid.Program(), fluid.Program()
with fluid.program_guard(main, startup), fluid.unique_name.guard():
    x = fluid.data("x", [-1, 8])
    loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 1)))
    test = main.clone(for_test=True)
    fluid.optimizer.SGD(0.1).minimize(loss)
executor = fluid.Executor(fluid.CPUPlace())
with fluid.scope_guard(fluid.Scope()):
    executor.run(startup)
    compiled = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss.name)
    for _ in range(3):
        executor.run(compiled, feed={"x": np.ones((8, 8), "float32")}, fetch_list=[loss])
    executor.run(test, feed={"x": np.ones((8, 8), "float32")}, fetch_list=[loss])
"""

SECOND = """
second, begin = fluid.Program(), fluid.Program()
with fluid.program_guard(second, begin):
    out = fluid.layers.fc(fluid.data("x", [-1, 8]), 1)
with fluid.scope_guard(fluid.Scope()):
    executor.run(begin)
    for _ in range(4):
        executor.run(second, feed={"x": np.ones((8, 8), "float32")}, fetch_list=[out])
"""

FAILING = """
other = test.clone()
with fluid.scope_guard(fluid.Scope()):
    executor.run(startup)
    executor.run(other, feed={"x": np.ones((8, 9), "float32")}, fetch_list=[loss])
"""


@pytest.fixture(autouse=True)
def _own_arguments(monkeypatch):
    """Scripts change the arguments and the path of the process."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def trace_file(tmp_path):
    return str(save(straggling(3), tmp_path / "trace.json"))


def run(capsys, *arguments):
    code = cli.main(["viz", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_trace_is_printed_with_its_figures(trace_file, capsys):
    code, out, err = run(capsys, trace_file)
    assert (code, err) == (0, "")
    assert "Where the time goes · 3 steps, median 10.0 s" in out
    assert "device 0: 50% computing, 40% waiting for a straggler" in out
    assert "What to change:\n- device 0 waits 30% of the step for device 1" in out
    assert "Time by type · 3 steps" in out and "mul_grad" in out


def test_packed_files_are_opened(trace_file, tmp_path, capsys):
    packed = save(straggling(3), tmp_path / "trace.json.gz")
    assert run(capsys, str(packed)) == run(capsys, trace_file)
    assert viz.analyse(packed).title == viz.analyse(trace_file).title
    packed.write_bytes(packed.read_bytes()[:100])
    code, _, err = run(capsys, str(packed))
    assert code == 2 and "trace.json.gz is damaged, or was cut off" in err
    with pytest.raises(viz.FileError, match="is damaged, or was cut off"):
        viz.analyse(packed)


def test_json_holds_the_same_figures(trace_file, capsys):
    data = json.loads(run(capsys, trace_file, "--json", "--by", "role")[1])
    assert data["analysis"]["devices"][0]["straggler"] == pytest.approx(0.4)
    assert data["analysis"]["critical_path"]["seconds"] == pytest.approx(10.0)
    assert data["analysis"]["critical_path"]["unhindered"] == pytest.approx(9.5)
    assert data["table"]["rows"][0]["name"] == "backward"
    assert data["memory"] == []


def test_a_step_is_looked_at_alone(trace_file, capsys):
    data = json.loads(run(capsys, trace_file, "--json", "--step", "1")[1])
    assert [step["step"] for step in data["analysis"]["steps"]] == [1]


def test_two_traces_are_compared(trace_file, tmp_path, capsys):
    other = str(save(straggling(2, seconds=2.0), tmp_path / "other.json"))
    out = run(capsys, other, "--compare", trace_file)[1]
    assert out.startswith("other.json against trace.json · step 10.0 s → 20.0 s")
    data = json.loads(run(capsys, other, "--compare", trace_file, "--json")[1])
    assert data["steps"] == pytest.approx([10.0, 20.0])


def test_a_gate_fails_what_became_slower_and_says_why(tmp_path, capsys):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, seconds in ((old, 1.0), (new, 1.1)):
        folder.mkdir()
        save(straggling(6, seconds), folder / "trace.json")
    old, new = str(old / "trace.json"), str(new / "trace.json")
    code, out, error = run(capsys, new, "--compare", old, "--gate", "3%", "--json")
    assert code == 1 and "more than 3%. Why: waiting for device 1" in error
    gate = json.loads(out)["gate"]
    assert gate["passed"] is False and gate["text"] in error and new in error
    code, _, error = run(capsys, new, "--compare", old, "--gate", "12.5")
    assert code == 0 and "passed: the median step of" in error
    page = tmp_path / "page.html"
    assert run(capsys, new, "--compare", old, "--gate", "3%", "--report", str(page))[0] == 1
    assert "waiting for device 1" in page.read_text(encoding="utf-8")
    assert run(capsys, old, "--compare", new, "--gate", "0%")[0] == 0


def test_other_machines_are_simulated(trace_file, capsys):
    out = run(capsys, trace_file, "--simulate", "4", "--bandwidth", "64")[1]
    assert out.startswith("What if · 4 devices, all_reduce: step 10.5 s")
    data = json.loads(run(capsys, trace_file, "--simulate", "2", "--mode", "reduce", "--json")[1])
    assert data["mode"] == "reduce"


def test_pages_are_written(trace_file, tmp_path, capsys):
    page = tmp_path / "out.html"
    assert run(capsys, trace_file, "--report", str(page)) == (0, "", "")
    text = page.read_text()
    assert "trace.json" in text and "Where the time goes" in text
    picture = tmp_path / "what_if.svg"
    run(capsys, trace_file, "--simulate", "4", "--report", str(picture))
    assert "What if · 4 devices" in picture.read_text()


def program():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        fluid.layers.fc(fluid.data("x", [-1, 8]), 2)
    return main


def test_a_program_and_a_graph_are_described(tmp_path, capsys):
    model = tmp_path / "__model__"
    model.write_bytes(program().desc.serialize_to_string())
    code, out, _ = run(capsys, str(model))
    assert code == 0 and "operators    2 (2 forward)" in out
    assert "tasks        not planned yet" in out
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps(straggling().graph))
    data = json.loads(run(capsys, str(graph), "--json")[1])
    assert (data["operators"], data["tasks"], data["aggregated_bytes"]) == (7, 5, 64)
    assert run(capsys, str(graph), "--report", str(tmp_path / "graph.svg"))[0] == 0
    assert "<svg" in (tmp_path / "graph.svg").read_text()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "x.json is empty"),
        (b"  \n", "x.json is empty"),
        (b"{", "x.json is damaged, or was cut off"),
        (b"[1, 2]", "none of dpexec's files"),
        (b'{"a": 1}', "none of dpexec's files"),
        (b'{"traceEvents": []}', "x.json: "),
        (b"PK\x03\x04 an archive", "x.json is no trace, graph or program of dpexec"),
        (json.dumps(Trace().to_json()).encode(), "no events: nothing ran"),
    ],
)
def test_bad_files_are_one_clear_line(content, complaint, tmp_path, capsys):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    code, out, err = run(capsys, str(path))
    assert (code, out) == (2, "")
    assert err.startswith("dpexec viz: ") and complaint in err
    assert err.count("\n") == 1


def places(value, path=()):
    """The paths of everything in a JSON value."""
    if path:
        yield path
    if isinstance(value, list):
        value = dict(enumerate(value))
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield from places(inner, (*path, key))


@pytest.mark.parametrize("seed", range(8))
def test_a_file_with_anything_wrong_in_it_is_shown_or_refused_in_one_line(seed, tmp_path, capsys):
    rng = random.Random(seed)
    whole = json.dumps(straggling(2).to_json())
    paths = list(places(json.loads(whole)))
    for _ in range(12):
        data = json.loads(whole)
        *outer, last = rng.choice(paths)
        around = data
        for key in outer:
            around = around[key]
        around[last] = rng.choice([None, "x", -7, [1], 10**6, {}, 0.5])
        path = tmp_path / "x.json"
        path.write_text(json.dumps(data))
        for options in ([], ["--by", "node"], ["--simulate", "2"]):
            code, _, err = run(capsys, str(path), *options)
            assert code in (0, 2), (outer, last)
            assert err.count("\n") == (code == 2), (outer, last, err)


def test_a_program_never_built_or_run_says_so(tmp_path, capsys):
    path = tmp_path / "__model__"
    path.write_bytes(fluid.Program().desc.serialize_to_string())
    code, _, err = run(capsys, str(path))
    assert code == 2 and err.count("\n") == 1
    assert "empty" in err or "no operators" in err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere.json"], "nowhere.json: No such file"),
        (["."], "has no __model__"),
        (["{trace}", "--step", "7"], "no step 7; it has 0, 1, 2"),
        (["{trace}", "--compare", "{trace}", "--simulate", "2"], "choose one of"),
        (["{trace}", "--report", "out.doc"], "'out.doc'"),
        (["{trace}", "--simulate", "2", "--latency", "1"], "needs a bandwidth"),
        (["{graph}", "--step", "1"], "--step needs a trace; graph.json is a graph"),
        (["{trace}", "--compare", "{graph}"], "graph.json is a graph; --compare needs a trace"),
        (["{graph}", "--report", "step.gif"], "a film (.gif) needs a trace; graph.json is a graph"),
        (["{graph}", "--by", "layer"], "--by needs a trace; graph.json is a graph"),
        (["{trace}", "--by", "layer", "--report", "out.html"], "--by is for the printed table"),
        (["{trace}", "--json", "--report", "out.html"], "choose one of --report PAGE and --json"),
        (["{trace}", "--mode", "reduce"], "--mode needs --simulate N"),
        (["{trace}", "--bandwidth", "1e9"], "--bandwidth needs --simulate N"),
        (["{trace}", "--compare", "{trace}", "--cores", "2"], "--cores needs --simulate N"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(
    arguments, complaint, trace_file, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps(straggling().graph))
    code, _, err = run(capsys, *(a.format(trace=trace_file, graph=graph) for a in arguments))
    assert code == 2
    assert complaint in err and err.count("\n") == 1


def test_wrong_usage(capsys):
    with pytest.raises(SystemExit) as info:
        cli.main(["viz", "t.json", "--step", "one"])
    assert info.value.code == 2
    assert "'one' is not the number of a step" in capsys.readouterr().err


def test_run_records_the_program_with_the_most_steps(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    page, trace = tmp_path / "out.html", tmp_path / "out.json"
    code = cli.main(["run", str(script), "--report", str(page), "--trace", str(trace)])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    told = f"3 steps of a program on 2 devices are in {trace} and {page} (2 others ran, too)"
    assert told in captured.err
    data = json.loads(run(capsys, str(trace), "--json")[1])
    assert len(data["analysis"]["steps"]) == 3
    assert len(data["analysis"]["devices"]) == 2
    assert data["memory"][0]["peak"]["bytes"] > 0
    assert "dpexec run train.py" in page.read_text()


def test_a_report_has_all_programs_that_take_much_of_the_time(tmp_path, capsys):
    script, page, trace = tmp_path / "train.py", tmp_path / "out.html", tmp_path / "out.json"
    script.write_text(SCRIPT + SECOND)
    assert cli.main(["run", str(script), "--report", str(page), "--trace", str(trace)]) == 0
    told = capsys.readouterr().err
    assert "4 steps of a program on 1 device, 3 steps of a program on " in told
    assert f"are in {trace} and {page} (3 others ran, too)" in told  # 3 of a single step
    text = page.read_text()
    assert "In turn" in text and "program 2 (train.py:7)" in text
    assert len(json.loads(run(capsys, str(trace), "--json")[1])["analysis"]["steps"]) == 4


def test_run_records_the_program_that_failed_also_if_others_made_more_steps(tmp_path, capsys):
    script, trace = tmp_path / "train.py", tmp_path / "out.json"
    script.write_text(SCRIPT + FAILING)
    assert cli.main(["run", str(script), "--trace", str(trace)]) == 1
    assert "dpexec run: 1 step (1 failed) of a program on 1 device is in" in capsys.readouterr().err
    code, _, err = run(capsys, str(trace))
    assert code == 2
    assert "no step was completed\nStep 0 failed while it was fed: ValueError: " in err


def test_run_writes_what_was_recorded_before_the_script_failed(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + "\nraise SystemExit(3)\n")
    trace = tmp_path / "out.json"
    with pytest.raises(SystemExit) as info:
        cli.main(["run", str(script), "--trace", str(trace)])
    assert info.value.code == 3
    assert json.loads(trace.read_text())["traceEvents"]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        (["--report", "nowhere/out.html"], "there is no folder nowhere"),
        (["--report", "out.doc"], "choose one of .svg, .png, .pdf, .html, .json"),
        (["--report", "out.png"], "needs Cairo"),
    ],
)
def test_run_looks_at_its_targets_before_the_script_runs(
    option, complaint, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    (tmp_path / "train.py").write_text("raise SystemExit('ran')")
    assert cli.main(["run", "train.py", *option]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--trace", "out.json"], ["--report", "out.html"]])
def test_run_of_a_script_without_steps_fails_and_says_so(option, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import dpexec\nprint(dpexec.Program())")
    assert cli.main(["run", "train.py", *option]) == 1
    assert "completed no step of a program" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
