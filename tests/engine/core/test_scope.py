"""Scopes and their variables."""

import numpy as np
import pytest

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.scope import Scope, global_scope, scope_guard
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.core.variable_values import bring_together


def test_find_var_searches_parents_and_var_does_not():
    parent = Scope()
    child = parent.new_scope()
    parent.var("a").get_tensor().set(np.ones(2, "float32"))
    assert child.find_var("a") is parent.find_var("a")
    assert child.var("a") is not parent.find_var("a")
    assert child.find_var("b") is None


def test_scope_guard_restores_on_error():
    outer = global_scope()
    guard = scope_guard(Scope())
    guard.__enter__()
    assert global_scope() is not outer
    assert not guard.__exit__(KeyError, KeyError(), None)
    assert global_scope() is outer


def test_tensor_set_and_read_are_copies():
    source = np.arange(6, dtype="float32").reshape(2, 3)
    tensor = LoDTensor()
    tensor.set(source, None)
    source[:] = 0
    read = np.array(tensor)
    assert read[1, 2] == 5
    read[:] = -1
    assert np.array(tensor)[1, 2] == 5
    assert tensor.shape() == [2, 3]


def test_tensor_lengths_and_offsets_agree():
    tensor = LoDTensor()
    tensor.set(np.zeros((5, 1), "float32"))
    tensor.set_recursive_sequence_lengths([[2, 3]])
    assert tensor.lod() == [[0, 2, 5]]
    assert tensor.recursive_sequence_lengths() == [[2, 3]]
    assert tensor.has_valid_recursive_sequence_lengths()
    later = LoDTensor()
    later.set_lod([[0, 2, 6]])  # nothing is stored that it could disagree with
    later.set(np.zeros((5, 1), "float32"))
    assert not later.has_valid_recursive_sequence_lengths()


def test_deferred_tensor_is_read_once_when_needed():
    calls = []
    tensor = LoDTensor()
    tensor.defer(lambda: calls.append(1) or np.ones(2))
    assert tensor._is_initialized() and not calls
    assert np.array(tensor).sum() == 2 and tensor.shape() == [2]
    assert calls == [1]


@pytest.mark.parametrize("together", [False, True])
def test_a_value_of_before_a_run_is_not_kept_after_it(together):
    """A thread fetches while a run on another one ends."""
    scope = Scope()
    tensor = scope.var("w").get_tensor()

    def source():
        tensor.version += 1  # the run that ends
        return np.ones(2)

    source.together = lambda sources: [source() for source in sources]
    tensor.defer(source)
    _ = bring_together(scope, ["w"]) if together else np.array(tensor)
    assert tensor.is_deferred
    tensor.defer(lambda: np.zeros(2))
    np.testing.assert_array_equal(np.array(tensor), np.zeros(2))
    assert not tensor.is_deferred


def test_selected_rows_merge_adds_repetitions():
    value = np.array([[1.0, 2.0], [3.0, 4.0], [10.0, 20.0]], "float32")
    rows = SelectedRows([4, 1, 4], 6, value)
    merged = rows.merged()
    assert merged.rows() == [1, 4]
    assert np.array_equal(merged.value, [[3, 4], [11, 22]])
    assert np.array_equal(rows.to_dense()[4], [11, 22])


def test_variable_keeps_its_kind():
    scope = Scope()
    scope.var("a").get_tensor()
    with pytest.raises(EnforceNotMet, match="variable a holds a LoDTensor"):
        scope.var("a").get_selected_rows()
