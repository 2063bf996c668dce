"""Programs with sequences train and predict as with the real Paddle 1.8.5.

Recorded by tests/fixtures/record_sequence_programs.py: classes of texts, labels of words,
recommendations and clicks, language models, translations with attention and beam search.
"""

import functools
import json
from pathlib import Path

import numpy as np
import pytest

import dpexec
from dpexec.commands.paddle_alias import paddle_is_dpexec
from tests.fixtures.sequence_programs import FOLDER, PROGRAMS, Net, configurations

NETS = [(file, name) for file, names in PROGRAMS.items() for name in names]


@functools.cache
def built(file, name):
    with paddle_is_dpexec():
        return Net(dpexec, file, name)


@functools.cache
def recorded(file):
    with np.load(Path(FOLDER) / f"{file}.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize(("mode", "devices"), configurations())
@pytest.mark.parametrize(("file", "name"), NETS)
def test_program_computes_the_recorded_values(file, name, mode, devices, monkeypatch):
    monkeypatch.setenv("CPU_NUM", str(devices))
    arrays = built(file, name).run(mode)
    prefix = f"{name}/{mode}/{devices}/"
    wanted = {key: value for key, value in recorded(file).items() if key.startswith(prefix)}
    assert {prefix + what for what in arrays} == set(wanted)
    for what, value in arrays.items():
        expected = wanted[prefix + what]
        assert value.shape == expected.shape
        assert value.dtype == expected.dtype
        atol = 1e-5 * np.abs(expected).max()
        np.testing.assert_allclose(value, expected, 1e-5, atol, err_msg=what)


@pytest.mark.parametrize(("file", "name"), NETS)
def test_program_is_the_one_that_paddle_builds(file, name):
    assert built(file, name).described() == json.loads(recorded(file)[f"{name}/programs"].tobytes())
