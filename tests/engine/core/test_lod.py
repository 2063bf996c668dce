"""Offsets and lengths of sequences: conversion, parts, checks."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.lod import Lod

NESTED = Lod([[0, 2, 3], [0, 3, 4, 9]])


def test_lengths_and_offsets_say_the_same():
    assert Lod.of_lengths([[2, 1], [3, 1, 5]]) == NESTED
    assert NESTED.lengths.tolist() == [3, 1, 5]
    assert (NESTED.shape, NESTED.sequences, NESTED.rows) == ((3, 4), 2, 9)
    assert NESTED.spans() == [(0, 3), (3, 4), (4, 9)]


def test_a_part_has_its_own_offsets_and_knows_its_rows():
    assert NESTED.part(0, 1) == (Lod([[0, 2], [0, 3, 4]]), slice(0, 4))
    assert NESTED.part(1, 1) == (Lod([[0, 1], [0, 5]]), slice(4, 9))


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_parts_make_the_whole_again(cut):
    parts = [NESTED.part(0, cut)[0], NESTED.part(cut, 2 - cut)[0]]
    assert Lod.merged(parts) == NESTED


def test_nothing_is_no_sequences():
    assert not Lod()
    assert Lod([[0, 1]])
    assert Lod() == Lod([])


@pytest.mark.parametrize(
    "levels", [[[1, 2]], [[0, 3, 2]], [[0, 3]], [[]], [[0, 1], [0, 1, 2]], [[0, 2], [0, 2, 3]]]
)
def test_offsets_that_do_not_fit_are_refused(levels):
    with pytest.raises(fluid.core.EnforceNotMet, match="must begin at 0"):
        Lod(levels).check(2)


def test_offsets_that_fit():
    NESTED.check(9)
    Lod().check(4)
    assert np.asarray(NESTED.offsets).dtype == np.int64
