"""House prices in Boston (Harrison and Rubinfeld 1978) from the original table."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dpexec.paddle.dataset.common import download
from dpexec.reading.decorators import Reader

URL = "http://paddlemodels.bj.bcebos.com/uci_housing/housing.data"
MD5 = "d4accdce7a25600298819f8e28e8d593"
feature_names = [
    *("CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE"),
    *("DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT"),
]
_TRAINING = 0.8  # share of the rows, the first ones


def fetch() -> None:
    """Download the table if missing.

    Example:
        >>> from dpexec.paddle.dataset import uci_housing
        >>> uci_housing.fetch()  # 49 kB at the first call
    """
    download(URL, "uci_housing", MD5)


def _table() -> tuple[np.ndarray, int]:
    """Return the rows with normalised features, and the number of rows for training."""
    text = Path(download(URL, "uci_housing", MD5)).read_text(encoding="ascii")
    table = np.array(text.split(), dtype=np.float64)
    table = table.reshape(-1, len(feature_names) + 1)
    features = table[:, :-1]
    spread = features.max(axis=0) - features.min(axis=0)
    features[:] = (features - features.sum(axis=0) / len(features)) / spread
    return table, int(len(table) * _TRAINING)


def _reader(rows: np.ndarray) -> Reader:
    def read() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for row in rows:
            yield row[:-1], row[-1:]

    return read


def train() -> Reader:
    """The training samples: the first four fifths of the table.

    Returns:
        A reader of 404 pairs: 13 float64 features, from each of which its mean was taken before it
        was divided by its range; and the price in thousands of dollars, float64 ``(1,)``.

    Raises:
        FileNotFoundError: the table is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import uci_housing
        >>> features, price = next(iter(uci_housing.train()()))
        >>> features.shape, price
        ((13,), array([24.]))
    """
    table, training = _table()
    return _reader(table[:training])


def test() -> Reader:
    """The test samples: the last fifth of the table.

    Returns:
        A reader of 102 pairs of the form of :func:`train`.

    Raises:
        FileNotFoundError: the table is missing and could not be downloaded.

    Example:
        >>> from dpexec.paddle.dataset import uci_housing
        >>> features, price = next(iter(uci_housing.test()()))
        >>> features.shape, price
        ((13,), array([8.5]))
    """
    table, training = _table()
    return _reader(table[training:])
