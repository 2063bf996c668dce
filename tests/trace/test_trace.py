"""Events, the recorder and the files they are written to."""

import json
import threading

import pytest

from dpexec.trace import (
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
            Event("relu", "op", 0, "fwd_dev0", 10.1, 10.4, thread=0, args={"out": [2, 3]}),
            Event("fwd", "task", 1, "fwd_dev1", 10.0, 11.5, thread=1),
            Event("all_reduce", "collective", None, "all_reduce-0", 11.5, 11.75, thread=0),
        ),
        {"mode": "AllReduce"},
    )


def slices(chrome: dict) -> list[dict]:
    return [row for row in chrome["traceEvents"] if row["ph"] == "X"]


def lane_names(chrome: dict) -> dict[int, str]:
    rows = chrome["traceEvents"]
    return {r["tid"]: r["args"]["name"] for r in rows if r["name"] == "thread_name"}


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
        ({"version": 2}, "this dpexec reads version 1"),
        ({"events": None}, "needs a list of events"),
        ({"events": [{"name": "relu"}]}, "lacks the field 'kind'"),
    ],
)
def test_trace_from_json_names_what_is_wrong(change, message):
    with pytest.raises(TraceFormatError, match=message):
        Trace.from_json({**two_devices().to_json(), **change})


def test_recorder_orders_events_and_numbers_threads():
    recorder = Recorder()
    recorder.add("late", "op", 0, "b", 2.0, 3.0)
    worker = threading.Thread(target=recorder.add, args=("early", "task", 1, "a", 1.0, 2.0))
    worker.start()
    worker.join()
    trace = recorder.trace(step=3)
    assert [(e.name, e.thread) for e in trace] == [("early", 0), ("late", 1)]
    assert trace.meta == {"step": 3}
    recorder.clear()
    assert len(recorder) == 0


def test_recorder_loses_nothing_under_threads():
    recorder = Recorder()

    def work(device: int) -> None:
        for k in range(2000):
            recorder.add("relu", "op", device, "k", float(k), float(k))

    threads = [threading.Thread(target=work, args=(d,)) for d in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recorder.trace()) == 8000


def test_chrome_has_a_lane_per_device_and_one_for_collectives():
    chrome = to_chrome(two_devices())
    assert list(lane_names(chrome).values()) == ["device 0", "device 1", "collectives"]
    by_name = {(s["name"], s["args"]["device"]): s for s in slices(chrome)}
    assert by_name["relu", 0]["tid"] == by_name["fwd", 0]["tid"]
    assert by_name["relu", 0]["ts"] == pytest.approx(0.1e6)
    assert by_name["all_reduce", None]["dur"] == pytest.approx(0.25e6)


def test_chrome_nests_what_a_task_did():
    trace = Trace(
        (
            Event("all_reduce", "task", None, "k", 0.0, 2.0),
            Event("fused_all_reduce", "collective", None, "k", 0.0, 1.0),
            Event("fused_all_reduce", "collective", None, "k", 1.0, 2.0),
        )
    )
    assert list(lane_names(to_chrome(trace)).values()) == ["collectives"]


def test_chrome_splits_a_device_whose_tasks_overlap():
    trace = Trace(
        (
            Event("a", "task", 0, "a", 0.0, 2.0),
            Event("b", "task", 0, "b", 1.0, 1.5),  # inside a's time, yet no part of it
            Event("c", "task", 0, "c", 2.0, 3.0),
        )
    )
    chrome = to_chrome(trace)
    lanes = {s["name"]: lane_names(chrome)[s["tid"]] for s in slices(chrome)}
    assert lanes == {"a": "device 0", "b": "device 0 (2)", "c": "device 0"}


def test_chrome_round_trip():
    trace = two_devices()
    back = from_chrome(to_chrome(trace))
    assert back.meta == trace.meta
    key = lambda e: (e.device is None, e.device, e.start)  # noqa: E731
    for ours, theirs in zip(sorted(trace, key=key), sorted(back, key=key), strict=True):
        assert (ours.name, ours.kind, ours.key, ours.args) == (
            theirs.name,
            theirs.kind,
            theirs.key,
            theirs.args,
        )
        assert theirs.start == pytest.approx(ours.start, abs=1e-9)
        assert theirs.stop == pytest.approx(ours.stop, abs=1e-9)


def test_files_of_both_formats_load(tmp_path):
    trace = two_devices()
    assert load(save(trace, tmp_path / "own.json", chrome=False)) == trace
    assert len(load(save(trace, tmp_path / "chrome.json"))) == len(trace)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "is not JSON"),
        ("[]", "holds no trace"),
        ('{"traceEvents": []}', "not one that this version of dpexec wrote"),
    ],
)
def test_load_names_what_is_wrong(tmp_path, text, message):
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(TraceFormatError, match=message):
        load(tmp_path / "trace.json")
