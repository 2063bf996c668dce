"""All trainers resume from the checkpoint that trainer 0 saved."""

import numpy as np

import dpexec as fluid
from dpexec.checkpoint import Checkpoints
from dpexec.engine.exchange.party import part_all
from tests.engine.run.nets import batches, classifier, train
from tests.engine.run.trainers.pair import rows_of, together, two


def checkpoints(trainer, folder):
    return Checkpoints(trainer.exe, str(folder), trainer.compiled)


def test_all_resume_from_what_trainer_0_saved(endpoints, tmp_path):
    net = classifier(fluid.optimizer.Adam(0.01), dropout=0.3, batch_norm=True)
    feeds = batches(4)
    parts = [[rows_of(feed, rank, 2) for feed in feeds] for rank in range(2)]
    before = two(net, endpoints)
    together(before, [part[:2] for part in parts])
    with fluid.scope_guard(before[0].scope), checkpoints(before[0], tmp_path) as found:
        found.save()
    part_all()
    after = two(net, endpoints)
    for trainer in after:
        with fluid.scope_guard(trainer.scope), checkpoints(trainer, tmp_path) as found:
            found.resume()
    together(after, [part[2:] for part in parts])
    assert [trainer.error for trainer in after] == [None, None]
    alone = train(net, feeds, 4)
    for name, value in alone.state.items():
        np.testing.assert_array_equal(after[0].state()[name], value, err_msg=name)
