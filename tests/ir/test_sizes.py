"""Sizes with an open number of rows behave as the numbers they stand for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexec.ir.sizes import Quotient, Rows, Size, at, at_most

COUNTS = st.integers(1, 64)
SLOPES = st.integers(-5, 5)
OFFSETS = st.integers(-40, 40)


@given(COUNTS, SLOPES, OFFSETS, SLOPES, OFFSETS, st.integers(-6, 6))
def test_sums_and_products_are_those_of_the_numbers(count, a, b, c, d, factor):
    x, y = a * count + b, c * count + d
    rows = Rows(3, 64)
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
    size = Size(Rows(3, 64), a, b)
    if a % divisor:
        with pytest.raises(TypeError):
            size // divisor
        with pytest.raises(TypeError):
            size % divisor
    else:
        assert at(size // divisor, count) == (a * count + b) // divisor
        assert at(size % divisor, count) == (a * count + b) % divisor


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
    rows = Rows(example, 64)
    answers = [
        COMPARISONS[kind](Size(rows, a, b) if a else b, Size(rows, c, d) if c else d)
        for kind, a, b, c, d in asked
    ]
    assert example in rows
    for count in range(1, 65):
        if count in rows:
            assert answers == [
                COMPARISONS[kind](a * count + b, c * count + d) for kind, a, b, c, d in asked
            ]


def test_an_answer_keeps_as_many_rows_as_it_can():
    rows = Rows(20, 64)
    assert Size(rows) != 1
    assert (rows.least, rows.most) == (2, 64)
    assert not 3 * Size(rows) > 120
    assert (rows.least, rows.most) == (2, 40)
    assert Size(rows) == 20  # a coincidence
    assert (rows.least, rows.most) == (20, 20)


def test_quotients_are_those_of_the_numbers():
    size = Size(Rows(10, 64), 3, 1)
    assert at(1.0 / size, 7) == 1.0 / 22
    assert at(size / 7, 7) == 22 / 7
    assert isinstance(size / 7, Quotient)


def test_the_largest_is_that_of_the_capacity():
    rows = Rows.about(40, 12)
    assert rows.most == 64
    assert Rows.about(40, 44).most == 128
    assert Size(rows) < 50
    assert at_most(3 * Size(rows)) == 192
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
    with pytest.raises(TypeError):
        needs_a_number(Size(Rows(10, 64)))
