"""Thread teams: items of a schedule wait for words that other threads or processes write."""

import itertools
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from dpexec.engine import kernels

if not kernels.available():
    pytest.skip("needs numba", allow_module_level=True)

from dpexec.engine.kernels import collectives
from dpexec.engine.kernels.thread_team import Schedule
from dpexec.engine.threads import thread_team
from dpexec.engine.threads.prepared import Threads
from dpexec.engine.threads.thread_team import ThreadTeam

WORDS = 4
LINE = 8


class Steps:
    """Items in a chain, each of which adds one to a number and waits for a word.

    Args:
        size: how many threads work together.
        refuses: the item that refuses its values; None: none does.
    """

    def __init__(self, size=1, refuses=None):
        self.words = np.zeros((WORDS, LINE), np.int64)
        self.turn = np.ones(1, np.int64)
        self.posted = np.zeros((WORDS, LINE), np.int64)
        self._arguments = [
            np.array([address(self.posted[item]), address(self.turn)]) for item in range(WORDS)
        ]
        kernel = collectives.post.address
        tables = [np.array([[kernel, address(given)]], np.int64) for given in self._arguments]
        if refuses is not None:
            one = np.ones(1, np.int64)
            self._bad = np.array([1, 0, 1, 0, 0, 0, 0, 0, address(one), address(one)])
            self._kept = one
            tables[refuses] = np.array([[collectives.place.address, address(self._bad)]], np.int64)
        before = [[item - 1] if item else [] for item in range(WORDS)]
        wanted = {item: [address(self.words[item])] for item in range(WORDS)}
        threads = [item % size for item in range(WORDS)]
        self.schedule = Schedule(tables, before, threads, wanted, address(self.turn))
        self.team = ThreadTeam(Threads(size - 1) if size > 1 else None, size)

    @property
    def done(self):
        """How many items have said in this step that they ran."""
        return int((self.posted[:, 0] >= self.turn[0]).sum())


class Peers:
    """What the leading thread looks at.

    Args:
        act: called at every look.
    """

    beside = False

    def __init__(self, act, urgent=True):
        self._act, self.urgent = act, urgent

    def look(self):
        return self._act()


def address(array):
    return array.ctypes.data


@pytest.mark.parametrize("size", [1, 3])
def test_items_wait_for_words(size):
    steps = Steps(size)
    seen = []

    def let_go_on():
        seen.append(steps.done)
        steps.words[min(len(seen), WORDS) - 1, 0] = steps.turn[0]  # on busy machines asked again
        return True

    for turn in (1, 2, 5):
        steps.turn[0], seen[:] = turn, []
        assert steps.team.run(steps.schedule, Peers(let_go_on))
        assert seen[:2] == [0, 1]
        assert steps.done == WORDS


@pytest.mark.parametrize("size", [1, 2])
def test_words_come_from_another_thread(size):
    steps = Steps(size)

    def write():
        for item in range(WORDS):
            time.sleep(0.002)
            steps.words[item, 0] = 1

    other = threading.Thread(target=write)
    other.start()
    assert steps.team.run(steps.schedule)
    other.join()
    assert steps.done == WORDS


@pytest.mark.parametrize("size", [1, 3])
def test_an_item_refuses_while_others_wait(size):
    steps = Steps(size, refuses=1)
    steps.words[:2] = 1
    assert not steps.team.run(steps.schedule)
    assert steps.schedule.refused == 2
    assert steps.done == 1


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ConnectionError])
def test_what_looking_raises_stops_the_schedule(size, error):
    steps = Steps(size)
    steps.words[0] = 1

    def fail():
        if steps.done:
            raise error
        return False

    with pytest.raises(error):
        steps.team.run(steps.schedule, Peers(fail, urgent=False))
    steps.words[:] = 1
    time.sleep(0.01)
    assert steps.done == 1
    assert steps.team.run(steps.schedule)  # it is as good as new
    assert steps.done == WORDS


def test_lacking_names_the_words_that_are_due():
    steps, found = Steps(), []

    def look():
        found.append(steps.schedule.lacking())
        steps.words[len(found) - 1] = 1
        return True

    assert steps.team.run(steps.schedule, Peers(look))
    assert found[:WORDS] == [[address(word)] for word in steps.words]


