"""Sources of views: live objects and files; other objects are rejected with an error."""

import json

import pytest
from dpexec.viz.pages.load import FileError, as_graph, as_trace

import dpexec as fluid
from dpexec.engine.trace import Event, Trace, save
from tests.engine.run.nets import batches, classifier, train
from tests.viz.graphs import mlp


@pytest.fixture(scope="module")
def compiled():
    return train(classifier(), batches(1), devices=2, trace=True).compiled


def write(tmp_path, content):
    path = tmp_path / "file.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_graph_of_everything_that_has_one(compiled, tmp_path):
    expected = compiled.graph.to_json()
    saved = compiled.graph.save(tmp_path / "graph.json")
    for source in (compiled, compiled.graph, saved, str(saved), expected):
        assert as_graph(source) == expected
    assert as_graph(compiled.plan) == compiled.plan.to_json()
    assert as_graph(compiled._program)["devices"][1:] == []


def test_graph_of_a_predictor_is_that_of_its_program(tmp_path):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        out = fluid.layers.fc(fluid.data("x", [None, 2]), 3)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    fluid.io.save_inference_model(str(tmp_path), ["x"], [out], exe, main)
    predictor = fluid.core.create_paddle_predictor(fluid.core.AnalysisConfig(str(tmp_path)))
    assert as_graph(predictor) == as_graph(predictor.program())
    with pytest.raises(TypeError, match="an object of type AnalysisPredictor has no trace"):
        as_trace(predictor)


@pytest.mark.parametrize("chrome", [True, False])
def test_graph_and_events_of_a_saved_trace(compiled, tmp_path, chrome):
    trace = compiled.trace
    path = save(trace, tmp_path / "trace.json", chrome=chrome)
    assert as_graph(path) == json.loads(json.dumps(as_graph(trace)))
    assert as_trace(path).events == as_trace(compiled).events == trace.events


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is empty"),
        ("{", "damaged"),
        ("[1]", "none of dpexec's files: its format is 'list'"),
        ({"format": "onnx"}, "format is 'onnx'"),
        ({"format": "dpexec.graph", "version": 99}, "version 99"),
        ({"format": "dpexec.graph", "version": 1, "title": "a"}, "needs a list of devices"),
    ],
)
def test_files_that_are_no_graphs(tmp_path, content, complaint):
    path = write(tmp_path, content)
    for read in (as_graph, as_trace):
        with pytest.raises(FileError, match=rf"^{path.name}\b") as caught:
            read(path)
        assert read is as_trace or complaint in str(caught.value)
        assert str(caught.value).count(path.name) == 1


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda data: data["nodes"][3].pop("role"), r"nodes\[3\] of the graph file is damaged"),
        (lambda data: data["vars"].pop(), "refers to what is not there"),
        (lambda data: data["nodes"].reverse(), "refers to what is not there"),
        (lambda data: data["nodes"].clear(), "no operators"),
        (lambda data: data.update(tasks=[{"key": "forward"}]), r"tasks\[0\] of the graph file"),
        (lambda data: data.pop("title"), "lacks its title"),
        (
            lambda data: data["nodes"][0]["inputs"].extend(data["nodes"][2]["outputs"]),
            "goes round in a circle",
        ),
    ],
)
def test_damaged_graphs(tmp_path, damage, complaint):
    data = mlp(1).data()
    damage(data)
    with pytest.raises(FileError, match=complaint):
        as_graph(write(tmp_path, data))


def test_what_has_no_graph_or_trace(compiled):
    with pytest.raises(FileError, match="recorded without"):
        as_graph(Trace((Event("a", "op", 0, "t", 0.0, 1.0),)))
    with pytest.raises(FileError, match="no events"):
        as_trace(Trace())
    with pytest.raises(TypeError, match="an object of type list has no trace"):
        as_trace([1])
    with pytest.raises(FileNotFoundError):
        as_graph("missing.json")
    silent = train(classifier(), batches(1)).compiled
    with pytest.raises(RuntimeError, match=r"ExecutionStrategy\.trace"):
        as_trace(silent)
