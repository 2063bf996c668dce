"""Short trainings of many kinds, in many ways; prints the bits of their losses as JSON.

It asserts nothing, for ``python -O`` leaves asserts out: ``test_without_asserts.py`` compares.
"""

import json

import numpy as np
from distributed import Client

import dpexec as fluid
from tests.distributed.clusters import make_workers_cheap
from tests.engine.compile.test_sizes import convolutions, feeds, image_feeds, word_feeds
from tests.engine.run.nets import Reduce, classifier, sequence_batches, train, words
from tests.engine.run.test_loops import recurrent

SIZES = [12, 7, 9, 12, 5]
NETS = {
    "dense": lambda: (classifier(fluid.optimizer.Adam(0.01), batch_norm=True), feeds(SIZES)),
    "images": lambda: (convolutions(), image_feeds(SIZES[:3])),
    "sparse": lambda: (words(), word_feeds(SIZES)),
    "loop": lambda: (recurrent(), sequence_batches([9, 4, 12, 7])),
}
WAYS = {
    "threads": {},
    "dask": {"scheduler": "sync"},
    "reduce": {"mode": Reduce},
}
CLUSTER = {"threads_per_worker": 1, "dashboard_address": ":0", "set_as_default": False}


def bits(name, **options):
    run = train(*NETS[name](), 2, **options)
    return [np.asarray(loss).tobytes().hex() for loss in run.losses]


def main():
    found = {name: {way: bits(name, **WAYS[way]) for way in WAYS} for name in NETS}
    make_workers_cheap()
    with Client(n_workers=2, processes=True, **CLUSTER) as client:
        for name in ("dense", "loop"):
            found[name]["cluster"] = bits(name, scheduler=client)
            found[name]["gang"] = bits(name, scheduler=client, collectives="gang")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
