"""Twenty workers killed at random in two hundred steps change no bit; ``make chaos`` kills more."""

import pytest

from dpexec.engine.cluster.client import replica_group
from tests.distributed.chaos import COLLECTIVES, MODES, Storm, run
from tests.engine.run.nets import assert_same_bits


@pytest.mark.parametrize("collectives", COLLECTIVES)
@pytest.mark.parametrize("mode", MODES)
def test_killed_workers_change_no_bit(three_mortals, monkeypatch, mode, collectives):
    monkeypatch.setattr(replica_group, "_LOOK", 0.1)
    storm = Storm(three_mortals, steps=50, kills=5, seed=len(mode + collectives))
    there, alone = run(three_mortals, mode, collectives, 50, storm)
    assert len(storm.killed) == 5
    assert_same_bits(there, alone)
