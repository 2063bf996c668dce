"""Packed data of large pages can be restored, and are short."""

import json
from itertools import accumulate

from dpexec.viz.pages.packing import packed
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

LONG = 64  # viz/web/src/packing.ts has the same


def unpacked(value):
    """Do what viz/web/src/packing.ts does."""
    if isinstance(value, list):
        return [unpacked(one) for one in value] if len(value) < LONG else value
    if not isinstance(value, dict):
        return value
    match value.get("@"):
        case None:
            return {key: unpacked(one) for key, one in value.items()}
        case "same":
            return {key: unpacked(one) for key, one in value["value"].items()}
        case "steps":
            sums = accumulate(one for one in value["of"] if one is not None)
            return [None if one is None else next(sums) for one in value["of"]]
        case "words":
            return [value["words"][at] for at in unpacked(value["of"])]
        case "lists":
            return _lists(unpacked(value["lengths"]), iter(value["of"]))
        case "records":
            return _records(value)


def _lists(lengths, steps):
    made, head = [], 0
    for length in lengths:
        one = list(accumulate((next(steps) for _ in range(length)), initial=head))[1:]
        head = one[0] if one else head
        made.append(one)
    return made


def _records(value):
    made = [{} for _ in range(value["count"])]
    for key, column in value["columns"].items():
        for record, one in zip(made, unpacked(column), strict=True):
            record[key] = one
    for key, (places, column) in value["partial"].items():
        for place, one in zip(unpacked(places), unpacked(column), strict=True):
            made[place][key] = one
    return made


def long(elements):
    """Lists that are short, and lists that are packed."""
    return st.lists(elements, max_size=3) | st.lists(elements, min_size=LONG, max_size=LONG + 3)


WHOLE = st.integers(-3, 10**12)
PLAIN = st.none() | st.booleans() | WHOLE | st.floats(-1e9, 1e9) | st.sampled_from(["a", "b", "@"])
KEYS = st.sampled_from(["a", "b", "c", "@"])
COLUMNS = (
    long(WHOLE) | long(st.none() | WHOLE) | long(st.sampled_from(["a", "b"])) | long(PLAIN)
    | long(st.lists(st.integers(0, 9), max_size=3))
)  # fmt: skip
VALUES = st.recursive(
    PLAIN | COLUMNS,
    lambda inner: (
        st.dictionaries(KEYS, inner, max_size=3) | long(st.dictionaries(KEYS, PLAIN, max_size=3))
    ),
    max_leaves=4,
)


@settings(phases=[Phase.explicit, Phase.generate])  # shrinking such lists takes minutes
@given(VALUES)
def test_what_is_packed_comes_back(value):
    text = json.dumps(packed(value))
    assert unpacked(json.loads(text)) == value


def test_records_with_growing_numbers_become_short():
    names = ["forward", "backward"]
    rows = [{"id": k, "role": names[k % 2], "inputs": [k, k + 1]} for k in range(1000)]
    rows[7]["body"] = [{"name": "mul"}]
    short = packed(rows)
    assert len(json.dumps(short)) < len(json.dumps(rows)) / 3
    assert unpacked(json.loads(json.dumps(short))) == rows


def test_numbers_without_order_stay():
    numbers = [3**k % 1009 for k in range(200)]
    assert packed(numbers) == numbers
