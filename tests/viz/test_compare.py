"""Comparing two runs: the slower operator ranks first, whatever else differs."""

import json
import random
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from dpexec.viz.compare import cause_text, compare
from dpexec.viz.compare_svg import Bar, render
from dpexec.viz.comparing.changes import Change
from dpexec.viz.findings import analyse

from dpexec.engine.trace import Trace
from tests.viz.traces import event, straggling, trace, warming_up


def noisy(seed, steps, slow=None, factor=2.0):
    """Steps of the hand-made network; every operator takes up to 5% longer or shorter."""
    rng = random.Random(seed)
    events = []
    for e in straggling(steps, seconds=1e-3):
        seconds = e.duration * rng.uniform(0.95, 1.05)
        if e.node is not None and e.node == slow:
            seconds *= factor
        if e.kind != "task":  # with room behind each
            events.append(replace(e, start=3 * e.start, stop=3 * e.start + seconds))
    return Trace(tuple(events), {}, straggling().graph)


@pytest.mark.parametrize("slow", range(7))
def test_an_operator_that_takes_twice_as_long_ranks_first(slow):
    found = compare(noisy(1, 9), noisy(2, 5, slow))
    first = found.changes[0]
    assert first.nodes == (slow,)
    assert first.ratio == pytest.approx(2.0, rel=0.06)
    assert first.certain > 0
    assert not found.only_before and not found.only_after
    assert len(found.changes) == 7


def test_nothing_ranks_first_that_noise_explains():
    steady = [event("small", "op", 0, "a", 10.0 * n, 10.0 * n + 1, step=n) for n in range(5)]
    slower = [event("small", "op", 0, "a", 10.0 * n, 10.0 * n + 2, step=n) for n in range(5)]
    wild = (1, 5, 3, 2, 4)
    one = [
        event("wild", "op", 0, "b", 10.0 * n + 2, 10.0 * n + 2 + t, step=n)
        for n, t in enumerate(wild)
    ]
    other = [replace(e, stop=e.stop + 1.5) for e in one]
    found = compare(trace(steady + one), trace(slower + other))
    assert [change.name for change in found.changes] == ["small", "wild"]
    assert [change.difference for change in found.changes] == [1.0, 1.5]


def test_two_networks_that_have_nothing_in_common_are_said_to_be_unrelated():
    other = [event(f"op{n}", "op", 0, "x", n, n + 0.5) for n in range(30)]
    found = compare(straggling(2), trace(other), names=["one", "two"])
    assert found.notes == [
        "These seem to be runs of different networks: of 7 operators of one and 30 of two 0 do the "
        "same, by what they make and where. Their steps are not compared."
    ]
    text = str(found)
    assert "\nand 10 more" in text and found.notes[0] in " ".join(text.split())
    assert len([line for line in text.splitlines() if line.startswith("only in two")]) == 20


def test_names_of_operators_are_cut_in_the_text_as_in_the_picture():
    long = [event("x" * 300, "op", 0, "a", 0, 1)]
    assert max(map(len, str(compare(trace(long), trace(long))).splitlines())) < 90


def test_operators_without_a_partner_are_listed():
    one = straggling(2)
    without = Trace(tuple(e for e in one if "optimizer" not in e.key), {}, one.graph)
    extra = [event("relu", "op", 0, "x", 10.0 * n + 9, 10.0 * n + 9.5, step=n) for n in range(2)]
    found = compare(one, Trace((*without.events, *extra), {}, one.graph))
    assert [(x.name, x.device) for x in found.only_before] == [("sgd → w", 1), ("sgd → w", 0)]
    assert [(x.name, x.seconds) for x in found.only_after] == [("relu", 0.5)]
    assert "Only in before: 2 operators; only in after: 1." in found.notes
    assert "only in before: sgd → w · device 1, 2.50 s" in str(found)
    assert "only in after" in found.svg
    assert found.payload()["unmatched"] == (
        ["sgd → w · device 1", "sgd → w · device 0"],
        ["relu · device 0"],
    )


def test_graphs_may_number_their_operators_differently():
    one, other = straggling(), straggling()
    graph = json.loads(json.dumps(other.graph))
    swap = {0: 2, 2: 0, 1: 3, 3: 1}
    for node in graph["nodes"]:
        node["id"] = swap.get(node["id"], node["id"])
    for job in graph["tasks"]:
        job["nodes"] = [swap.get(n, n) for n in job["nodes"]]
    events = [replace(e, node=swap.get(e.node, e.node)) for e in other]
    found = compare(one, Trace(tuple(events), {}, graph))
    assert not found.only_before and not found.only_after
    assert {change.difference for change in found.changes} == {0.0}


