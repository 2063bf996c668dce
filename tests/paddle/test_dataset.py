"""``paddle.dataset`` reads the original file formats, from tiny files."""

import gzip
import pickle
import struct

import numpy as np
import pytest

from dpexec.paddle import dataset
from dpexec.paddle.dataset import cifar, common, imikolov, mnist, uci_housing
from tests.paddle.archives import tar


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path))
    return tmp_path


def write(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def write_mnist(home, pixels, labels, magic=2051):
    images = struct.pack(">4I", magic, len(pixels), 2, 2) + pixels.tobytes()
    write(home / "mnist" / "train-images-idx3-ubyte.gz", gzip.compress(images))
    digits = struct.pack(">2I", 2049, len(labels)) + bytes(labels)
    write(home / "mnist" / "train-labels-idx1-ubyte.gz", gzip.compress(digits))


def test_mnist(home):
    write_mnist(home, np.array([[0, 255, 51, 102], [255, 0, 0, 0]], np.uint8), [7, 2])
    (image, label), (_, second) = mnist.train()()
    np.testing.assert_allclose(image, [-1, 1, -0.6, -0.2], atol=1e-6)
    assert image.dtype == np.float32
    assert (label, second) == (7, 2)


def test_mnist_of_another_format(home):
    write_mnist(home, np.zeros((1, 4), np.uint8), [7], magic=99)
    with pytest.raises(ValueError, match="begins with 99"):
        list(mnist.train()())


def test_mnist_with_a_label_missing(home):
    write_mnist(home, np.zeros((2, 4), np.uint8), [7])
    with pytest.raises(ValueError, match="2 images"):
        list(mnist.train()())


def test_uci_housing_normalises_and_splits(home):
    table = np.arange(10 * 14, dtype=float).reshape(10, 14)
    text = "\n".join(" ".join(map(str, row)) for row in table)
    write(home / "uci_housing" / "housing.data", text.encode())
    train, test = list(uci_housing.train()()), list(uci_housing.test()())
    assert (len(train), len(test)) == (8, 2)
    features, price = train[0]
    np.testing.assert_allclose(features, np.full(13, -0.5))
    assert price.tolist() == [13.0]


def test_imikolov_numbers_words_by_frequency(home):
    text = b" the cat the dog\n the <unk>\n"
    files = {"./simple-examples/data/ptb.train.txt": text}
    files["./simple-examples/data/ptb.valid.txt"] = b" the end\n"
    tar(home / "imikolov" / "simple-examples.tgz", files)
    words = imikolov.build_dict(min_word_freq=1)
    assert words == {b"the": 0, "<e>": 1, "<s>": 2, "<unk>": 3}
    assert list(imikolov.test(words, 2)()) == [(2, 0), (0, 3), (3, 1)]
    pairs = list(imikolov.train(words, 3, imikolov.DataType.SEQ)())
    assert pairs == [([2, 0, 3], [0, 3, 1])]


def test_imikolov_refuses_nonsense(home):
    with pytest.raises(ValueError, match="NGRAM or DataType"):
        imikolov.train({"<unk>": 0}, 3, 7)
    with pytest.raises(ValueError, match="at least 1"):
        imikolov.train({"<unk>": 0}, 0)


def test_cifar(home):
    def part(label):
        return pickle.dumps({b"data": np.full((1, 3), 51, np.uint8), b"labels": [label]})

    files = {f"cifar-10-batches-py/data_batch_{k}": part(k) for k in (1, 2)}
    files["cifar-10-batches-py/test_batch"] = part(9)
    tar(home / "cifar" / "cifar-10-python.tar.gz", files)
    samples = list(cifar.train10()())
    assert [label for _, label in samples] == [1, 2]
    np.testing.assert_allclose(samples[0][0], [0.2] * 3)
    assert samples[0][0].dtype == np.float32
    cycled = cifar.test10(cycle=True)()
    assert [next(cycled)[1] for _ in range(3)] == [9, 9, 9]


def test_unsupported_data_set_lists_the_supported():
    with pytest.raises(AttributeError, match=r"flowers is not supported; there are cifar"):
        dataset.flowers  # noqa: B018
