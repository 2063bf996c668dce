"""Random faults during training change no bit; ``make chaos`` runs longer."""

import pytest

from dpexec.engine.cluster.client import replica_group
from tests.distributed.chaos import Storm, run
from tests.engine.run.nets import assert_same_bits


@pytest.mark.parametrize(
    ("place", "mode", "collectives", "replicas"),
    [
        ("one host", "reduce", "auto", 3),
        ("one host", "allreduce", "auto", 6),
        ("one host", "reduce", "tasks", 3),
        ("many hosts", "reduce", "auto", 3),
    ],
)
def test_storms_change_no_bit(monkeypatch, place, mode, collectives, replicas):
    monkeypatch.setattr(replica_group, "_LOOK", 0.1)
    storm = Storm(steps=24, kills=2, others=1, seed=len(mode + collectives))
    there, alone = run(place, mode, collectives, storm, replicas=replicas)
    assert {fault.way for fault in storm.faults} >= {"kill", "stop", "leave", "cut"}
    assert_same_bits(there, alone)
