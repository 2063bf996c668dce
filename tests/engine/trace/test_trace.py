"""Trace events, the recorder, and trace files."""

import json
import threading

import pytest

from dpexec.engine.trace import (
    Allocation,
    Event,
    Recorder,
    Trace,
    TraceFormatError,
    from_chrome,
    load,
    save,
    to_chrome,
)


def two_devices() -> Trace:
    return Trace(
        (
            Event("fwd", "task", 0, "fwd_dev0", 10.0, 11.0, thread=0),
            Event("relu", "op", 0, "fwd_dev0", 10.1, 10.4, 0, {"out": [2, 3]}, node=4, step=1),
            Event("fwd", "task", 1, "fwd_dev1", 10.0, 11.5, thread=1),
            Event("all_reduce", "collective", None, "all_reduce-0", 11.5, 11.75, thread=0),
        ),
        {"mode": "AllReduce"},
        {"format": "dpexec.graph", "nodes": []},
        (Allocation(10.1, 0, "x", 24, "temporary"), Allocation(10.4, 0, "x", -24, "temporary")),
    )


def test_event_refuses_what_cannot_be():
    with pytest.raises(ValueError, match="kind must be one of"):
        Event("relu", "kernel", 0, "k", 0.0, 1.0)
    with pytest.raises(ValueError, match="before it starts"):
        Event("relu", "op", 0, "k", 1.0, 0.5)


def test_trace_json_round_trip_is_exact():
    trace = two_devices()
    assert Trace.from_json(json.loads(json.dumps(trace.to_json()))) == trace


def test_trace_facts():
    assert two_devices().devices == (0, 1)
    assert two_devices().span == (10.0, 11.75)
    assert Trace().span == (0.0, 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a dpexec trace"),
        ({"version": 4}, "version 4, but this dpexec reads versions 2 and 3"),
        ({"events": None}, "damaged: events has no field"),
        ({"graph": [1]}, "graph is no object, but list"),
    ],
)
def test_trace_from_json_names_what_is_wrong(change, message):
    with pytest.raises(TraceFormatError, match=message):
        Trace.from_json({**two_devices().to_json(), **change})


class Step:
    """What a step recorded: events with start and stop, each on a thread of its own."""

    binding = None
    count = 1

    def __init__(self, *events: tuple[str, float, float]) -> None:
        self._events = events
        self.size = len(events)
        self.began = [events[0][1]]

    def kept_by(self, recorder: Recorder) -> None:
        recorder.keep(self)

    def record(self, row):
        return self

    def rows(self):
        for name, start, stop in self._events:
            yield name, "op", 0, "k", start, stop, 1000 + int(start), {}, 7

    def allocations(self):
        for name, start, _ in self._events:
            yield Allocation(start, 0, name, 8, "temporary")


def test_recorder_orders_events_and_numbers_threads_and_steps():
    recorder = Recorder()
    Step(("late", 2.0, 3.0), ("early", 1.0, 2.0)).kept_by(recorder)
    Step(("next", 4.0, 5.0)).kept_by(recorder)
    trace = recorder.trace(mode="reduce")
    assert [(e.name, e.thread, e.step) for e in trace] == [
        ("early", 0, 0),
        ("late", 1, 0),
        ("next", 2, 1),
    ]
    assert [item.name for item in trace.memory] == ["early", "late", "next"]
    assert trace.meta == {"mode": "reduce", "steps": 2}
    recorder.clear()
    assert len(recorder) == 0


def test_nodes_need_a_graph():
    recorder = Recorder()
    Step(("relu", 1.0, 2.0)).kept_by(recorder)
    assert recorder.trace().events[0].node is None
    assert recorder.trace({"nodes": []}).events[0].node == 7


def test_recorder_forgets_the_oldest_steps_and_says_so():
    recorder = Recorder(limit=32)
    for number in range(100):
        Step(("a", number, number), ("b", number, number)).kept_by(recorder)
        assert len(recorder) <= 32
    trace = recorder.trace()
    assert trace.steps[-1] == 99 and len(trace.steps) >= 15
    assert trace.meta["steps"] == 100 and trace.meta["dropped_steps"] == trace.steps[0]
    assert f"the first {trace.steps[0]} of 100 steps" in trace.meta["note"]
    Step(*((str(k), k, k) for k in range(20))).kept_by(recorder)
    Step(*((str(k), k, k) for k in range(50))).kept_by(recorder)  # too large by itself
    assert len(recorder.trace()) == 50


def test_recorder_loses_nothing_under_threads():
    recorder = Recorder()

    def work() -> None:
        for k in range(2000):
            Step(("relu", k, k)).kept_by(recorder)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recorder.trace()) == 8000


def test_chrome_round_trip_is_exact():
    trace = two_devices()
    assert from_chrome(json.loads(json.dumps(to_chrome(trace)))) == trace


def test_files_of_both_formats_load(tmp_path):
    trace = two_devices()
    assert load(save(trace, tmp_path / "own.json", chrome=False)) == trace
    assert load(save(trace, tmp_path / "chrome.json")) == trace
    assert load(save(Trace(), tmp_path / "nothing.json")) == Trace()


