"""The changes by every pass: equal to set differences, with every operator in its place."""

import xml.etree.ElementTree as ElementTree

import pytest
from dpexec.viz.graphs.history import compilation_of, history
from dpexec.viz.pages.load import FileError
from dpexec.viz.passes import _order, passes

import dpexec as fluid
from dpexec.engine import kernels
from dpexec.engine.graph.build import build_ssa_graph
from dpexec.engine.graph.operators import Operators
from dpexec.engine.passes.changes import label
from tests.engine.run.nets import Reduce, batches, classifier, strategies, train
from tests.viz.graphs import mlp

FUSING = {
    "fuse_elewise_add_act_ops": True,
    "fuse_all_optimizer_ops": True,
    "enable_sequential_execution": True,
}


def compilation(mode=None, devices=2):
    net = classifier(fluid.optimizer.Adam(0.1), batch_norm=True, dropout=0.1)
    build, _ = strategies(mode or fluid.BuildStrategy.ReduceStrategy.AllReduce, **FUSING)
    return compilation_of(net.main, build, devices)


def oracle(made):
    """Labels of the operators after every pass: the same passes, run and looked at by hand."""
    operators = Operators(made.program)
    yield "program", [f"{label(op)} on device 0" for op in operators.ops]
    for step in made.rewrites:
        step.rewrite(operators)
        yield step.name, [f"{label(op)} on device 0" for op in operators.ops]
    graph = build_ssa_graph(made.program, made.places, made.options, operators)
    yield "replication", [label(node) for node in graph.ops]
    for step in made.passes:
        step.apply(graph)
        yield step.name, [label(node) for node in graph.ops]


@pytest.mark.parametrize("mode", [None, Reduce])
def test_stages_are_set_differences(mode):
    made = compilation(mode)
    members, stages = history(made)
    names = {member.id: member.label for member in members}
    before = []
    for stage, (name, labels) in zip(stages, oracle(made), strict=True):
        assert stage.name == name
        assert [names[k] for k in stage.nodes] == labels
        if stage is not stages[0]:
            assert {names[k] for k in stage.added} == set(labels) - set(before)
            assert {names[k] for k in stage.removed} == set(before) - set(labels)
            assert set(stage.changed) <= set(stage.nodes) - set(stage.added)
        before = labels


def test_what_changed_is_what_the_passes_recorded():
    made = compilation()
    _, records = made.graph()
    members, stages = history(made)
    found = {stage.name: stage for stage in stages}
    assert any(record.changed for record in records)
    for record in records:
        stage = found[record.name]
        for recorded, ids in (
            (record.added, stage.added),
            (record.removed, stage.removed),
            (record.changed, stage.changed),
        ):
            texts = {text if " on " in text else f"{text} on device 0" for text in recorded}
            assert {members[k].label for k in ids} == texts


def test_unchanged_operators_keep_their_places():
    members, stages = history(compilation())
    order = _order(stages)
    assert sorted(order) == [member.id for member in members]
    place = {k: number for number, k in enumerate(order)}
    first = [place[k] for k in stages[0].nodes]
    assert first == sorted(first)


def test_links_join_operators_of_the_stage_and_go_forward():
    _, stages = history(compilation())
    for stage in stages:
        position = {k: number for number, k in enumerate(stage.nodes)}
        assert stage.links
        assert all(position[source] < position[target] for source, target in stage.links)


def test_the_picture_tells_what_each_pass_did():
    view = passes(classifier(batch_norm=True).main, devices=3)
    ElementTree.fromstring(view.svg)
    assert "Merge the all-reduces of parameters that share the name" in view.svg
    assert "− all_reduce ×6" in view.svg and "+ fused_all_reduce ×3" in view.svg
    assert "the maps show 2 of 3 devices" in view.svg
    assert "changed nothing: " in view.svg
    counts = {name: sizes for name, *sizes in view.counts()}
    assert counts["fuse_all_reduce_ops"][0] - counts["fuse_all_reduce_ops"][1] == 3


def test_an_executor_that_ran_is_compiled_again():
    compiled = train(classifier(), batches(1), devices=2).compiled
    assert passes(compiled).stages[-1].nodes
    assert len(passes(compiled).stages[-1].nodes) == len(compiled.graph.ops)


def test_a_file_names_what_changed():
    data = {**mlp().data(), "passes": [record.to_json() for record in compilation().graph()[1]]}
    view = passes(data)
    fused = next(stage for stage in view.stages if stage.name == "fuse_all_reduce_ops")
    assert {view.members[k].name for k in fused.added} == {"fused_all_reduce"}
    assert {view.members[k].role for k in fused.removed} == {"collective"}
    assert "only operators that a pass changed" in view.svg


