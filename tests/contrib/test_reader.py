"""``distributed_batch_reader`` deals batches out to the trainers of a job."""

import pytest

from dpexec.contrib import distributed_batch_reader


@pytest.mark.parametrize(("trainer", "batches"), [(0, [0, 3]), (1, [1, 4]), (2, [2, 5])])
def test_every_trainer_gets_its_share_of_whole_rounds(monkeypatch, trainer, batches):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    monkeypatch.setenv("PADDLE_TRAINER_ID", str(trainer))
    reader = distributed_batch_reader(lambda: iter(range(8)))
    assert list(reader()) == batches
    assert list(reader()) == batches, "once for each epoch"


def test_a_single_trainer_gets_everything(monkeypatch):
    monkeypatch.delenv("PADDLE_TRAINERS_NUM", raising=False)
    monkeypatch.delenv("PADDLE_TRAINER_ID", raising=False)
    assert list(distributed_batch_reader(lambda: range(3))()) == [0, 1, 2]


def test_a_trainer_must_be_one_of_them(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "2")
    with pytest.raises(ValueError, match="PADDLE_TRAINER_ID is 2"):
        distributed_batch_reader(lambda: range(3))
