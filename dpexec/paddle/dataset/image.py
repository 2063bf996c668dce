"""Images as inputs of nets. Source: ``paddle.dataset.image``.

Images are arrays of height, width and channels, of blue, green and red as OpenCV reads them; nets
take channels first (:func:`to_chw`). Files are read and sizes changed with OpenCV, as in Paddle:
``pip install opencv-python-headless``. The other functions need NumPy alone.
"""

from __future__ import annotations

import importlib
import os
import pickle
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "batch_images_from_tar",
    "center_crop",
    "left_right_flip",
    "load_and_transform",
    "load_image",
    "load_image_bytes",
    "random_crop",
    "resize_short",
    "simple_transform",
    "to_chw",
]

Image = np.ndarray[Any, Any]


def __getattr__(name: str) -> Any:
    if name == "cv2":  # scripts import it from here
        return _opencv()
    raise AttributeError(f"paddle.dataset.image has no {name}; there are {', '.join(__all__)}")


def _opencv() -> Any:
    try:
        return importlib.import_module("cv2")
    except ImportError as error:
        raise ImportError(
            "paddle.dataset.image reads and resizes images with OpenCV, which cannot be imported "
            f"({error}): pip install opencv-python-headless",
            name="cv2",
        ) from error


def load_image_bytes(bytes: bytes, is_color: bool = True) -> Image:
    """The image in the content of a file.

    Args:
        bytes: the content.
        is_color: False makes it gray.

    Returns:
        uint8 ``(height, width, 3)``, or ``(height, width)`` if gray. None if it is no image.

    Raises:
        ImportError: OpenCV is missing.

    See Also:
        :func:`load_image`: from a path.

    Example:
        >>> from dpexec.paddle.dataset import image
        >>> with open("cat.jpg", "rb") as file:  # doctest: +SKIP
        ...     cat = image.load_image_bytes(file.read())
    """
    found: Image = _opencv().imdecode(np.frombuffer(bytes, np.uint8), int(is_color))
    return found


def load_image(file: str, is_color: bool = True) -> Image:
    """The image in a file.

    Args:
        file: its path.
        is_color: False makes it gray.

    Returns:
        uint8 ``(height, width, 3)``, or ``(height, width)`` if gray. None if there is no image.

    Raises:
        ImportError: OpenCV is missing.

    See Also:
        :func:`load_image_bytes`: from the content of a file.

    Example:
        >>> from dpexec.paddle.dataset import image
        >>> cat = image.load_image("cat.jpg")  # doctest: +SKIP
    """
    found: Image = _opencv().imread(os.fspath(file), int(is_color))
    return found


