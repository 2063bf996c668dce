"""All processes of a run must compile with the same libraries; others are refused by name."""

import pytest

from dpexec.engine import kernels


def test_nothing_is_used_without_numba(monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda: False)
    assert kernels.libraries() == {}


def test_the_same_libraries_are_fine(monkeypatch):
    monkeypatch.setattr(kernels, "libraries", lambda: {"numba": "0.61"})
    kernels.require({"numba": "0.61"})


@pytest.mark.parametrize("found", [{}, {"numba": "0.61"}, {"numba": "0.61", "oneDNN": "3.1.0"}])
def test_other_libraries_are_refused_by_name(found, monkeypatch):
    monkeypatch.setattr(kernels, "libraries", lambda: found)
    with pytest.raises(RuntimeError, match=r"numba 0\.61, oneDNN 3\.2\.0, but") as error:
        kernels.require({"numba": "0.61", "oneDNN": "3.2.0"})
    assert ("with nothing" in str(error.value)) == (not found)
