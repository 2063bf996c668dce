"""Addresses of arrays, as machine code looks them up."""

import numpy as np
import pytest

from dpexec.engine import kernels

pytestmark = pytest.mark.skipif(not kernels.available(), reason="numba is not installed")


def test_addresses_of_arrays():
    from dpexec.engine.kernels.located import address, locate
    from dpexec.engine.kernels.tables import run

    arrays = [np.empty((3, 4), np.float32), np.empty(7)[2:], np.empty((2, 0))]
    words, pairs = np.zeros(4, np.int64), np.array([[0, 1], [1, 0], [3, 1]])
    addresses = words.ctypes.data, pairs.ctypes.data
    arguments = np.array([len(pairs), *addresses, *map(id, arrays)], np.int64)
    table = np.array([[locate.address, arguments.ctypes.data]])
    run(table.ctypes.data, 0, 1)
    first, second, _ = (array.ctypes.data for array in arrays)
    assert words.tolist() == [second, first, 0, second]
    assert [address(array) for array in arrays] == [array.ctypes.data for array in arrays]
