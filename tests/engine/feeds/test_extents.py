"""Which sizes of a batch grow with its rows, and which are constant."""

from __future__ import annotations

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.feeds.extents import find_extents


def sequences(name, *lengths):
    lod = Lod.of_lengths(lengths)
    return {name: np.zeros((lod.rows, 2)), f"{name}@LOD": lod}


def test_arrays_with_a_row_for_each_sample_grow_with_them():
    found = find_extents([{"x": np.zeros((4, 3)), "y": np.zeros((4,)), "z": np.zeros((3, 4))}], [4])
    assert found.counts == [(4,)]
    assert found.axes == {"x": (0,), "y": (0,)}


def test_the_same_sequences_have_the_same_sizes_and_others_have_other_ones():
    values = {**sequences("x", [3, 1]), **sequences("y", [2, 2]), **sequences("z", [2, 2])}
    found = find_extents([values], [2])
    assert found.counts == [(2, 4, 4)]
    assert [found.axes[name] for name in "xyz"] == [(1,), (2,), (2,)]
    assert all(found.axes[f"{name}@LOD"] == (0,) for name in "xyz")


def test_all_levels_of_sequences_count():
    found = find_extents([sequences("x", [2, 1], [3, 1, 5])], [2])
    assert found.counts == [(2, 3, 9)]
    assert found.axes == {"x": (2,), "x@LOD": (0, 1)}


def test_sizes_are_the_same_if_they_are_on_all_devices():
    values = [{**sequences("x", [3, 1]), **sequences("y", last)} for last in ([3, 1], [2, 2])]
    found = find_extents([*values, {}], [2, 2, 0])
    assert found.counts == [(2, 4, 4), (2, 4, 4), (0, 0, 0)]
    assert found.axes["x"] != found.axes["y"]


def test_rows_that_are_as_many_as_words_grow_with_them():
    found = find_extents([{**sequences("x", [3, 1]), "weight": np.zeros((4, 1))}], [2])
    assert found.axes["weight"] == found.axes["x"]
