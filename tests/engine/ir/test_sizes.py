"""Arithmetic of sizes with an open number of rows, compared with that of numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexec.engine.ir.sizes import NeedsNumber, Quotient, Rows, Size, at, at_most

NUMBERS = st.integers(1, 12)
COUNTS = st.tuples(NUMBERS, NUMBERS)
SLOPES = st.tuples(st.integers(-5, 5), st.integers(-5, 5))
OFFSETS = st.integers(-40, 40)
EXAMPLE, MOST = (3, 7), (12, 12)


def value(counts, slopes, offset):
    return slopes[0] * counts[0] + slopes[1] * counts[1] + offset


@given(COUNTS, SLOPES, OFFSETS, SLOPES, OFFSETS, st.integers(-6, 6))
def test_sums_and_products_are_those_of_the_numbers(count, a, b, c, d, factor):
    x, y = value(count, a, b), value(count, c, d)
    rows = Rows(EXAMPLE, MOST)
    one, other = Size(rows, a, b), Size(rows, c, d)
    for found, expected in [
        (one + other, x + y),
        (one - other, x - y),
        (factor - one, factor - x),
        (factor * one + 1, factor * x + 1),
        (-one, -x),
        (math.prod([factor, one, 2]), factor * x * 2),
        (sum([one, other, 5]), x + y + 5),
    ]:
        assert at(found, count) == expected


@given(COUNTS, SLOPES, OFFSETS, st.integers(-6, 6).filter(bool))
def test_division_is_exact_or_refused(count, a, b, divisor):
    size = Size(Rows(EXAMPLE, MOST), a, b)
    if a[0] % divisor or a[1] % divisor:
        with pytest.raises(NeedsNumber):
            size // divisor
        with pytest.raises(NeedsNumber):
            size % divisor
    else:
        assert at(size // divisor, count) == value(count, a, b) // divisor
        assert at(size % divisor, count) == value(count, a, b) % divisor


@given(COUNTS, SLOPES.filter(any), st.integers(0, 40), st.integers(1, 5))
def test_a_size_is_divided_by_those_it_is_a_multiple_of(count, a, b, times):
    size = Size(Rows((12, 12), MOST), tuple(map(abs, a)), b)
    assert at(times * size // size, count) == times
    with pytest.raises(NeedsNumber):
        (times * size + 1) // size


COMPARISONS = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "min": lambda x, y: min(x, y) == x,
    "bool": lambda x, y: bool(x),
}


@given(
    COUNTS,
    st.lists(
        st.tuples(st.sampled_from(sorted(COMPARISONS)), SLOPES, OFFSETS, SLOPES, OFFSETS),
        max_size=4,
    ),
)
def test_what_was_said_of_an_example_holds_for_all_that_are_left(example, asked):
    rows = Rows(example, MOST)
    answers = [
        COMPARISONS[kind](Size(rows, a, b) if any(a) else b, Size(rows, c, d) if any(c) else d)
        for kind, a, b, c, d in asked
    ]
    assert example in rows
    for count in itertools.product(range(1, 13), repeat=2):
        if count in rows:
            assert answers == [
                COMPARISONS[kind](value(count, a, b), value(count, c, d))
                for kind, a, b, c, d in asked
            ]


def test_an_answer_keeps_as_many_rows_as_it_can():
    rows = Rows((20, 20), (64, 64))
    size, other = rows.size(0), rows.size(1)
    assert size != 1
    assert (rows.least, rows.most) == ([2, 0], [64, 64])
    assert not 3 * size > 120
    assert (rows.least, rows.most) == ([2, 0], [40, 64])
    assert 2 * other == size + 20
    assert [(30, 25) in rows, (30, 26) in rows] == [True, False]
    assert size == 20  # a coincidence
    assert (rows.least, rows.most) == ([20, 0], [20, 64])


def test_quotients_are_those_of_the_numbers():
    size = Size(Rows((10,), (64,)), (3,), 1)
    assert at(1.0 / size, (7,)) == 1.0 / 22
    assert at(size / 7, (7,)) == 22 / 7
    assert isinstance(size / 7, Quotient)


def test_the_largest_is_that_of_the_capacity():
    rows = Rows.about((40, 40), (12, 44))
    assert rows.most == [64, 128]
    assert rows.size(0) < 50
    assert at_most(3 * rows.size(0) + rows.size(1)) == 320
    assert at_most(7) == 7


@pytest.mark.parametrize(
    "needs_a_number",
    [
        int,
        float,
        range,
        np.zeros,
        hash,
        lambda size: [0] * size,
        lambda size: size * size,
        lambda size: size * 1.5,
        lambda size: np.array([size], np.int64),
        lambda size: {(size, 2)},
        lambda size: "x"[:size],
    ],
)
def test_what_needs_a_number_refuses(needs_a_number):
    with pytest.raises(NeedsNumber):
        needs_a_number(Rows((10,), (64,)).size(0))
