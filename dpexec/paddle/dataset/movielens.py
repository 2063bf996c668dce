"""A million ratings of films (MovieLens 1M, GroupLens 2003), from the original archive.

Words of titles and categories are numbered alphabetically. (In the original their numbers change
from run to run.)
"""

import functools
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.paddle.dataset.common import download
from dpexec.reading.decorators import Reader

__all__ = [
    "age_table",
    "get_movie_title_dict",
    "max_job_id",
    "max_movie_id",
    "max_user_id",
    "movie_categories",
    "movie_info",
    "test",
    "train",
    "user_info",
]

URL = "https://dataset.bj.bcebos.com/movielens%2Fml-1m.zip"
MD5 = "c4d9eecfca2ab87c1945afe126590906"
_YEAR = re.compile(r"^(.*)\((\d+)\)$")

age_table = [1, 18, 25, 35, 45, 50, 56]
"""The youngest age of each group of ages."""


@dataclass(frozen=True)
class MovieInfo:
    """A film.

    Args:
        index: its number, from 1.
        categories: names of its categories.
        title: title without the year.

    Example:
        >>> from dpexec.paddle.dataset import movielens
        >>> movielens.movie_info()[1]
        <MovieInfo id(1), title(Toy Story ), categories(['Animation', "Children's", 'Comedy'])>
    """

    index: int
    categories: list[str]
    title: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", int(self.index))

    def __repr__(self) -> str:
        return f"<MovieInfo id({self.index}), title({self.title}), categories({self.categories})>"

    def value(self) -> list[Any]:
        """The film's number, its categories' numbers, and the numbers of its title's words."""
        words, categories = get_movie_title_dict(), movie_categories()
        titled = [words[word.lower()] for word in self.title.split()]
        return [self.index, [categories[name] for name in self.categories], titled]


class UserInfo:
    """A user who rated films.

    Args:
        index: number of the user, from 1.
        gender: ``"M"`` or ``"F"``, the user's sex according to the data set.
        age: the youngest age of the user's group, one of :data:`age_table`.
        job_id: number of the occupation, from 0.

    Raises:
        ValueError: no group begins at this age.

    Example:
        >>> from dpexec.paddle.dataset import movielens
        >>> user = movielens.UserInfo(3, "M", age=25, job_id=7)
        >>> user
        <UserInfo id(3), gender(M), age(25), job(7)>
        >>> user.value()  # number, 0 for men, group of ages, occupation
        [3, 0, 2, 7]
    """

    def __init__(self, index: int | str, gender: str, age: int | str, job_id: int | str) -> None:
        self.index = int(index)
        self.is_male = gender == "M"
        self.age = age_table.index(int(age))
        self.job_id = int(job_id)

    def __repr__(self) -> str:
        sex, age = "M" if self.is_male else "F", age_table[self.age]
        return f"<UserInfo id({self.index}), gender({sex}), age({age}), job({self.job_id})>"

    def value(self) -> list[int]:
        """The number, 0 for male and 1 for female, the group of ages, and the occupation."""
        return [self.index, 0 if self.is_male else 1, self.age, self.job_id]


@dataclass(frozen=True)
class _Tables:
    movies: dict[int, MovieInfo]
    users: dict[int, UserInfo]
    words: dict[str, int]
    categories: dict[str, int]


def _lines(path: str, member: str) -> Iterator[list[str]]:
    with zipfile.ZipFile(path) as archive, archive.open(f"ml-1m/{member}") as file:
        for line in file:
            yield line.decode("latin-1").strip().split("::")


