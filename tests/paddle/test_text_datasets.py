"""Text data sets from small archives, compared with the real 1.8.5."""

import gzip
import re

import pytest

from dpexec.paddle.dataset import common, conll05, imdb, movielens, sentiment, wmt14, wmt16
from tests.paddle.archives import tar, zipped


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path))
    return tmp_path


def test_imdb(home):
    files = {
        "aclImdb/train/pos/0_9.txt": b"Good, good film!\n",
        "aclImdb/train/neg/0_1.txt": b"a bad film",
        "aclImdb/test/pos/0_9.txt": b"a good one",
        "aclImdb/README": b"good good good",
    }
    tar(home / "imdb" / "imdb%2FaclImdb_v1.tar.gz", files)
    words = imdb.build_dict(re.compile(r"aclImdb/(train|test)/(pos|neg)/.*\.txt$"), 1)
    assert words == {b"good": 0, b"a": 1, b"film": 2, "<unk>": 3}
    assert list(imdb.train(words)()) == [([0, 0, 2], 0), ([1, 3, 2], 1)]
    assert list(imdb.test(words)()) == [([1, 0, 3], 0)]
    assert imdb.word_dict() == {"<unk>": 0}


def test_sentiment(home):
    texts = {"neg/cv0.txt": "bad , bad", "neg/cv1.txt": "bad", "pos/cv0.txt": "good ?!"}
    files = {f"movie_reviews/{name}": text for name, text in texts.items()}
    zipped(home / "corpora" / "movie_reviews.zip", files)
    words = dict(sentiment.get_word_dict())
    assert words["bad"] == 0 and set(words) == {"bad", ",", "good", "?!"}
    expected = [([0, words[","], 0], 0), ([words["good"], words["?!"]], 1)]
    assert list(sentiment.train()) == expected and list(sentiment.test()) == []


def test_movielens(home):
    files = {
        "movies.dat": "1::Toy Story (1995)::Animation|Comedy\n2::L\xe9on (1994)::Drama\n",
        "users.dat": "1::F::1::10::48067\n2::M::56::16::70072\n",
        "ratings.dat": "2::1::4::978300760\n" * 40,
    }
    encoded = {f"ml-1m/{name}": text.encode("latin-1") for name, text in files.items()}
    zipped(home / "movielens" / "ml-1m.zip", encoded)
    assert movielens.movie_categories() == {"Animation": 0, "Comedy": 1, "Drama": 2}
    words = movielens.get_movie_title_dict()
    assert words == {"l\xe9on": 0, "story": 1, "toy": 2}
    train, test = list(movielens.train()()), list(movielens.test()())
    assert train[0] == [2, 0, 6, 16, 1, [0, 1], [words["toy"], words["story"]], [3.0]]
    assert (len(train), len(test)) == (36, 4)  # drawn by NumPy's generator with seed 0
    assert (movielens.max_movie_id(), movielens.max_user_id(), movielens.max_job_id()) == (2, 2, 16)
    assert movielens.user_info()[1].value() == [1, 1, 0, 10]
    assert movielens.movie_info()[1].title == "Toy Story "


def test_wmt14(home):
    words = b"<s>\n<e>\n<unk>\na\nb\n"
    pairs = f"a b x\tb a\nno pair\n{'a ' * 79}\tb\n".encode()
    files = {"wmt14/src.dict": words, "wmt14/trg.dict": words, "wmt14/train/train": pairs}
    tar(home / "wmt14" / "wmt14.tgz", files)
    assert list(wmt14.train(5)()) == [([0, 3, 4, 2, 1], [0, 4, 3], [4, 3, 1])]
    assert list(wmt14.train(4)()) == [([0, 3, 2, 2, 1], [0, 2, 3], [2, 3, 1])]
    assert list(wmt14.test(5)()) == list(wmt14.gen(5)()) == []
    assert wmt14.get_dict(4)[0] == {0: "<s>", 1: "<e>", 2: "<unk>", 3: "a"}
    assert wmt14.get_dict(4, reverse=False)[1] == {"<s>": 0, "<e>": 1, "<unk>": 2, "a": 3}


