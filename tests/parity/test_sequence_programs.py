"""Programs with sequences train and predict as with the real Paddle 1.8.5.

Recorded by tests/fixtures/record_sequence_programs.py: classes of texts, labels of words,
recommendations and clicks, language models, translations with attention and beam search.
"""

from pathlib import Path

import numpy as np
import pytest

import dpexec
from dpexec.paddle_alias import paddle_is_dpexec
from tests.fixtures import sequence_programs

CASES = [
    (file, net, mode, devices)
    for file, nets in sequence_programs.PROGRAMS.items()
    for net in nets
    for mode, devices in sequence_programs.configurations()
]


@pytest.mark.parametrize(("file", "net", "mode", "devices"), CASES)
def test_program_computes_the_recorded_values(file, net, mode, devices, monkeypatch):
    monkeypatch.setenv("CPU_NUM", str(devices))
    with paddle_is_dpexec():
        arrays = sequence_programs.run(dpexec, file, net, mode)
    prefix = f"{net}/{mode}/{devices}/"
    with np.load(Path(sequence_programs.FOLDER) / f"{file}.npz") as recorded:
        wanted = {key: recorded[key] for key in recorded.files if key.startswith(prefix)}
    assert {prefix + name for name in arrays} == set(wanted)
    for name, value in arrays.items():
        expected = wanted[prefix + name]
        assert value.shape == expected.shape
        assert value.dtype == expected.dtype
        atol = 1e-5 * np.abs(expected).max()
        np.testing.assert_allclose(value, expected, 1e-5, atol, err_msg=name)
