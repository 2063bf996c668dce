"""``paddle.dataset.image``: what needs no OpenCV, and what says that it does."""

import importlib.util
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from dpexec.paddle.dataset import image
from tests.paddle.archives import tar

PIXELS = np.arange(4 * 6 * 3, dtype="uint8").reshape(4, 6, 3)


def test_image_for_prediction_is_the_middle():
    made = image.simple_transform(PIXELS, 4, 2, False, mean=[1, 2, 3])
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, PIXELS[1:3, 2:4].transpose(2, 0, 1) - [[[1]], [[2]], [[3]]])


def test_image_for_training_is_drawn_as_in_paddle():
    """Top, left, and whether it is mirrored, in this order."""
    for seed in range(4):
        np.random.seed(seed)  # noqa: NPY002  as scripts do
        made = image.simple_transform(PIXELS[..., 0], 4, 2, True, is_color=False)
        same = np.random.RandomState(seed)
        top, left, mirrored = (same.randint(bound) for bound in (3, 5, 2))
        wanted = PIXELS[top : top + 2, left : left + 2, 0]
        np.testing.assert_array_equal(made, wanted[:, :: 1 if mirrored else -1])


def test_sizes_change_as_opencv_does_it(monkeypatch):
    calls = []

    class OpenCV:
        INTER_CUBIC = 2

        @staticmethod
        def resize(im, size, interpolation):
            calls.append((size, interpolation))
            return im

    monkeypatch.setitem(sys.modules, "cv2", OpenCV)
    image.resize_short(PIXELS, 5)
    image.resize_short(PIXELS.transpose(1, 0, 2), 5)
    assert calls == [((7, 5), 2), ((5, 7), 2)] and image.cv2 is OpenCV


def test_missing_opencv_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match="pip install opencv-python-headless"):
        image.load_image("cat.jpg")
    with pytest.raises(AssertionError, match="cannot be given the order"):
        image.to_chw(PIXELS[0])


@pytest.mark.skipif(importlib.util.find_spec("cv2") is None, reason="OpenCV is not installed")
def test_files_are_read(tmp_path):
    path = str(tmp_path / "cat.png")
    image.cv2.imwrite(path, PIXELS)
    read = image.load_image(path)
    np.testing.assert_array_equal(read, PIXELS)
    np.testing.assert_array_equal(image.load_image_bytes(Path(path).read_bytes()), PIXELS)
    assert image.load_and_transform(path, 8, 5, False, is_color=False).shape == (5, 5)
    with pytest.raises(FileNotFoundError, match="dog"):
        image.load_and_transform("dog.png", 8, 5, False)


def test_images_of_a_tar_file_are_batched(tmp_path):
    path = tmp_path / "images.tar"
    tar(path, {"a": b"1", "b": b"2", "c": b"3", "d": b"4"})
    listed = image.batch_images_from_tar(str(path), "train", {"a": 0, "c": 1, "d": 0}, 2)
    read = [pickle.loads(Path(line).read_bytes()) for line in Path(listed).read_text().split()]
    assert read == [{"label": [0, 1], "data": [b"1", b"3"]}, {"label": [0], "data": [b"4"]}]
    assert image.batch_images_from_tar(str(path), "train", {}) == listed