def resize_short(im: Image, size: int) -> Image:
    """An image whose shorter edge is of a size; the other edge keeps the ratio.

    Args:
        im: height, width and maybe channels.
        size: of the shorter edge.

    Returns:
        The image, resized by cubic interpolation.

    Raises:
        ImportError: OpenCV is missing, and the image has another size.

    See Also:
        :func:`center_crop`: a square of it.

    Example:
        >>> import numpy as np
        >>> from dpexec.paddle.dataset import image
        >>> image.resize_short(np.zeros((4, 6, 3), "uint8"), 4).shape
        (4, 6, 3)
    """
    height, width = im.shape[:2]
    new = (size * height // width, size) if height > width else (size, size * width // height)
    if new == (height, width):
        return im.copy()
    cv2 = _opencv()
    resized: Image = cv2.resize(im, new[::-1], interpolation=cv2.INTER_CUBIC)
    return resized


def to_chw(im: Image, order: Sequence[int] = (2, 0, 1)) -> Image:
    """An image with its channels first.

    Args:
        im: height, width and channels.
        order: the dimensions of the result.

    Returns:
        The image; a view.

    Raises:
        AssertionError: the image has another number of dimensions.

    See Also:
        :func:`simple_transform`: does it last.

    Example:
        >>> import numpy as np
        >>> from dpexec.paddle.dataset import image
        >>> image.to_chw(np.zeros((4, 6, 3))).shape
        (3, 4, 6)
    """
    if im.ndim != len(order):
        raise AssertionError(f"an image of shape {im.shape} cannot be given the order {order}")
    return im.transpose(order)


def center_crop(im: Image, size: int, is_color: bool = True) -> Image:
    """The square in the middle of an image.

    Args:
        im: height, width and, if in color, channels.
        size: of the square.
        is_color: accepted as in Paddle; the image says so itself.

    Returns:
        The square; a view.

    See Also:
        :func:`random_crop`: somewhere else.

    Example:
        >>> import numpy as np
        >>> from dpexec.paddle.dataset import image
        >>> image.center_crop(np.arange(12).reshape(3, 4), 1).tolist()
        [[5]]
    """
    height, width = im.shape[:2]
    return _square(im, (height - size) // 2, (width - size) // 2, size)


def random_crop(im: Image, size: int, is_color: bool = True) -> Image:
    """A square somewhere in an image, drawn by ``numpy.random``.

    Args:
        im: height, width and, if in color, channels.
        size: of the square.
        is_color: accepted as in Paddle; the image says so itself.

    Returns:
        The square; a view.

    Raises:
        ValueError: the image is smaller than ``size``.

    See Also:
        :func:`center_crop`: in the middle.

    Example:
        >>> import numpy as np
        >>> from dpexec.paddle.dataset import image
        >>> image.random_crop(np.zeros((4, 6, 3)), 2).shape
        (2, 2, 3)
    """
    height, width = im.shape[:2]
    top = _drawn(height - size + 1)
    return _square(im, top, _drawn(width - size + 1), size)


def _drawn(bound: int) -> int:
    return int(np.random.randint(0, bound))  # noqa: NPY002  it is what scripts seed


def _square(im: Image, top: int, left: int, size: int) -> Image:
    return im[top : top + size, left : left + size]


def left_right_flip(im: Image, is_color: bool = True) -> Image:
    """An image mirrored from left to right.

    Args:
        im: height, width and, if in color, channels.
        is_color: accepted as in Paddle; the image says so itself.

    Returns:
        The image; a view.

    See Also:
        :func:`random_crop`: another change for training.

    Example:
        >>> import numpy as np
        >>> from dpexec.paddle.dataset import image
        >>> image.left_right_flip(np.array([[1, 2, 3]])).tolist()
        [[3, 2, 1]]
    """
    return im[:, ::-1]


def simple_transform(
    im: Image,
    resize_size: int,
    crop_size: int,
    is_train: bool,
    is_color: bool = True,
    mean: Any = None,
) -> Image:
    """An image as the input of a net: resized, cropped, channels first, float32.

    For training, the crop and whether the image is mirrored are drawn by ``numpy.random``.

    Args:
        im: height, width and, if in color, channels.
        resize_size: of the shorter edge.
        crop_size: of the square.
        is_train: draws; False takes the middle.
        is_color: whether a vector ``mean`` holds numbers of channels.
        mean: subtracted: a number for each channel, or for each element.

    Returns:
        float32 ``(channels, crop_size, crop_size)``, or without channels if gray.

    Raises:
        ImportError: OpenCV is missing, and the image has to be resized.

    See Also:
        :func:`load_and_transform`: reads the image, too.

    Example:
        >>> import numpy as np
        >>> from dpexec.paddle.dataset import image
        >>> made = image.simple_transform(np.ones((4, 6, 3)), 4, 2, False, mean=[0.0, 1.0, 3.0])
        >>> made.shape, made[:, 0, 0].tolist()
        ((3, 2, 2), [1.0, 0.0, -2.0])
    """
    im = resize_short(im, resize_size)
    if is_train:
        im = random_crop(im, crop_size)
        if _drawn(2) == 0:
            im = left_right_flip(im)
    else:
        im = center_crop(im, crop_size)
    if im.ndim == 3:
        im = to_chw(im)
    im = im.astype(np.float32)
    if mean is not None:
        values = np.array(mean, np.float32)
        im -= values[:, None, None] if values.ndim == 1 and is_color else values
    return im


def load_and_transform(
    filename: str,
    resize_size: int,
    crop_size: int,
    is_train: bool,
    is_color: bool = True,
    mean: Any = None,
) -> Image:
    """The image in a file, as the input of a net; see :func:`simple_transform`.

    Args:
        filename: path of the image.
        resize_size: of the shorter edge.
        crop_size: of the square.
        is_train: draws crop and mirroring; False takes the middle.
        is_color: False makes the image gray.
        mean: subtracted.

    Returns:
        float32 ``(channels, crop_size, crop_size)``, or without channels if gray.

    Raises:
        ImportError: OpenCV is missing.
        FileNotFoundError: there is no image.

    See Also:
        :func:`simple_transform`: of an image that was read.

    Example:
        >>> from dpexec.paddle.dataset import image
        >>> cat = image.load_and_transform("cat.jpg", 256, 224, True)  # doctest: +SKIP
    """
    im = load_image(filename, is_color)
    if im is None:
        raise FileNotFoundError(f"{filename} is no image that OpenCV can read")
    return simple_transform(im, resize_size, crop_size, is_train, is_color, mean)


def batch_images_from_tar(
    data_file: str, dataset_name: str, img2label: Mapping[str, Any], num_per_batch: int = 1024
) -> str:
    """Write the images of a tar file in files of many, for faster reading.

    Each is a pickled dict of ``data``, contents of image files, and ``label``. Files that are there
    already are kept.

    Args:
        data_file: path of the tar file; the files go to a folder beside it.
        dataset_name: such as "train"; name of the inner folder.
        img2label: labels by name in the tar file; other images are left out.
        num_per_batch: images in a file.

    Returns:
        Path of a text file with the paths of the files.

    Raises:
        FileNotFoundError: the file is not there.

    See Also:
        :func:`load_image_bytes`: the image in a content.

    Example:
        >>> from dpexec.paddle.dataset import image
        >>> image.batch_images_from_tar("a.tar", "train", {"cat.jpg": 0})  # doctest: +SKIP
        'a.tar_batch/train.txt'
    """
    folder = Path(f"{data_file}_batch", dataset_name)
    listed = folder.with_name(f"{dataset_name}.txt")
    if folder.exists():
        return str(listed)
    folder.mkdir(parents=True)
    paths = []
    with tarfile.open(data_file) as tar:
        for number, batch in enumerate(_batches(tar, img2label, num_per_batch)):
            paths.append(folder.resolve() / f"batch_{number}")
            paths[-1].write_bytes(pickle.dumps(batch, protocol=2))
    listed.write_text("".join(f"{path}\n" for path in paths))
    return str(listed)


def _batches(
    tar: tarfile.TarFile, labels: Mapping[str, Any], count: int
) -> Iterator[dict[str, list[Any]]]:
    wanted = [member for member in tar if member.name in labels]
    for start in range(0, len(wanted), count):
        part = wanted[start : start + count]
        contents = [file.read() for member in part if (file := tar.extractfile(member))]
        yield {"label": [labels[member.name] for member in part], "data": contents}
