"""Small detectors train and predict with the numbers of the real Paddle 1.8.5."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from tests.fixtures import detection_programs

RECORDED = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "detection.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", detection_programs.PROGRAMS)
def test_detector_computes_what_paddle_computes(name):
    expected = RECORDED[name]
    losses, found, lod = detection_programs.run(fluid, detection_programs.PROGRAMS[name])
    np.testing.assert_allclose(losses, expected["losses"], rtol=1e-5)
    np.testing.assert_allclose(found, expected["found"], rtol=1e-4, atol=1e-5)
    assert lod == expected["lod"]