def test_wmt16(home):
    pairs = b"a dog a\tein Hund\nno pair\na cat\teine Katze\n"
    tar(home / "wmt16" / "wmt16.tar.gz", {f"wmt16/{part}": pairs for part in ("train", "val")})
    assert wmt16.get_dict("en", 5) == {"<s>": 0, "<e>": 1, "<unk>": 2, "a": 3, "dog": 4}
    assert wmt16.get_dict("de", 4, reverse=True) == {0: "<s>", 1: "<e>", 2: "<unk>", 3: "ein"}
    expected = [([0, 3, 4, 3, 1], [0, 3, 4], [3, 4, 1]), ([0, 3, 2, 1], [0, 2, 2], [2, 2, 1])]
    assert list(wmt16.train(5, 5)()) == list(wmt16.validation(5, 5)()) == expected
    assert next(wmt16.train(4, 5, "de")()) == ([0, 3, 2, 1], [0, 3, 4, 3], [3, 4, 3, 1])
    with pytest.raises(ValueError, match=r"en \(for English\)"):
        wmt16.test(5, 5, "fr")


def write_conll(home, words, props):
    release = "conll05st-release/test.wsj/{0}/test.wsj.{0}.gz"
    files = {"words": words, "props": props}
    packed = {release.format(name): gzip.compress(text.encode()) for name, text in files.items()}
    tar(home / "conll05st" / "conll05st-tests.tar.gz", packed)
    texts = {
        "wordDict": "<unk>\nbos\neos\nThe\ncat\nsat\n",
        "verbDict": "<unk>\nsit\n",
        "targetDict": "I-V\nB-V\nB-A0\nI-A0\nO\n",
    }
    for name, text in texts.items():
        (home / "conll05st" / f"conll05st%2F{name}.txt").write_text(text)


def test_conll05(home):
    words = "The\ncat\nsat\nand\nran\n\nNo\n\n"
    props = "-\t(A0*\t*\n-\t*)\t*\nsit\t(V*)\t*\n-\t*\t*\nrun\t*\t(V*)\n\n-\n\n"
    write_conll(home, words, props)
    assert conll05.get_dict()[2] == {"B-A0": 0, "I-A0": 1, "B-V": 2, "I-V": 3, "O": 4}
    first, second = conll05.test()()
    assert first[0] == [3, 4, 5, 0, 0]
    assert [column[0] for column in first[1:7]] == [3, 4, 5, 0, 0, 1]
    assert first[7:] == ([1, 1, 1, 1, 1], [0, 1, 2, 4, 4])
    assert [column[0] for column in second[1:7]] == [5, 0, 0, 2, 2, None]
    assert second[7:] == ([0, 0, 1, 1, 1], [4, 4, 4, 4, 2])


def test_conll05_with_labels_of_another_form(home):
    write_conll(home, "The\ncat\n\n", "sit\t(V*)\n-\tA0\n\n")
    with pytest.raises(RuntimeError, match="Unexpected label: A0"):
        list(conll05.test()())


def test_users_and_films_are_made_and_printed_as_in_paddle():
    user = movielens.UserInfo("3", "M", "25", "7")
    assert str(user) == "<UserInfo id(3), gender(M), age(25), job(7)>"
    assert user.value() == [3, 0, 2, 7]
    assert movielens.UserInfo(1, gender="F", age=56, job_id=0).value() == [1, 1, 6, 0]
    film = movielens.MovieInfo("4", ["A"], "x y")
    assert repr(film) == "<MovieInfo id(4), title(x y), categories(['A'])>"
    with pytest.raises(ValueError, match="26 is not in list"):
        movielens.UserInfo(1, "M", 26, 0)