@pytest.mark.parametrize("chrome", [True, False])
def test_files_are_packed_if_their_name_says_so(tmp_path, chrome):
    events = tuple(Event("relu", "op", 0, "a", k, k + 0.5, node=k % 9) for k in range(2000))
    plain = save(Trace(events), tmp_path / "trace.json", chrome=chrome)
    packed = save(Trace(events), tmp_path / "trace.json.gz", chrome=chrome)
    assert load(packed) == load(plain) == Trace(events)
    assert packed.stat().st_size < plain.stat().st_size / 5
    assert save(Trace(events), tmp_path / "again.gz", chrome=chrome).read_bytes() == (
        packed.read_bytes()
    )
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(TraceFormatError, match="is damaged, or was cut off"):
        load(packed)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("kind", [9, 0, 0, 0], "refers to a text that is not there"),
        ("args", ["x", 0, 0, 0], "refers to a object that is not there"),
        ("start", [1.0], "column start of events has not 4 values"),
        ("start", ["soon", 1.0, 1.0, 1.0], "events holds str where number"),
        ("stop", [0.0, 0.0, 0.0, 0.0], "before it starts"),
        ("device", [True, None, 1, 1], "events holds bool where integer or null"),
    ],
)
def test_damaged_columns_are_refused(column, value, message):
    data = two_devices().to_json()
    data["events"]["columns"][column] = value
    with pytest.raises(TraceFormatError, match=message):
        Trace.from_json(data)


def test_many_events_come_back_from_a_small_file():
    trace = Trace(
        tuple(
            Event(f"op{k % 50}", "op", k % 4, f"fwd_dev{k % 4}", k * 1e-5, k * 1e-5, node=k % 300)
            for k in range(5_000)
        )
    )
    text = json.dumps(trace.to_json())
    assert len(text) < 70 * len(trace)
    assert Trace.from_json(json.loads(text)) == trace


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"not json", "trace.json is not JSON, or was cut off"),
        (b"", "trace.json is empty"),
        (b"\xff\xfe", "trace.json is no trace: it is not text"),
        (b"[]", "trace.json holds no trace, but a JSON list"),
        (b'{"traceEvents": []}', "trace.json: a Chrome trace, but not one that dpexec wrote"),
        (b'{"format": "dpexec.graph"}', "trace.json: not a dpexec trace: its format is 'dpexec.gr"),
    ],
)
def test_load_names_what_is_wrong(tmp_path, text, message):
    (tmp_path / "trace.json").write_bytes(text)
    with pytest.raises(TraceFormatError, match=message):
        load(tmp_path / "trace.json")


def test_it_says_what_it_holds_in_a_line():
    events = [Event("relu", "op", 0, "a", 1.0, 1.5), Event("relu", "op", 1, "b", 1.1, 1.75)]
    assert repr(Trace(tuple(events))) == "<Trace: 2 events in 1 steps on 2 devices, 750.0 ms>"
    assert repr(Trace()) == "<Trace: 0 events in 0 steps on 0 devices, 0.0 ms>"


class Room:
    """Where steps note when they began, one after another."""

    binding, size = None, 1

    def __init__(self, recorder) -> None:
        self.began: list[float] = []
        self.recorder = recorder
        self.steps = None

    @property
    def count(self) -> int:
        return len(self.began)

    def add(self, *times: float) -> None:
        if self.steps is None:
            self.steps = self.recorder.follow(self)
        self.began += times

    def release(self) -> None:
        self.steps.close()
        self.steps = None

    def record(self, row):
        return Step((str(self.began[row]), self.began[row], self.began[row]))


def began(recorder):
    return [event.start for event in recorder.trace()]


def test_followed_steps_are_kept_until_they_are_no_longer():
    recorder = Recorder()
    room = Room(recorder)
    room.began += [1.0]
    room.add()
    assert recorder.trace().steps == ()
    room.add(2.0, 3.0)
    assert began(recorder) == [2.0, 3.0] and len(recorder) == recorder.told == 2
    recorder.clear()
    room.add(4.0)
    assert began(recorder) == [4.0] and recorder.told == 1
    room.release()
    room.began += [5.0]
    room.add(6.0)
    assert began(recorder) == [4.0, 6.0]


def test_steps_of_several_places_are_in_order():
    recorder = Recorder()
    one, other = Room(recorder), Room(recorder)
    one.binding, other.binding = "one", "other"
    one.add(1.0)
    other.add(2.0, 4.0)
    Step(("", 3.0, 3.0)).kept_by(recorder)
    one.add(5.0)
    assert began(recorder) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert recorder.latest is one


def test_places_are_forgotten_with_their_steps_and_followed_again_if_more_come():
    recorder = Recorder(limit=10)
    one, other = Room(recorder), Room(recorder)
    other.add(0.5)
    one.add(*map(float, range(1, 21)))
    Step(("", 21.0, 21.0)).kept_by(recorder)
    assert one.steps is other.steps is None
    one.add(22.0)
    other.add(23.0)
    trace = recorder.trace()
    assert began(recorder) == [21.0, 22.0, 23.0] and len(recorder) == 3
    assert (trace.meta["steps"], trace.meta["dropped_steps"]) == (24, 21)
