"""Traces in Chrome's format: tracks, arrows, counters, valid rows."""

import json
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexec.engine.trace import (
    Allocation,
    Event,
    Trace,
    TraceFormatError,
    from_chrome,
    to_chrome,
)
from tests.engine.run.nets import batches, classifier, train

NEEDED = {
    "X": {"name", "cat", "ts", "dur", "args"},
    "M": {"name", "args"},
    "C": {"name", "ts", "args"},
    "s": {"name", "cat", "id", "ts"},
    "f": {"name", "cat", "id", "ts", "bp"},
    "i": {"name", "cat", "s", "ts"},
    "b": {"name", "cat", "id", "ts"},
    "e": {"name", "cat", "id", "ts"},
}
"""The fields that rows of a phase need, by the format's description; all have pid and tid."""


def checked(trace: Trace) -> list[dict]:
    """The rows, after a look at each of them and at how slices of a track lie to each other."""
    rows = json.loads(json.dumps(to_chrome(trace)))["traceEvents"]
    for row in rows:
        assert NEEDED[row["ph"]] <= row.keys()
        assert isinstance(row["pid"], int) and isinstance(row["tid"], int)
        assert row.get("ts", 0) >= 0 and row.get("dur", 0) >= 0
    tracks = defaultdict(list)
    for row in rows:
        if row["ph"] == "X":
            tracks[row["pid"], row["tid"]].append((row["ts"], -row["dur"], row))
    for found in tracks.values():
        ends: list[float] = []
        for start, length, row in sorted(found, key=lambda item: item[:2]):
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or start - length <= ends[-1] + 1e-9, row
            ends.append(round(start - length, 3))
    flows = defaultdict(list)
    for row in rows:
        if row["ph"] in "sf":
            inside = [
                begin <= row["ts"] <= begin - length
                for begin, length, _ in tracks[row["pid"], row["tid"]]
            ]
            assert any(inside), row
            flows[row["id"]].append(row["ph"])
    assert all(sorted(phases) == ["f", "s"] for phases in flows.values())
    return rows


def names(rows: list[dict], kind: str) -> list[str]:
    return [row["args"]["name"] for row in rows if row["name"] == kind]


def hand_made() -> Trace:
    tasks = [
        {"key": "fwd_dev0-0", "device": 0, "nodes": [0], "after": []},
        {"key": "fwd_dev1-1", "device": 1, "nodes": [1], "after": []},
        {
            "key": "all_reduce-2",
            "device": None,
            "nodes": [2],
            "after": ["fwd_dev0-0", "fwd_dev1-1"],
        },
    ]
    return Trace(
        (
            Event("Feed", "feed", None, "Feed", 9.5, 10.0),
            Event("fwd_dev0", "task", 0, "fwd_dev0-0", 10.0, 11.0),
            Event("relu", "op", 0, "fwd_dev0-0", 10.1, 10.4, 0, {"out": [2, 3]}, 0),
            Event("fwd_dev1", "task", 1, "fwd_dev1-1", 10.0, 11.5, 1),
            Event("all_reduce", "task", None, "all_reduce-2", 11.5, 11.8, 0),
            Event(
                "all_reduce", "collective", None, "all_reduce-2", 11.5, 11.8, 0, {"bytes": 40}, 2
            ),
        ),
        {"places": ["CPUPlace", "CPUPlace"]},
        {"tasks": tasks},
        (
            Allocation(10.0, 0, "w", 100, "parameter"),
            Allocation(10.1, 0, "x", 24, "temporary"),
            Allocation(10.4, 0, "x", -24, "temporary"),
        ),
    )


def test_a_process_per_device_and_a_track_per_thread():
    rows = checked(hand_made())
    assert names(rows, "process_name") == [
        "feed and fetch",
        "device 0 (CPUPlace)",
        "device 1 (CPUPlace)",
        "collectives",
    ]
    assert names(rows, "thread_name") == ["thread 0", "thread 0", "thread 1", "thread 0"]
    slices = {(r["name"], r["cat"]): r for r in rows if r["ph"] == "X"}
    relu, forward = slices["relu", "op"], slices["fwd_dev0", "task"]
    assert (relu["pid"], relu["tid"]) == (forward["pid"], forward["tid"])
    assert (relu["ts"], relu["dur"]) == (pytest.approx(0.6e6), pytest.approx(0.3e6))
    assert relu["args"] == {"out": [2, 3], "key": "fwd_dev0-0", "step": 0, "node": 0, "device": 0}


def test_arrows_go_to_the_tasks_that_wait():
    rows = checked(hand_made())
    ends = {row["id"]: row for row in rows if row["ph"] == "f"}
    begins = [row for row in rows if row["ph"] == "s"]
    assert [row["pid"] for row in begins] == [1, 2]
    assert {ends[row["id"]]["pid"] for row in begins} == {3}


