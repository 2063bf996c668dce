"""Bytes that steps moved: known answers for one process, workers and gangs, and where they show."""

import json

import pytest
from dpexec.viz.findings import analyse
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.traffic import traffic
from dpexec.viz.table import COLUMNS, table

from tests.viz.traces import event, straggling, task, trace

KIB = 1024


def moving(*communication, steps=2):
    """A task of a second, then some communication in a task of its own, in each of the steps.

    A piece of communication is its name, its kind and its args.
    """
    events = []
    for step in range(steps):
        events.append(task("forward", 0, 10 * step, 10 * step + 1, step=step))
        key = "all_reduce-2"
        stop = 10 * step + 1 + len(communication)
        events.append(event(key, "task", None, key, 10 * step + 1, stop, step=step))
        for place, (name, kind, args) in enumerate(communication):
            start = 10 * step + 1 + place
            events.append(event(name, kind, None, key, start, start + 1, step=step, **args))
    return trace(events)


def moved(made):
    return traffic(Schedule(made))


def test_collectives_of_one_process_move_what_they_read():
    found = moved(moving(("reduce", "collective", {"bytes": 3 * KIB}), ("sum", "collective", {})))
    assert (found.between, found.shared, found.inside) == (0, 0, 3 * KIB)
    assert found.unknown == 1
    assert str(found) == (
        "A step moved 3.00 KiB, all of it inside one process "
        "(not counted: 1 collective of unknown size)."
    )


def test_between_processes_bytes_count_where_they_arrive():
    own = {"bytes": 9 * KIB, "worker": "a"}
    gang = {**own, "sent": 8 * KIB, "received": 2 * KIB, "shared": KIB}
    found = moved(
        moving(
            ("all_reduce", "collective", gang),
            ("all_reduce", "collective", own),  # its work was done by the one before
            ("w@GRAD", "transfer", {"bytes": 4 * KIB}),
        )
    )
    assert (found.between, found.shared, found.inside, found.unknown) == (6 * KIB, KIB, 0, 0)
    assert str(found) == (
        "A step moved 7.00 KiB, of which 6.00 KiB between processes, "
        "1.00 KiB through memory that processes share."
    )


def test_first_steps_that_were_slower_do_not_count():
    made = moving(("all_reduce", "collective", {"bytes": KIB}), steps=4)
    slow = [event("compile", "op", 0, "forward", -90, 0, bytes=KIB)]
    assert moved(trace([*slow, *made.events])).inside == KIB


@pytest.mark.parametrize("by", ["type", "node", "task", "role"])
def test_tables_add_up_to_what_a_step_moved(by):
    pieces = [("reduce", "collective", {"bytes": n * KIB}) for n in (3, 1)]
    made = moving(*pieces, ("broadcast", "collective", {"bytes": KIB}))
    found = table(made, by=by)
    assert found.moved == moved(made).total == 5 * KIB
    assert found.payload()["totals"][COLUMNS.index("moved")] == 5 * KIB
    rows = {row.name: row.moved for row in found.rows}
    if by == "type":
        assert rows == {"forward": None, "reduce": 4 * KIB, "broadcast": KIB}
        assert "moved/step" in str(found) and "4.00 KiB" in str(found) and "moved" in found.csv
    if by == "task":
        assert rows == {"forward": None, "all_reduce-2": 5 * KIB}


def test_findings_say_it_as_text_page_picture_and_json():
    made = moving(("all_reduce", "collective", {"bytes": 3 * KIB}))
    view, sentence = analyse(made), "A step moved 3.00 KiB, all of it inside one process."
    steps = next(part for part in view.payload()["sections"] if part["heading"] == "Steps")
    assert {"label": "moved a step", "value": 3 * KIB, "unit": "bytes"} in steps["figures"]
    assert sentence in [said["text"] for said in steps["sentences"]]
    assert sentence in str(view) and sentence in view.svg
    assert json.loads(view.json)["traffic"]["total"] == 3 * KIB


def test_nothing_is_said_where_nothing_is_known():
    view = analyse(straggling())  # its all-reduce does not say how large it is
    assert "moved" not in str(view) and "moved" not in view.svg
    assert table(straggling()).moved is None
