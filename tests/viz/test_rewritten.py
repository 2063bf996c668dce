"""Comparing runs of one network with other operators, as passes and optimizers make them."""

import pytest
from dpexec.viz.compare import cause_text, compare
from dpexec.viz.comparing.rewritten import find_rewritten, name_of

from tests.viz.traces import GraphFile, event, task, trace

LAYERS = 6


def run(fused, steps=6, seconds=1.0, kind="sgd", names="w"):
    """A device that updates its parameters, each by itself or all of them at once."""
    graph, events = GraphFile(1), []
    key = "optimizer_dev0-0"
    weights = [f"{names}{k}" for k in range(LAYERS)]
    ops = [("mul", [w], [f"h{w}"]) for w in weights[:2]]
    ops += [(f"fused_{kind}", weights, weights)] if fused else [(kind, [w], [w]) for w in weights]
    graph.task(key, 0, [graph.op(name, 0, read, made) for name, read, made in ops])
    for step in range(steps):
        at = begun = 100.0 * step
        for node, (name, *_) in enumerate(ops):
            end = at + (seconds if fused and name != "mul" else 1.0)
            events.append(event(name, "op", 0, key, at, end, 0, node, step))
            at = end
        events.append(task(key, 0, begun, at, 0, step))
    return trace(events, graph, build={"fuse_all_optimizer_ops": fused, "memory_optimize": None})


def test_a_pass_that_was_off_is_no_other_network():
    found = compare(run(True, seconds=2.0), run(False))
    assert found.is_related
    cause, *rest = found.causes
    assert cause_text(cause) == "6 × sgd, before fused_sgd"
    assert cause.difference == pytest.approx(4.0) and not any(each.difference for each in rest)
    assert not found.only_before and not found.only_after
    (change,) = (each for each in found.changes if each.is_rewritten)
    assert (change.before, change.after, change.device) == (2.0, 6.0, 0)
    settings = "The runs have other settings: BuildStrategy.fuse_all_optimizer_ops on → off."
    assert settings in found.notes
    assert "made at" not in " ".join(found.notes)  # many lines made them
    assert compare(run(False), run(True, seconds=2.0)).gate(0.03).passed is not False


def test_operators_that_make_other_variables_are_another_network():
    found = compare(run(True), run(False, names="v"))
    assert not found.is_related and found.only_after


def test_an_operator_that_is_replaced_is_found_by_what_it_makes():
    mul, add = ("mul", "compute", ("h", 0)), ("add", "compute", ("y", 0))
    both, lone = (mul, add), (("relu", "compute", ("z", 0)),)
    (found,) = find_rewritten([both], [(mul,), (add,), lone])
    assert name_of(found) == "mul and add → h, before mul+add"
    assert find_rewritten([both, lone], [both, lone]) == []
    assert find_rewritten([(mul,)], [lone]) == []
