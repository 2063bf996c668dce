"""Regions whose images are told by a tensor are for as many images as there are."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.core import EnforceNotMet

TAKEN = {
    "roi_pool": {(2, (0, 1, 3)): True, (4, (0, 1, 3)): False, (1, (0, 1, 3)): False},
    "roi_align": {(2, (0, 1, 3)): True, (4, (0, 1, 3)): False, (2, (0, 3)): False},
    "prroi_pool": {(2, (1, 2)): True, (2, (3,)): False, (2, (1, 1, 1)): False},
}
"""Whether Paddle 1.8.5 takes so many images with such offsets, or such counts (prroi_pool)."""


@pytest.mark.parametrize("layer", TAKEN)
def test_regions_are_of_as_many_images_as_there_are(layer):
    images = fluid.data("images", [None, 4, 6, 6])
    regions = fluid.data("regions", [None, 4])
    told = fluid.data("told", [None], "int64")
    slot = "batch_roi_nums" if layer == "prroi_pool" else "rois_lod"
    sizes = {"pooled_height": 2, "pooled_width": 2, slot: told}
    out = getattr(fluid.layers, layer)(images, regions, **sizes)
    exe, boxes = fluid.Executor(), np.tile(np.array([0, 0, 3, 3], "float32"), (3, 1))
    for (count, numbers), taken in TAKEN[layer].items():
        pixels = np.ones((count, 4, 6, 6), "float32")
        feed = {"images": pixels, "regions": boxes, "told": np.array(numbers)}
        if taken:
            assert exe.run(feed=feed, fetch_list=[out])[0].shape == (3, 4, 2, 2)
        else:
            with pytest.raises(EnforceNotMet, match=f"{layer}.*regions must be given for each"):
                exe.run(feed=feed, fetch_list=[out])
