"""Errors of attention layers for feeds that do not fit."""

import numpy as np
import pytest

import dpexec as fluid


def test_positions_of_rows_need_sequences():
    encoded = fluid.layers.add_position_encoding(fluid.data("x", [None, 4]), 1.0, 1.0)
    feed = {"x": np.ones((3, 4), "float32")}
    with pytest.raises(fluid.core.EnforceNotMet, match="must hold sequences"):
        fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[encoded])
