"""DetectionMAP adds up in variables of the program."""

import numpy as np
import pytest

import dpexec as fluid

BOX, ELSEWHERE = [0.1, 0.1, 0.5, 0.5], [0.6, 0.6, 0.9, 0.9]


def batch(*found):
    """An image with one object of class 1, and detections of it: score and box."""
    lod = fluid.create_lod_tensor
    place = fluid.CPUPlace()
    rows = np.array([[1, score, *box] for score, box in found], "float32")
    return {
        "found": lod(rows, [[len(rows)]], place),
        "label": lod(np.array([[1]], "int32"), [[1]], place),
        "box": lod(np.array([BOX], "float32"), [[1]], place),
        "difficult": lod(np.array([[0]], "int32"), [[1]], place),
    }


@pytest.fixture
def metric():
    found = fluid.data("found", [None, 6], "float32", lod_level=1)
    label = fluid.data("label", [None, 1], "int32", lod_level=1)
    box = fluid.data("box", [None, 4], "float32", lod_level=1)
    difficult = fluid.data("difficult", [None, 1], "int32", lod_level=1)
    return fluid.metrics.DetectionMAP(found, label, box, difficult, class_num=3)


def test_batches_add_up_until_reset(metric):
    exe = fluid.Executor(fluid.CPUPlace())

    def step(*found):
        return [value.item() for value in exe.run(feed=batch(*found), fetch_list=fetches)]

    fetches = metric.get_map_var()
    exe.run(fluid.default_startup_program())
    assert step((0.9, BOX)) == [1, 1]
    assert step((0.8, ELSEWHERE), (0.7, ELSEWHERE)) == [0, 0.5]  # one of two objects is found
    assert step((0.95, ELSEWHERE), (0.6, BOX)) == pytest.approx([0.5, (1 / 2 + 2 / 5) / 3])
    metric.reset(exe)
    assert step((0.8, ELSEWHERE)) == [0, 0]
    assert step((0.9, BOX)) == [1, 0.5]


def test_reset_does_without_startup_program(metric):
    exe = fluid.Executor(fluid.CPUPlace())
    metric.reset(exe)
    (mean,) = exe.run(feed=batch((0.9, BOX)), fetch_list=[metric.get_map_var()[1]])
    assert mean == [1]


def test_number_of_classes_is_needed(metric):
    with pytest.raises(ValueError, match="needs class_num"):
        fluid.metrics.DetectionMAP(None, None, None)


def test_old_name_warns():
    with (
        pytest.warns(UserWarning, match=r"use fluid\.metrics\.DetectionMAP"),
        pytest.raises(ValueError, match="needs class_num"),
    ):
        fluid.evaluator.DetectionMAP(None, None, None)
