"""Small files in place of the data sets, for the examples in ``dpexec.paddle.dataset``.

What the examples show, such as the first labels, is what the original files hold.
"""

import gzip
import pickle
import struct

import numpy as np

from tests.paddle.archives import tar, zipped


def write_all(home):
    """Write a small file for each data set, in the formats and with the names of the originals."""
    for write in (_mnist, _cifar, _housing, _imdb, _imikolov, _movielens, _sentiment):
        write(home)
    for write in (_wmt14, _wmt16, _conll05):
        write(home)


def _mnist(home):
    folder = home / "mnist"
    folder.mkdir()
    for part, digit in (("train", 5), ("t10k", 7)):
        images = struct.pack(">4I", 2051, 1, 28, 28) + bytes(784)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        labels = struct.pack(">2I", 2049, 1) + bytes([digit])
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


def _cifar(home):
    def part(name, label):
        return pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), name: [label]})

    ten = {"data_batch_1": part(b"labels", 6), "test_batch": part(b"labels", 3)}
    hundred = {"train": part(b"fine_labels", 19), "test": part(b"fine_labels", 49)}
    for name, parts in (("cifar-10-python", ten), ("cifar-100-python", hundred)):
        inside = {f"{name}/{member}": content for member, content in parts.items()}
        tar(home / "cifar" / f"{name}.tar.gz", inside)


def _housing(home):
    table = np.arange(5 * 14, dtype=float).reshape(5, 14)
    table[0, -1], table[4, -1] = 24.0, 8.5
    folder = home / "uci_housing"
    folder.mkdir()
    np.savetxt(folder / "housing.data", table)


def _imdb(home):
    first = b"Bromwell High is a cartoon comedy. " + b"the " * 151
    reviews = {"train/pos/0_9": first, "train/neg/0_3": b"Not good.", "test/pos/0_10": b"Good!"}
    inside = {f"aclImdb/{name}.txt": text for name, text in reviews.items()}
    tar(home / "imdb" / "imdb%2FaclImdb_v1.tar.gz", inside)


def _imikolov(home):
    folder = "./simple-examples/data/ptb"
    text = b" the cat sat on the mat\n" * 51
    inside = {f"{folder}.train.txt": text, f"{folder}.valid.txt": text}
    tar(home / "imikolov" / "simple-examples.tgz", inside)


def _movielens(home):
    films = (
        "1::Toy Story (1995)::Animation|Children's|Comedy\n"
        "1193::One Flew Over the Cuckoo's Nest (1975)::Drama\n"
        "3952::Contender, The (2000)::Drama|Thriller\n2::Fast (1990)::Action\n"
    )
    users = "1::F::1::10::48067\n6040::M::25::6::11106\n2::M::56::20::70072\n"
    inside = {
        "ml-1m/movies.dat": films.encode("latin-1"),
        "ml-1m/users.dat": users.encode("latin-1"),
        "ml-1m/ratings.dat": b"1::1193::5::978300760\n" * 40,
    }
    zipped(home / "movielens" / "ml-1m.zip", inside)


def _sentiment(home):
    texts = {f"{kind}/cv{n}": ", , so" for kind in ("neg", "pos") for n in range(2)}
    inside = {f"movie_reviews/{name}.txt": text for name, text in texts.items()}
    zipped(home / "corpora" / "movie_reviews.zip", inside)


def _wmt14(home):
    words = b"<s>\n<e>\n<unk>\na\nb\n"
    inside = {f"wmt14/{side}.dict": words for side in ("src", "trg")}
    inside |= {f"wmt14/{part}/{part}": b"a b\tb a\n" for part in ("train", "test", "gen")}
    tar(home / "wmt14" / "wmt14.tgz", inside)


def _wmt16(home):
    inside = {f"wmt16/{part}": b"a dog\tein Hund\n" for part in ("train", "test", "val")}
    tar(home / "wmt16" / "wmt16.tar.gz", inside)


def _conll05(home):
    release = "conll05st-release/test.wsj/{0}/test.wsj.{0}.gz"
    files = {"words": "The\ncat\nsat\n\n", "props": "-\t(A0*\n-\t*)\nsit\t(V*)\n\n"}
    inside = {release.format(name): gzip.compress(text.encode()) for name, text in files.items()}
    folder = home / "conll05st"
    tar(folder / "conll05st-tests.tar.gz", inside)
    texts = {
        "wordDict.txt": "<unk>\ncat\nsat\n",
        "verbDict.txt": "<unk>\nsit\n",
        "targetDict.txt": "B-A0\nI-A0\nB-V\nI-V\nO\n",
        "emb": "",
    }
    for name, text in texts.items():
        (folder / f"conll05st%2F{name}").write_text(text)
