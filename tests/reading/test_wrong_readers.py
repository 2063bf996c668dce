"""Readers and samples that do not fit are named."""

import numpy as np
import pytest

import dpexec as fluid


@pytest.mark.parametrize("setter", ["set_batch_generator", "set_sample_list_generator"])
def test_a_reader_that_returns_nothing_is_named(setter):
    def forgets_to_yield():
        """Makes batches, and drops them."""

    loader = fluid.io.DataLoader.from_generator([fluid.data("y", [None, 1])], 4)
    getattr(loader, setter)(forgets_to_yield, fluid.cpu_places(1))
    with pytest.raises(TypeError, match=r"forgets_to_yield returned None: it must yield"):
        list(loader)


def test_samples_of_different_shapes_are_named():
    with pytest.raises(ValueError, match=r"field 1 of the samples: sample 2 .* has shape \(3,\)"):
        fluid.io.default_collate_fn([(0, np.ones(2 + (n == 2))) for n in range(4)])