def _numbered(names: set[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(sorted(names))}


@functools.cache
def _read(path: str) -> _Tables:
    movies = {}
    for number, titled, categories in _lines(path, "movies.dat"):
        match = _YEAR.match(titled)
        if match is None:
            raise ValueError(f"{path}: the title {titled!r} of film {number} has no year")
        movies[int(number)] = MovieInfo(int(number), categories.split("|"), match[1])
    users = {
        int(number): UserInfo(number, gender, age, job)
        for number, gender, age, job, _ in _lines(path, "users.dat")
    }
    words = {word.lower() for movie in movies.values() for word in movie.title.split()}
    categories_ = {name for movie in movies.values() for name in movie.categories}
    return _Tables(movies, users, _numbered(words), _numbered(categories_))


def _tables() -> _Tables:
    return _read(download(URL, "movielens", MD5))


def fetch() -> None:
    """Download the archive if missing.

    Example:
        >>> from dpexec.paddle.dataset import movielens
        >>> movielens.fetch()  # 6 MB at the first call
    """
    download(URL, "movielens", MD5)


def _reader(rand_seed: int, test_ratio: float, is_test: bool) -> Reader:
    def read() -> Iterator[list[Any]]:
        tables, random = _tables(), np.random.RandomState(rand_seed)
        path = download(URL, "movielens", MD5)
        for user, movie, rating, _ in _lines(path, "ratings.dat"):
            if (random.random_sample() < test_ratio) == is_test:
                about = [*tables.users[int(user)].value(), *tables.movies[int(movie)].value()]
                yield [*about, [float(rating) * 2 - 5.0]]

    return read


def train(rand_seed: int = 0, test_ratio: float = 0.1) -> Reader:
    """Return a reader of about nine tenths of the ratings.

    Args:
        rand_seed: seed for choosing the ratings for testing.
        test_ratio: share of ratings for testing.

    Returns:
        A reader of lists: user, gender, group of ages, occupation, film, its categories, words of
        its title, and ``[rating]`` from -3 to 5.

    Raises:
        FileNotFoundError: while reading, if the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import movielens
        >>> user, gender, age, job, film, categories, title, rating = next(movielens.train()())
        >>> (user, gender, age, job), film, rating
        ((1, 1, 0, 10), 1193, [5.0])
    """
    return _reader(rand_seed, test_ratio, is_test=False)


def test(rand_seed: int = 0, test_ratio: float = 0.1) -> Reader:
    """The ratings that :func:`train` leaves out.

    Args:
        rand_seed: as for :func:`train`; another seed chooses other ratings.
        test_ratio: as for :func:`train`.

    Returns:
        A reader of the form of :func:`train`.

    Raises:
        FileNotFoundError: while reading, if the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import movielens
        >>> len(next(movielens.test()()))
        8
    """
    return _reader(rand_seed, test_ratio, is_test=True)


def get_movie_title_dict() -> dict[str, int]:
    """Numbers of the words of all titles.

    Returns:
        A dict from lower-case word to number, in alphabetic order.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import movielens
        >>> "toy" in movielens.get_movie_title_dict()
        True
    """
    return _tables().words


def movie_categories() -> dict[str, int]:
    """Numbers of the categories.

    Returns:
        A dict from category to number, in alphabetic order.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import movielens
        >>> movielens.movie_categories()["Action"]
        0
    """
    return _tables().categories


def movie_info() -> dict[int, MovieInfo]:
    """All films.

    Returns:
        A dict from number to :class:`MovieInfo`.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import movielens
        >>> movielens.movie_info()[1].title
        'Toy Story '
    """
    return _tables().movies


def user_info() -> dict[int, UserInfo]:
    """All users.

    Returns:
        A dict from number to :class:`UserInfo`.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import movielens
        >>> movielens.user_info()[1]
        <UserInfo id(1), gender(F), age(1), job(10)>
    """
    return _tables().users


def max_movie_id() -> int:
    """The largest number of a film: the table of its embedding needs a row more.

    Returns:
        The number; numbers begin at 1, and some are missing.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import movielens
        >>> movielens.max_movie_id()
        3952
    """
    return max(_tables().movies)


def max_user_id() -> int:
    """The largest number of a user: the table of its embedding needs a row more.

    Returns:
        The number; numbers begin at 1.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import movielens
        >>> movielens.max_user_id()
        6040
    """
    return max(_tables().users)


def max_job_id() -> int:
    """The largest number of an occupation: the table of its embedding needs a row more.

    Returns:
        The number; numbers begin at 0.

    Raises:
        FileNotFoundError: the archive is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import movielens
        >>> movielens.max_job_id()
        20
    """
    return max(user.job_id for user in _tables().users.values())
