"""The analysis as a view: the same figures as text, page and picture, and nothing overlaps."""

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
from dpexec.viz.findings import analyse
from dpexec.viz.pages.looks import LOOKS
from dpexec.viz.pages.words import PARTS

from tests.viz.test_timeline import boxes, overlapping
from tests.viz.traces import event, straggling, task, trace, two_replicas


def test_text_page_and_json_hold_the_same_figures():
    view = analyse(straggling(3))
    assert view.title == "Where the time goes · 3 steps, median 10.0 s"
    assert max(map(len, str(view).splitlines())) <= 88  # JupyterLab breaks words of longer ones
    text = " ".join(str(view).split())
    assert "device 1: 85% computing, 10% communication, 5.0% waiting for the scheduler" in text
    path = (
        f"The critical path of step {view.analysis.path.step} is all of its 10.0 s: 85% computing, "
        "10% communication, 5.0% waiting for the scheduler."
    )
    assert path in text and path.split(",")[0] in view.svg
    sections = {section["heading"]: section for section in view.payload()["sections"]}
    bars = sections["What each device did"]["bars"]
    assert [sum(value for _, value, _ in bar["parts"]) for bar in bars] == pytest.approx([1.0, 1.0])
    figures = {f["label"]: f["value"] for f in sections["Steps"]["figures"]}
    assert figures["median step"] == 10.0
    assert figures["computing"] == pytest.approx((0.5 + 0.85) / 2)
    assert figures["hidden communication"] == 0.0
    assert sections["Steps"]["sentences"][0]["nodes"] == [2, 3, 4, 6]
    advice = [sentence["text"] for sentence in sections["What to change"]["sentences"]]
    assert advice == [str(one) for one in view.analysis.advice]
    assert advice == [one["text"] for one in json.loads(view.json)["advice"]]


def test_every_part_has_a_name_and_a_colour():
    parts = set(analyse(straggling()).analysis.devices[0].parts)
    assert parts == set(PARTS) <= set(LOOKS)


@pytest.mark.parametrize("steps", [1, 3, 450])
def test_nothing_overlaps_in_the_picture(steps):
    svg = analyse(straggling(steps)).svg
    ElementTree.fromstring(svg)
    assert not list(overlapping(boxes(svg, "rect")))
    assert not list(overlapping(boxes(svg, "text")))
    assert ("Longest of every 3 steps" in svg) == (steps == 450)


def test_replicas_that_share_too_few_processors_are_told():
    made = trace(
        [
            task("forward_backward_dev0-0", 0, 0, 4),
            task("forward_backward_dev1-1", 1, 0, 4, thread=1),
            event("all_reduce-2", "task", None, "all_reduce-2", 4, 5),
        ],
        two_replicas(),
        num_threads=8,
        cpus=1,
        places=["CPUPlace", "CPUPlace"],
    )
    assert any(
        str(text).startswith("during 80% of the step more tasks run than there are processors (1)")
        for text in analyse(made).analysis.advice
    )


@pytest.mark.parametrize(
    ("gap", "why"), [(2e-5, "calls of run take it"), (1e-3, "other programs run")]
)
def test_short_gaps_between_steps_are_calls_of_run(gap, why):
    starts = [step * (gap + 1e-5) for step in range(6)]
    made = trace(
        [event("relu", "op", 0, "a", at, at + 1e-5, step=step) for step, at in enumerate(starts)]
    )
    found = analyse(made)
    assert re.match(rf"\d+% of the whole time passes between the steps: {why}", found.notes[0])
    short = any("larger batches need fewer calls" in str(each) for each in found.analysis.advice)
    assert short == (gap < 1e-4)
