"""Memory equals a replay of the allocations, byte by byte."""

import xml.etree.ElementTree as ElementTree

import pytest
from dpexec.viz.measured.memory_use import KINDS, memory_of, thinned
from dpexec.viz.memory import memory
from hypothesis import given
from hypothesis import strategies as st

from dpexec.engine.trace import Trace
from dpexec.engine.trace.events import Allocation
from tests.viz.traces import straggling, trace, warming_up


@st.composite
def allocations(draw):
    """Values that come and go, on two devices, several at the same moment."""
    rows = []
    for number in range(draw(st.integers(1, 30))):
        time = float(draw(st.integers(0, 12)))
        kind = draw(st.sampled_from([*KINDS, "arena"]))
        row = (draw(st.integers(0, 1)), f"v{number % 7}", draw(st.integers(1, 1000)), kind)
        rows.append(Allocation(time, *row))
        if draw(st.booleans()):
            later = time + draw(st.integers(0, 5))
            rows.append(Allocation(later, row[0], row[1], -row[2], kind))
    return tuple(sorted(rows, key=lambda row: row.time))


def with_memory(rows):
    return Trace(straggling().events, {}, None, tuple(rows))


@given(allocations())
def test_memory_equals_a_replay_to_the_byte(rows):
    for used in memory_of(with_memory(rows)):
        mine = [row for row in rows if row.device == used.device]
        sums = {}
        for time in sorted({row.time for row in mine}):
            until = [row for row in mine if row.time <= time]
            sums[time] = {
                kind: sum(row.bytes for row in until if row.kind == kind) for kind in KINDS
            }
            at = list(used.times).index(time)
            assert {kind: used.kinds[kind][at] for kind in KINDS} == sums[time]
            reserved = sum(row.bytes for row in until if row.kind == "arena")
            assert used.work_area[at] == reserved
        highest = max(sum(kinds.values()) for kinds in sums.values())
        assert used.peak.bytes == highest == used.alive.max()
        assert sum(sums[used.peak.time].values()) == highest
        assert sum(part.bytes for part in used.peak.parts) == highest
        for part in used.peak.parts:
            assert part.bytes == sum(
                row.bytes
                for row in mine
                if row.time <= used.peak.time and (row.name, row.kind) == (part.name, part.kind)
            )


ROWS = [
    Allocation(0.0, 0, "fc_0.w_0", 4 << 20, "parameter"),
    Allocation(0.0, 0, "machine code", 8 << 20, "arena"),
    Allocation(2.0, 0, "fc_0.tmp_0", 2 << 20, "temporary"),
    Allocation(3.0, 0, "fc_0.w_0@GRAD", 4 << 20, "gradient"),
    Allocation(4.0, 0, "fc_0.tmp_0", -(2 << 20), "temporary"),
    Allocation(0.0, 1, "fc_0.w_0", 4 << 20, "parameter"),
]


def test_the_peak_is_attributed_to_variables():
    view = memory(with_memory(ROWS))
    one, other = view.devices
    assert (one.peak.time, one.peak.bytes) == (3.0, 10 << 20)
    assert [part.name for part in one.peak.parts] == ["fc_0.w_0", "fc_0.w_0@GRAD", "fc_0.tmp_0"]
    assert other.peak.bytes == 4 << 20
    assert one.to_json()["work_area"] == 8 << 20
    assert view.title == "Memory · peak 10.0 MiB on device 0"
    said = "device 0: peak 10.0 MiB: 4.00 MiB parameter, 4.00 MiB gradient, 2.00 MiB temporary"
    text = " ".join(str(view).split())  # lines are as long as those of the terminal
    assert f"{said} 4.00 MiB parameter fc_0.w_0" in text
    assert view.payload()["notes"][0] == said
    data = view.payload()["devices"][0]
    assert data["kinds"]["temporary"] == [0, 2 << 20, 2 << 20, 0]
    assert data["work_area"] == [8 << 20] * 4
    assert data["peak"]["time"] == 3_000_000_000


def test_the_picture_names_areas_peak_and_variables():
    svg = memory(with_memory(ROWS)).svg
    ElementTree.fromstring(svg)
    for text in ("peak 10.0 MiB", "4.00 MiB, 40%, parameter", ">gradient<", "work area"):
        assert text in svg


def test_long_courses_keep_their_peak():
    rows = [Allocation(0.0, 0, "w", 10, "parameter")]
    for number in range(6_000):
        rows.append(Allocation(1 + number, 0, "t", 5 + (number == 2_345), "temporary"))
        rows.append(Allocation(1.5 + number, 0, "t", -5 - (number == 2_345), "temporary"))
    data = memory(with_memory(rows)).payload()
    device = data["devices"][0]
    assert len(device["times"]) == 4000 and "4000 points" in data["notes"][1]
    assert max(device["kinds"]["temporary"]) == 6
    assert device["peak"]["bytes"] == 16
    assert len(thinned(memory_of(with_memory(rows))[0].alive, 10)) == 10


def test_the_steps_that_count_are_seen_at_first():
    rows = [
        Allocation(-50.0, 0, "w", 8, "parameter"),
        Allocation(12.0, 0, "t", 4, "temporary"),
        Allocation(13.0, 0, "t", -4, "temporary"),
    ]
    warm = Trace(warming_up().events, {}, None, tuple(rows))
    assert memory(warm).payload()["view"] == (60_000_000_000, 90_000_000_000)


def test_a_trace_without_memory_says_so():
    with pytest.raises(ValueError, match="holds no memory"):
        memory(trace(straggling().events))


def test_parts_of_the_peak_say_which_operators_they_are_for():
    made = straggling()
    name = made.graph["vars"][made.graph["nodes"][0]["outputs"][0]]["name"]
    readers = [
        node["name"]
        for node in made.graph["nodes"]
        if any(made.graph["vars"][v]["name"] == name for v in node["inputs"])
        and node["device"] == 0
    ]
    rows = (Allocation(1.0, 0, name, 4096, "temporary"), Allocation(1.0, 0, "w", 64, "parameter"))
    view = memory(Trace(made.events, {}, made.graph, rows))
    assert f"made by {made.graph['nodes'][0]['name']}, train.py:3" in str(view)
    assert f"read last by {readers[-1]}, train.py:3" in str(view)
    value, parameter = view.payload()["devices"][0]["peak"]["parts"]
    assert value[:3] == (name, "temporary", 4096) and value[5][0] == 0
    assert parameter[3:5] == ("", "sgd, train.py:3")  # it was there before the step


def test_equal_peaks_are_listed_once():
    rows = [Allocation(1.0, device, "w", 64, "parameter") for device in (0, 1)]
    assert "as on device 0" in str(memory(with_memory(rows)))
