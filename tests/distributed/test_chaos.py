"""Twenty workers killed at random in two hundred steps change no bit; ``make chaos`` kills more."""

import pytest

from tests.distributed.chaos import COLLECTIVES, MODES, Storm, run
from tests.distributed.clusters import workers
from tests.runtime.nets import assert_same_bits


@pytest.fixture(scope="module")
def cluster():
    with workers(3) as found:
        yield found


@pytest.mark.parametrize("collectives", COLLECTIVES)
@pytest.mark.parametrize("mode", MODES)
def test_killed_workers_change_no_bit(cluster, mode, collectives):
    cluster.wait_for(3)
    storm = Storm(cluster, steps=50, kills=5, seed=len(mode + collectives))
    there, alone = run(cluster, mode, collectives, 50, storm)
    assert len(storm.killed) == 5
    assert_same_bits(there, alone)