def test_counters_replay_memory_and_bytes():
    rows = checked(hand_made())
    memory = [row for row in rows if row["ph"] == "C" and row["name"] == "memory"]
    assert [row["args"] for row in memory] == [
        {"parameter": 100},
        {"parameter": 100, "temporary": 24},
        {"parameter": 100, "temporary": 0},
    ]
    assert [row["args"] for row in rows if row["name"] == "bytes moved"] == [{"bytes": 40}]


def test_tasks_of_one_thread_that_overlap_get_tracks_of_their_own():
    trace = Trace(
        (
            Event("a", "task", 0, "a", 0.0, 2.0),
            Event("b", "task", 0, "b", 1.0, 1.5),  # inside a's time, yet no part of it
            Event("c", "task", 0, "c", 2.0, 3.0),
        )
    )
    rows = checked(trace)
    assert names(rows, "thread_name") == ["thread 0", "thread 0 (2)"]


def test_events_are_not_searched_once_for_each_of_them(monkeypatch):
    searches = []
    devices = Trace.devices.fget
    monkeypatch.setattr(
        Trace, "devices", property(lambda self: searches.append(self) or devices(self))
    )
    counts = []
    for size in (5, 50):
        events = [Event("sum", "collective", None, f"{n}", n, n + 0.5) for n in range(size)]
        to_chrome(Trace(tuple(events)))
        counts.append(len(searches))
        searches.clear()
    assert counts[0] == counts[1]


def test_nothing_ran():
    assert checked(Trace()) == []


@pytest.mark.parametrize("options", [{}, {"scheduler": "sync"}, {"native_kernels": False}])
def test_recorded_steps_are_legal(options):
    run = train(classifier(), batches(3), 2, trace=True, **options)
    trace = run.compiled.trace
    rows = checked(trace)
    waits = sum(len(task["after"]) for task in trace.graph["tasks"])
    assert sum(row["ph"] == "s" for row in rows) == waits * len(trace.steps)
    assert sum(row["ph"] == "X" for row in rows) == len(trace)
    steps = [[row for row in rows if row["ph"] == phase] for phase in "ibe"]
    assert [len(found) for found in steps] == [len(trace.steps)] * 3
    for marker, begin, end in zip(*steps, strict=True):
        inside = [r for r in rows if r["ph"] == "X" and r["args"]["step"] == begin["id"]]
        assert marker["name"] == f"step {begin['id']}" and marker["s"] == "g"
        assert marker["ts"] == begin["ts"] == min(row["ts"] for row in inside)
        assert end["ts"] == pytest.approx(max(row["ts"] + row["dur"] for row in inside))


def read_back(trace: Trace) -> Trace:
    return from_chrome(json.loads(json.dumps(to_chrome(trace))))


def test_a_file_holds_every_event_once_and_gives_it_back():
    trace = train(classifier(), batches(3), 2, trace=True).compiled.trace
    events = to_chrome(trace)["otherData"]["events"]
    assert set(events) <= {"count", "origin", "threads", "order"}
    assert read_back(trace) == trace


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["task", "op", "feed"]),
            st.floats(0, 1e6),
            st.floats(0, 3),
            st.sampled_from([None, 0, 1]),
            st.integers(0, 2),
            st.dictionaries(st.sampled_from(["key", "args", "bytes", "node"]), st.integers()),
        )
    )
)
def test_any_events_come_back_exactly(rows):
    events = tuple(
        Event("x", kind, device, "k", start, start + length, thread, args)
        for kind, start, length, device, thread, args in rows
    )
    assert read_back(Trace(events)) == Trace(events)


def test_a_file_with_events_in_columns_is_read():
    trace = hand_made()
    data = {"traceEvents": [], "otherData": {**trace.to_json(), "version": 2}}
    assert from_chrome(json.loads(json.dumps(data))) == trace


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda data: data["traceEvents"].remove(rows_of(data)[0]), "5 of 6 events"),
        (lambda data: data.pop("traceEvents"), "events lack"),
        (lambda data: data["otherData"]["events"]["threads"].clear(), "events lack"),
        (lambda data: rows_of(data)[0].update(name=3), "holds int where text"),
        (lambda data: rows_of(data)[0]["args"].pop("key"), "events lack 'key'"),
        (lambda data: rows_of(data)[0].update(dur=-5.0), "before it starts"),
    ],
)
def test_a_damaged_file_says_what_it_lacks(break_it, message):
    data = json.loads(json.dumps(to_chrome(hand_made())))
    break_it(data)
    with pytest.raises(TraceFormatError, match=message):
        from_chrome(data)


def rows_of(data: dict) -> list[dict]:
    return [row for row in data["traceEvents"] if row["ph"] == "X"]
