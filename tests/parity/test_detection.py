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


def test_mean_average_precision_in_a_program():
    boxes = np.array([[0.1, 0.1, 0.5, 0.5], [0.5, 0.4, 0.9, 0.9]], "float32")
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        found = fluid.data("found", [None, 6], lod_level=1)
        label = fluid.data("label", [None, 5], lod_level=1)
        mean = fluid.layers.detection.detection_map(found, label, 3)
    label_rows = np.column_stack([np.array([1, 2], "float32"), boxes])
    right = np.column_stack([label_rows[:, :1], np.full((2, 1), 0.9, "float32"), boxes])
    right[1, 0] = 1  # of the wrong class
    offsets = fluid.create_lod_tensor(right, [[1, 1]], fluid.CPUPlace())
    labels = fluid.create_lod_tensor(label_rows, [[1, 1]], fluid.CPUPlace())
    (value,) = fluid.Executor(fluid.CPUPlace()).run(
        main, feed={"found": offsets, "label": labels}, fetch_list=[mean]
    )
    np.testing.assert_allclose(value, [0.5])  # class 2 is found nowhere