def test_the_text_says_what_came_in_place_of_what():
    build, _ = strategies(fuse_elewise_add_act_ops=True, fuse_all_optimizer_ops=True)
    text = str(passes(classifier(sizes=(8, 6, 4, 3)).main, strategy=build, devices=2))
    assert "2 times: elementwise_add, relu → fused_elemwise_activation" in text.replace("\n  ", " ")
    assert "3 times: all_reduce ×2 → fused_all_reduce" in text
    data = {**mlp().data(), "passes": [record.to_json() for record in compilation().graph()[1]]}
    said = str(passes(data))
    assert "- gone: all_reduce ×" in said and "- new: fused_all_reduce ×" in said


def test_a_new_operator_stands_for_those_that_wrote_what_it_writes():
    net = classifier(sizes=(8, 6, 4, 3))
    build, _ = strategies(fuse_elewise_add_act_ops=True, fuse_all_optimizer_ops=True)
    view = passes(net.main, strategy=build, devices=2)
    names = {node["id"]: node["name"] for node in view.payload()["nodes"]}
    stages = {stage["name"]: stage for stage in view.payload()["stages"]}
    fused = stages["fuse_elewise_add_act_ops"]["replaced"]
    assert {names[one] for one, _ in fused} == {
        "fused_elemwise_activation",
        "fused_elemwise_activation_grad",
    }
    forward = [gone for one, gone in fused if names[one] == "fused_elemwise_activation"]
    assert [[names[k] for k in gone] for gone in forward] == [["elementwise_add", "relu"]] * 2
    merged = stages["fuse_all_optimizer_ops"]["replaced"]
    assert [len(gone) for _, gone in merged] == [6, 6]  # per device
    assert stages["replication"]["replaced"] == []


def test_operators_have_lines_and_code_before_and_after():
    build, _ = strategies(fuse_elewise_add_act_ops=True)
    data = passes(classifier().main, strategy=build, devices=1).payload()
    node = next(n for n in data["nodes"] if n["name"] == "relu")
    assert node["line"].startswith("nets.py:") and "layers.fc(hidden" in data["lines"][node["line"]]
    assert "xp.maximum" in data["listings"][data["declarations"]["relu"]]["source"]
    mean = next(n for n in data["nodes"] if n["name"] == "mean")
    assert "kernels" not in mean  # no pass changed it
    if kernels.available():
        (relu,) = (data["listings"][k] for k in node["kernels"])
        assert relu["kind"] == "machine code"
        fused = next(n for n in data["nodes"] if n["name"] == "fused_elemwise_activation")
        assert fused["kernels"]


def test_a_trace_tells_code_of_what_is_still_there():
    ran = train(classifier(), batches(1), devices=2, trace=True, fuse_elewise_add_act_ops=True)
    data = passes(ran.compiled.trace).payload()
    found = {n["name"]: n for n in data["nodes"] if "kernels" in n}
    assert "fused_elemwise_activation" in found and "relu" not in found
    assert found["fused_elemwise_activation"]["line"].startswith("nets.py:")


def test_what_knows_no_passes():
    with pytest.raises(FileError, match="names no passes"):
        passes(mlp().data())
    with pytest.raises(TypeError, match="a graph does not know"):
        passes(train(classifier(), batches(1)).compiled.graph)
    with pytest.raises(ValueError, match="no operators yet"):
        passes(fluid.Program())
    with pytest.raises(TypeError, match="an object of type int does not know"):
        passes(3)
    with pytest.raises(fluid.core.EnforceNotMet, match="run it once before"):
        passes(fluid.CompiledProgram(classifier().main).with_data_parallel("mean_0.tmp_0"))


def test_what_was_not_fused_says_why():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        total = fluid.layers.elementwise_add(*[fluid.data(n, [None, 4]) for n in "ab"])
        fluid.layers.elementwise_add(fluid.layers.relu(total), total)
    build = fluid.BuildStrategy()
    build.fuse_elewise_add_act_ops = True
    text = " ".join(str(passes(main, strategy=build, devices=1)).split())
    assert "fuse_elewise_add_act_ops: 3 operators Fuse relu" in text
    assert (
        "Not fused: elementwise_add and relu, as elementwise_add_0.tmp_0 is read by 2 operators "
        "(relu, elementwise_add)." in text
    )
    assert "switched off: " in text and "fuse_bn_act_ops" in text
    with fluid.program_guard(main, fluid.Program()):  # and what is fused has no reason
        fluid.layers.relu(fluid.layers.elementwise_add(total, total, name="alone"))
    text = " ".join(str(passes(main, strategy=build, devices=1)).split())
    assert text.count("Not fused") == 1