def test_figures_and_names():
    found = compare(straggling(3), straggling(2, seconds=2.0), names=["old", "new"])
    assert found.steps == (10.0, 20.0)
    assert found.title == "new against old · step 10.0 s → 20.0 s"
    assert found.notes[0] == "A step takes 100% more time."
    data = found.payload()
    assert data["sides"] == ({"name": "old", "step": 10.0}, {"name": "new", "step": 20.0})
    assert data["rows"][0] == ("mul_grad → w@GRAD · device 1", 4.0, 8.0, (3,))
    assert json.loads(found.json)["changes"][0]["after"] == 8.0
    assert "mul_grad → w@GRAD · device 1" in found.svg and "×2.00" in found.svg
    with pytest.raises(ValueError, match="two names, not 3"):
        compare(straggling(), straggling(), names=["a", "b", "c"])


def waiting_between(seed, seconds, steps=12):
    """Steps of the hand-made network, each of which begins some time after the one before."""
    made = noisy(seed, steps)
    late = [
        replace(e, start=e.start + e.step * seconds, stop=e.stop + e.step * seconds) for e in made
    ]
    return replace(made, events=tuple(late))


def test_a_slow_reader_is_named_first_and_fails_the_gate():
    found = compare(waiting_between(1, 0.0), waiting_between(2, 0.05), names=["old", "new"])
    assert found.notes[0].startswith("The time between steps is ")
    assert " ".join(str(found).splitlines()[1:3]) == found.notes[0]
    gate = found.gate(0.03)
    assert not gate.passed and "Why: The time between steps is " in gate.text
    faster = compare(waiting_between(2, 0.05), waiting_between(1, 0.0))
    assert faster.notes[0].startswith("The time between steps is ") and faster.gate(0.03).passed


def test_equal_runs_are_not_called_different():
    found = compare(waiting_between(1, 0.01), waiting_between(3, 0.01))
    assert not any(note.startswith("Between") for note in found.notes)
    assert found.gate(0.03).passed
    same = compare(noisy(1, 9), noisy(1, 9))
    assert same.notes[0].startswith("A step takes as long (")


def test_long_names_are_cut_and_their_device_is_not():
    change = Change("elementwise_add_grad → conv2d_transpose_1.tmp_0@GRAD", 1, 0, 1, 0, ())
    assert change.short(40) == "elementwise_ad…e_1.tmp_0@GRAD · device 1"
    assert change.short(99) == change.label


def test_two_steps_of_one_run_tell_why_one_took_longer():
    made = warming_up()
    found = compare(made, made, steps=(2, 0))
    assert found.title == "step 0 against step 2 · step 10.0 s → 50.0 s"
    assert cause_text(found.causes[0]) == "waiting for device 1"
    assert found.causes[0].difference == pytest.approx(14.0)
    assert "noise" not in str(found) and "median" not in str(found)  # of one step
    assert compare(made, made, steps=([1, 2], 0), names=["a", "b"]).names == ("a", "b")
    with pytest.raises(ValueError, match="the trace has no step 9"):
        compare(made, made, steps=(9, 0))
    (said,) = [text for text in analyse(made)._facts() if text.startswith("Step 0")]
    assert said.startswith("Step 0 took 50.0 s: 16.0 s more than the typical one for mul_grad")
    assert said.endswith("on device 1.")
    lost = replace(made, meta={**made.meta, "recovering": [[-49.0, -9.0]]})
    (said,) = [text for text in analyse(lost)._facts() if text.startswith("Step 0")]
    assert said.endswith("for 40.0 s it was repeated, as a worker was lost and replaced.")


def test_a_waterfall_that_passes_below_zero_covers_no_labels():
    """Causes of shorter steps come first: their sum may exceed the step."""
    falls = [Bar("mul", 4.0, -2.0, "-6 s"), Bar("feed and fetch", -2.0, 1.0, "+3 s", certain=False)]
    picture = render("title", [], ("old", "new"), (4.0, 1.0), falls, [], [[], []])
    root = ElementTree.fromstring(picture)
    shapes = [e for e in root.iter() if e.tag.endswith("rect") and e.get("x")]
    bars = [e for e in shapes if e.find("{*}title") is not None]
    lanes = [e for e in shapes if e not in bars and float(e.get("width")) > 300]
    left = min(float(e.get("x")) for e in lanes)
    assert bars and all(float(bar.get("x")) >= left for bar in bars)
