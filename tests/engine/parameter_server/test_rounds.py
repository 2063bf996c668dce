"""Rounds of a parameter server: who waits for whom, and bounded staleness."""

import threading
import time

import numpy as np
import pytest

from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.exchange.wire import GangError
from dpexec.engine.parameter_server.rounds import UpdateRounds

SOON, NEVER = 0.1, 20


class Sum:
    """Adds all gradients to its parameter; of the table, gradients change single rows."""

    params = ("w", "table")
    tables = frozenset({"table"})

    def __init__(self, gradients):
        self.gradients = gradients
        self.values = {"w": np.zeros(1), "table": np.zeros((9, 1))}
        self.updates = []

    corrects = False

    def run(self, gradients, seen):
        self.updates.append(sorted(gradients))
        self.values["w"] += sum(gradients.values())
        rows = np.array([len(self.updates)])
        self.values["table"][rows] = 1
        return {"table": rows}

    def value(self, name):
        return self.values[name]


def synchronous(trainers, limit=NEVER):
    update = Sum([f"g.trainer_{trainer}" for trainer in range(trainers)])
    rounds = UpdateRounds(update, trainers, None, limit)
    for trainer in range(trainers):
        rounds.arrive(trainer)
    return rounds, update


def asynchronous(bound, limit=NEVER):
    update = Sum(["g"])
    rounds = UpdateRounds(update, 2, bound, limit)
    for trainer in range(2):
        rounds.arrive(trainer)
    return rounds, update


def on_thread(function, *args):
    found = []
    thread = threading.Thread(target=lambda: found.append(function(*args)), daemon=True)
    thread.start()
    return thread, found


def one(value=1.0):
    return {"g": np.full(1, value)}


def test_a_round_is_one_update_with_the_gradients_of_all():
    rounds, update = synchronous(2)
    thread, found = on_thread(rounds.push, 1, one(2.0))
    thread.join(SOON)
    assert thread.is_alive() and not update.updates
    assert rounds.push(0, one(1.0))["w"] == 3
    thread.join(NEVER)
    assert found[0]["w"] == 3 and update.updates == [["g.trainer_0", "g.trainer_1"]]


def test_who_is_done_is_waited_for_no_more():
    rounds, update = synchronous(2)
    thread, _ = on_thread(rounds.push, 1, one())
    thread.join(SOON)
    assert thread.is_alive()
    rounds.leave(0)
    thread.join(NEVER)
    assert not thread.is_alive() and update.updates == [["g.trainer_1"]]
    assert not rounds.over
    rounds.leave(1)
    assert rounds.over


def test_a_trainer_is_as_many_steps_ahead_as_the_bound_allows():
    rounds, update = asynchronous(bound=2)
    assert [float(rounds.push(0, one())["w"][0]) for _ in range(2)] == [1, 2]
    thread, _ = on_thread(rounds.push, 0, one())
    thread.join(SOON)
    assert thread.is_alive(), "three steps ahead"
    assert len(update.updates) == 3, "its gradients count at once, all the same"
    rounds.push(1, one())
    thread.join(NEVER)
    assert not thread.is_alive()


def test_bound_zero_is_lockstep_and_the_last_one_is_free():
    rounds, _ = asynchronous(bound=0)
    thread, _ = on_thread(rounds.push, 0, one())
    thread.join(SOON)
    assert thread.is_alive()
    rounds.leave(1)
    thread.join(NEVER)
    assert not thread.is_alive()
    rounds.push(0, one())


def test_of_tables_just_the_rows_come_that_changed_since():
    rounds, _ = asynchronous(bound=5)
    first = rounds.pull(1)
    assert not isinstance(first["table"], SelectedRows)
    for _ in range(3):
        rounds.push(0, one())
    assert rounds.push(0, one())["table"].rows() == [4]
    answer = rounds.push(1, one())["table"]
    assert (answer.rows(), answer.height()) == ([1, 2, 3, 4, 5], 9)
    np.testing.assert_array_equal(answer.value, np.ones((5, 1)))


def test_who_keeps_others_waiting_is_named():
    rounds, update = synchronous(3, limit=SOON)
    with pytest.raises(GangError, match=r"trainers 0, 2 sent no gradients of step 0 for 0\.1 s"):
        rounds.push(1, one())
    assert not update.updates
    with pytest.raises(GangError, match="trainers 0, 2"):
        rounds.push(0, one())


def test_trainers_that_never_come_are_named():
    rounds = UpdateRounds(Sum([]), 2, None, SOON)
    rounds.arrive(0)
    rounds.check_arrivals("")
    time.sleep(SOON)
    with pytest.raises(GangError, match=r"trainer 1 did not come within 0\.1 s"):
        rounds.check_arrivals("")


def test_other_gradients_than_due_are_refused():
    rounds, _ = synchronous(2)
    with pytest.raises(GangError, match="all processes must build the same program"):
        rounds.push(0, {"h": np.zeros(1)})
    with pytest.raises(GangError, match="all processes must build the same program"):
        rounds.push(0, {"g.trainer_1": np.zeros(1)})


def test_a_failed_update_ends_everything():
    rounds, update = synchronous(1)
    update.run = lambda gradients, seen: 1 / 0
    with pytest.raises(ZeroDivisionError):
        rounds.push(0, one())
    assert rounds.over and isinstance(rounds.error, ZeroDivisionError)