def test_withheld_items_do_not_begin_until_they_are_released():
    steps = Steps()
    steps.words[:] = 1
    looks = []

    def look():
        looks.append(steps.schedule.begun(2))
        if len(looks) == 3:
            steps.schedule.release(2)
        return True

    def hold():
        assert steps.schedule.withhold(2)
        assert not steps.schedule.withhold(2)
        steps.words[1] = 1
        peers._act = look
        return True

    steps.words[1] = 0
    peers = Peers(hold)
    assert steps.team.run(steps.schedule, peers)
    assert len(looks) >= 3
    assert steps.done == WORDS
    assert not steps.schedule.withhold(2)


@pytest.mark.parametrize("last", [0, 1])
def test_items_note_the_word_that_came_last(last):
    words, turn = np.zeros((2, LINE), np.int64), np.ones(1, np.int64)
    table = np.zeros((0, 2), np.int64)  # of an item that only waits
    wanted = [address(word) for word in words]
    schedule = Schedule([table], [[]], [0], {0: wanted}, address(turn))
    notes = np.zeros((2, schedule.width), np.int64)
    schedule.note(address(notes))
    order = iter([1 - last, last, None])

    def one_more():
        coming = next(order)
        if coming is not None:
            words[coming, 0] = turn[0]
        return True

    team = ThreadTeam(None, 1)
    assert team.run(schedule, Peers(one_more))
    assert notes[0, 1] == wanted[last]
    assert team.run(schedule)  # nothing is lacking: the step's number is the same
    assert notes[1, 1] == 0


def test_who_has_waited_in_vain_spins_no_more_until_something_comes(monkeypatch):
    steps, turns = Steps(), []
    join = thread_team.thread_team.join

    def counted(board, header, thread, patience):
        turns.append(patience)
        return join(board, header, thread, patience)

    def look():
        if len(turns) == 4:
            steps.words[0] = 1
        elif len(turns) > 6:
            steps.words[:] = 1
        return False

    monkeypatch.setattr(thread_team.thread_team, "join", SimpleNamespace(native=counted))
    assert steps.team.run(steps.schedule, Peers(look, urgent=False))
    long, short = thread_team._PATIENCE, thread_team._SHORT_PATIENCE
    assert turns[:7] == [long, short, short, short, short, long, short]


class Carried(Peers):
    """What the leading thread does beside a chain of items, until it has looked often enough.

    Args:
        steps: whose words it writes, one at every look.
    """

    def __init__(self, steps):
        super().__init__(self._write)
        self._steps, self.threads = steps, set()

    @property
    def beside(self):
        return len(self.threads) < 1 or self._steps.done < WORDS - 1

    def _write(self):
        self.threads.add(threading.get_ident())
        self._steps.words[min(self._steps.done, WORDS - 1), 0] = self._steps.turn[0]
        return True


@pytest.mark.parametrize("size", [1, 3])
def test_another_thread_runs_items_while_the_leading_one_looks(size):
    steps, until = Steps(size), time.monotonic() + 30
    for turn in itertools.count(1):
        steps.turn[0], peers = turn, Carried(steps)
        assert steps.team.run(steps.schedule, peers)
        assert steps.done == WORDS
        assert peers.threads == {threading.get_ident()}
        if turn >= 20 and (steps.team.idents[size] or time.monotonic() > until):
            break  # the others may make a whole turn before it wakes up
    assert steps.team.idents[size] not in (0, threading.get_ident())


@pytest.mark.parametrize("error", [KeyboardInterrupt, ConnectionError])
def test_what_looking_beside_raises_stops_the_schedule(error):
    steps = Steps()
    steps.words[0] = 1

    def fail():
        if steps.done:
            raise error
        return False

    peers = Peers(fail)
    peers.beside = True
    with pytest.raises(error):
        steps.team.run(steps.schedule, peers)
    steps.words[:] = 1
    time.sleep(0.01)
    assert steps.done == 1
    assert steps.team.run(steps.schedule)
    assert steps.done == WORDS


def test_an_item_refuses_while_the_leading_thread_looks():
    steps = Steps(refuses=1)
    steps.words[:2] = 1
    peers = Peers(lambda: False)
    peers.beside = True
    assert not steps.team.run(steps.schedule, peers)
    assert steps.schedule.refused == 2
