"""Tasks that dask loses or forgets: no run waits for them for ever."""

import pytest
from distributed import Status

from dpexec.engine.cluster.client import gang_lines
from dpexec.engine.cluster.client.gang_lines import GangLines
from dpexec.engine.core.errors import WorkerLostError
from tests.distributed.faults import disturbed, fail
from tests.distributed.test_resident import gang, residents
from tests.engine.run.nets import Reduce, assert_same_bits, batches, classifier, train
from tests.waiting import until

STEPS = 6
TOLD = "dpexec.engine.cluster.gang_messages:OutcomesToTell.encode"
"""What a member does with what became of its step."""


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_scheduler_that_has_more_to_say_than_a_greeting(pair, collectives):
    """Dask's attempt to connect again then ends with an error, and nothing hears the scheduler."""
    heard = []

    def cut():
        """Let a message be in the way when the client comes back, once."""

        def talk(dask_scheduler):
            greet = dask_scheduler.client_comms

            class Talking(type(greet)):
                def __setitem__(self, client, comm):
                    dask_scheduler.client_comms = greet
                    comm.send({"op": "event", "topic": "none", "event": (0, "more to say")})
                    greet[client] = comm

            dask_scheduler.client_comms = Talking(greet)

        pair.run_on_scheduler(talk)
        heard.append(pair._handle_report_task)
        pair.loop.add_callback(pair.scheduler_comm.comm.abort)
        until(heard[0].done)
        assert isinstance(heard[0].exception(), AssertionError)

    def need_tasks():
        if collectives == "gang":
            fail(pair, sorted(pair.nthreads())[0], TOLD, 1)

    feeds = disturbed(batches(STEPS), {2: cut, 4: need_tasks})
    run = train(classifier(), feeds, 2, scheduler=pair, collectives=collectives)
    assert_same_bits(run, train(classifier(), batches(STEPS), 2))
    assert not pair._handle_report_task.done()


@pytest.mark.parametrize("rank", [0, 1])
def test_member_that_fails_outside_of_a_step_is_replaced(pair, rank):
    """Nobody would take orders on its worker, which answers nevertheless."""

    def fails():
        fail(pair, sorted(pair.nthreads())[rank], TOLD, 1)

    run = gang(disturbed(batches(STEPS), {3: fails}), mode=Reduce, scheduler=pair)
    assert_same_bits(run, train(classifier(), batches(STEPS), 2))
    # 2: dask takes the client's connection for the one that an earlier test cut, during set-up
    assert run.compiled._engine._cluster.group.epoch.number in (1, 2)


def test_member_that_fails_again_and_again_is_an_error_that_says_why(pair):
    def fails():
        for call in range(1, 6):
            fail(pair, sorted(pair.nthreads())[0], TOLD, call)

    text = r"5 times at the same step.* takes no orders any more \(ValueError: failed on purpose"
    with pytest.raises(WorkerLostError, match=text):
        gang(disturbed(batches(STEPS), {3: fails}), scheduler=pair)
    assert_same_bits(gang(batches(2), scheduler=pair), train(classifier(), batches(2), 2))


def test_tasks_that_dask_has_forgotten_take_orders_nevertheless(pair, monkeypatch):
    """As when the client has lost the scheduler: the gang goes on."""
    monkeypatch.setattr(gang_lines, "_LOOK", 0.0)  # each wait looks for tasks
    made, opened = [], GangLines.open
    monkeypatch.setattr(
        GangLines, "open", lambda lines, by: made.append(lines) or opened(lines, by)
    )

    def forget():
        for task in made[0]._tasks:
            task.cancel(force=True)
        until(lambda: all(task.done() for task in made[0]._tasks))

    run = gang(disturbed(batches(STEPS), {3: forget}), scheduler=pair)
    assert_same_bits(run, train(classifier(), batches(STEPS), 2))
    assert len(made) == 1


def test_task_of_a_member_that_is_cancelled_is_sent_again(pair, monkeypatch):
    """As dask does when it has lost the client: the next order would wait for ever."""
    send, lost = GangLines._send_task, []

    def cancel(lines, part):
        monkeypatch.setattr(GangLines, "_send_task", send)
        lost.append(pair.submit(int, pure=False, workers=["tcp://127.0.0.1:1"]))
        lost[0].cancel()
        return lost[0]

    def rest():
        until(lambda: not residents(pair), pause=0.1)
        monkeypatch.setattr(GangLines, "_send_task", cancel)

    run = gang(disturbed(batches(STEPS), {3: rest}), scheduler=pair)
    assert len(lost) == 1
    assert_same_bits(run, train(classifier(), batches(STEPS), 2))


def pause(dask_worker):
    """As dask does when the memory of a worker is nearly full."""
    dask_worker.periodic_callbacks["memory_monitor"].stop()
    dask_worker.status = Status.paused


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_paused_worker_counts_as_lost_after_the_limit(mortals, collectives):
    """No task begins there, neither one of a step nor that of a member which has rested."""
    first, second = mortals.addresses()

    def rest():
        mortals.client.run(pause, workers=[second])
        until(lambda: not residents(mortals.client), pause=0.1)

    feeds = disturbed(batches(STEPS), {3: rest})
    options = {"scheduler": mortals.client, "collectives": collectives, "collective_timeout": 2}
    run = train(classifier(), feeds, 2, Reduce, **options)
    assert_same_bits(run, train(classifier(), batches(STEPS), 2))
    assert run.compiled._engine._cluster.address == [first] * 2
    mortals.lose(second)
