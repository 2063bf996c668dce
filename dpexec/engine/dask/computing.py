"""Computes blocks of Dask collections on workers that can reach the data of the blocks.

Dask assumes that every worker reaches every other one: a task that needs data of an unreachable
worker waits for ever, one that needs data of a silent worker for minutes. So while blocks are
computed, workers are asked for whom they wait. If they wait in vain, the blocks are computed again
on workers that answer and reach all data.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dask._task_spec import Alias, GraphNode, convert_legacy_graph, fuse_linear_task_spec
from dask.core import flatten
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.optimization import cull
from distributed import CancelledError, Future
from distributed.client import futures_of

from dpexec.engine.core.errors import ClusterError, WorkerLostError
from dpexec.engine.dask.blocks import brought, computed_with, is_frame
from dpexec.engine.dask.fitness import fitting
from dpexec.engine.dask.plugins import introduce
from dpexec.engine.dask.reach import awaited, let_go
from dpexec.engine.dask.renaming import new_names

if TYPE_CHECKING:
    from dpexec.engine.dask.waiting import Contact

__all__ = ["Computing"]

_LOOK = 0.5  # seconds between looks at what is done
_ATTEMPTS = 3
"""How often parts are brought to the same worker: dask may drop them before they are used, since
other workers hold them, too. And how often blocks are sent if the client loses its scheduler."""
_OVER = 2.0  # seconds in which tasks that were given up end; others may want some of them, too
_WHAT = "to compute fed Dask collections"
_WHY_LOST = {
    "scheduler-connection-lost": "the client lost its connection to the scheduler",
    "scheduler-restart": "the scheduler was restarted",
    "lost dependencies": "a worker was lost, or tasks were cancelled",
    "unknown": "a worker was lost, or tasks were cancelled",
}
"""Causes in words, by the reasons that dask gives."""

_logger = logging.getLogger(__name__)


class Computing:
    """Computes blocks, and facts about each; blocks stay on the workers.

    Args:
        contact: the connection to the cluster.
        parts: the blocks of each collection.
        steps: functions applied to a block one after another. The result of the last one but one is
            the block of the feed; the client gets the result of the last one.
        anew: whether to give all tasks new names, which is done in any case for results that only
            silent workers hold: dask takes a task of a known name for done.
    """

    def __init__(
        self,
        contact: Contact,
        parts: Sequence[Sequence[Any]],
        steps: Sequence[Callable[[Any], Any]],
        anew: bool = False,
    ) -> None:
        self._contact, self._parts, self._steps = contact, parts, steps
        self._anew = anew
        self._workers: list[str] = []
        self._others = 0  # workers that have no dpexec
        self._silent: dict[str, str] = {}
        self._pinned: set[str] = set()  # who has to be there
        self._sent, self._made = list[Any](), list[Any]()
        self._brought: dict[tuple[str, ...], dict[Any, Any]] = {}
        """For each worker the data that it cannot get from others, by key."""

    def run(self) -> tuple[list[list[Any]], list[list[Any]]]:
        """Compute the blocks; returns their futures, and the facts about them.

        Raises:
            WorkerLostError: no worker can reach the data of a block, or workers are silent.
            SchedulerLostError: the scheduler is silent.
            ClusterError: dask has given up what the blocks are made of.
            Exception: what computing them raised.
        """
        self._contact.workers()  # whether the scheduler is there
        self._silent = dict.fromkeys(self._contact.silent(), "does not answer")
        introduce(self._contact.client, self._contact.limit)
        in_vain = forgotten = 0
        while True:
            there = self._contact.workers()
            self._workers = fitting(self._contact, there, soon=True)
            self._others = len(there) - len(self._workers)
            known, self._pinned, self._brought = self._known(), set(), {}
            self._sent, self._made = [], []
            try:
                found, why = self._attempt()
            except (CancelledError, WorkerLostError) as error:
                if not _gave_up(error):
                    raise
                self._check_parts()
                forgotten += 1
                if forgotten == _ATTEMPTS:
                    raise WorkerLostError(f"dask gave up {_WHAT} ({error})", {}) from error
                continue
            if found is not None:
                return found
            self._give_up()
            in_vain += bool(self._brought)
            again = self._brought and in_vain < _ATTEMPTS
            if self._known() == known and not again:
                raise WorkerLostError(f"{why}, awaited {_WHAT}", {})
            _logger.warning("%s: fed Dask collections are computed again, elsewhere", why)

    def _attempt(self) -> tuple[tuple[list[list[Any]], list[list[Any]]] | None, str]:
        """The blocks and their facts; or None, and why waiting for them is in vain."""
        pairs = computed_with(self._compute, self._parts)
        blocks = [[block for block, _ in found] for found in pairs]
        ends = [end for found in pairs for _, end in found]
        if why := self._wait(ends):
            return None, why
        facts = iter(self._contact.gather(ends, self._homes_of(ends), _WHAT))
        return (blocks, [[next(facts) for _ in found] for found in pairs]), ""

    def _check_parts(self) -> None:
        """Make sure that dask has not given up what the blocks are made of.

        Raises:
            ClusterError: it has: nobody else knows how to compute that again.
        """
        parts = itertools.chain.from_iterable(self._parts)
        lost = [future for part in parts for future in _futures_of(part) if future.cancelled()]
        if lost:
            reason = lost[0]._state.exception.reason
            why = _WHY_LOST.get(reason, f"dask gives the reason {reason!r}")
            raise ClusterError(
                f"{why}, and with it what persist, compute or scatter had made of a fed collection "
                f"is lost ({lost[0].key}, ...): make that again, and feed it. Variables are those "
                "of the last complete step"
            )

    def _give_up(self) -> None:
        """Remove all tasks that were sent: dask would take one of them for a new one."""
        keys = [future.key for future in self._made]
        for future in self._made:
            future.release()
        homes: Mapping[str, Sequence[int]] = dict.fromkeys(self._answering(), ())
        apart = set(self._contact.reachability.among(homes))
        apart.update(frozenset(pair) for pair in itertools.product(homes, self._silent))
        self._contact.reach(let_go, keys, apart, _OVER, homes=homes, what=_WHAT)

    def _known(self) -> tuple[Any, ...]:
        """What places and names depend on."""
        there = self._contact.workers()
        return there, set(self._contact.reachability.among(there)), set(self._silent), self._anew

    # ---- sending

    def _compute(self, blocks: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Send some blocks; returns the futures of each block and of its facts."""
        client, found = self._contact.client, dict[int, tuple[Any, Any]]()
        for workers, chosen in self._places(blocks).items():
            self._pinned.update(workers)
            where = {"workers": list(workers), "allow_other_workers": False} if workers else {}
            if copies := self._brought.get(workers):
                limit = self._contact.limit
                client.scatter(copies, workers=list(workers), direct=False, timeout=limit)
            some = [blocks[i] for i in chosen]
            self._sent += some
            sent = _without_between(some, self._anew or self._is_made_in_silence(some))
            made = [client.compute(sent, **where)]
            for step in self._steps:
                made.append(client.map(step, made[-1], pure=not workers, **where))
            self._made += [future for futures in made for future in futures]
            found.update(zip(chosen, zip(made[-2], made[-1], strict=True), strict=True))
        return [found[index] for index in range(len(blocks))]

    def _places(self, blocks: Sequence[Any]) -> Mapping[tuple[str, ...], Sequence[int]]:
        """Numbers of blocks by the workers that may compute them; () means all workers.

        Blocks share data, so all go to the same workers, if some can compute them.
        """
        everywhere: dict[tuple[str, ...], Sequence[int]] = {(): range(len(blocks))}
        apart = self._contact.reachability.among(self._workers)
        if not (self._silent or self._others or apart):
            return everywhere
        needed = [_data_of(block) for block in blocks]
        held = self._contact.holders([key for keys in needed for key in keys])
        self._say_who_is_awaited(held)
        if common := self._fit([held.get(key, ()) for keys in needed for key in keys]):
            return {common: range(len(blocks))}
        found: dict[tuple[str, ...], list[int]] = {}
        for index, keys in enumerate(needed):
            holders = [held.get(key, ()) for key in keys]
            workers = self._fit(holders) or self._bring(keys, holders)
            found.setdefault(workers, []).append(index)
        return found

    def _say_who_is_awaited(self, held: Mapping[Any, Sequence[str]]) -> None:
        """Warn of silent workers that alone hold what a feed is made of, such as persisted data.

        Dask makes that again when it has given them up, and only dask knows how.
        """
        for worker in {found[0]: None for found in held.values() if self._is_silent(found)}:
            _logger.warning(
                "worker %s does not answer, and it alone holds what a feed is made of: waiting "
                "until it answers, or dask gives it up (distributed.scheduler.worker-ttl)",
                worker,
            )

    def _is_made_in_silence(self, blocks: Sequence[Any]) -> bool:
        """Whether silent workers alone hold what tasks of blocks have made, in an earlier epoch."""
        if not self._silent:
            return False
        return any(map(self._is_silent, self._contact.holders(_made_by(blocks)).values()))

    def _is_silent(self, holders: Sequence[str]) -> bool:
        """Whether data is held, by silent workers only."""
        return bool(holders) and self._silent.keys() >= set(holders)

    def _fit(self, holders: Iterable[Sequence[str]]) -> tuple[str, ...]:
        """Workers that reach each other and some holder of everything; those that hold most first.

        Args:
            holders: for each datum that is needed its workers; none if it is not computed yet. It
                is awaited from whoever comes to have it, as is what silent workers hold.
        """
        wanted = [found for found in holders if found and not self._is_silent(found)]
        fit = [w for w in self._answering() if all(self._reaches(w, some) for some in wanted)]
        fit.sort(key=lambda worker: -sum(worker in found for found in wanted))
        chosen: list[str] = []
        for worker in fit:
            if all(self._contact.reachability.between(worker, other) for other in chosen):
                chosen.append(worker)
        return tuple(chosen)

    def _answering(self) -> list[str]:
        return [worker for worker in self._workers if worker not in self._silent]

    def _reaches(self, worker: str, holders: Sequence[str]) -> bool:
        between, silent = self._contact.reachability.between, self._silent
        return any(between(worker, holder) and holder not in silent for holder in holders)

    def _bring(self, keys: Sequence[Any], holders: Sequence[Sequence[str]]) -> tuple[str, ...]:
        """A worker that reaches most of the data; the client brings the rest there.

        Raises:
            WorkerLostError: no worker answers.
        """
        missing = {
            worker: [
                (key, found)
                for key, found in zip(keys, holders, strict=True)
                if found and not (self._reaches(worker, found) or self._is_silent(found))
            ]
            for worker in self._answering()
        }
        if not missing:
            raise WorkerLostError(f"no worker answers, awaited {_WHAT}", self._silent)
        worker = min(missing, key=lambda worker: len(missing[worker]))
        for key, found in missing[worker]:
            home = next(holder for holder in found if holder not in self._silent)
            _logger.warning("what %s holds for a feed goes through the client to %s", home, worker)
            copies = self._brought.setdefault((worker,), {})
            future: Any = Future(key, client=self._contact.client)
            copies[key] = brought(self._contact, home, _WHAT, _same, future)
        return (worker,)

    # ---- waiting

    def _wait(self, ends: Sequence[Any]) -> str:
        """Wait for tasks; returns why waiting is in vain, if it is."""
        pause = self._contact.reachability.pause
        look = time.monotonic() + pause
        while not self._ended(ends):
            homes: Mapping[str, Sequence[int]] = dict.fromkeys(self._contact.workers(), ())
            lost = self._contact.missing(homes, _WHAT)
            if time.monotonic() > look or lost.keys() - self._silent.keys():
                if why := self._in_vain(homes, lost):
                    return why
                look = time.monotonic() + pause
        return ""

    def _ended(self, ends: Sequence[Any]) -> bool:
        """Whether all tasks have ended, or one has failed."""
        return self._contact.ended(ends, _LOOK) or any(end.status == "error" for end in ends)

    def _in_vain(self, homes: Mapping[str, Sequence[int]], lost: Mapping[str, str]) -> str:
        """Which workers wait for others that they do not reach, are silent, or have left.

        Args:
            homes: all workers.
            lost: what is known to be wrong with some.
        """
        there = {worker: () for worker in homes if worker not in lost}
        lost = {**lost, **self._contact.check(there, _WHAT)}
        told, others = self._contact.reach(awaited, homes=there, what=_WHAT)
        lost = {**lost, **others}
        apart = self._contact.reachability.among(homes)
        cut = {
            apart[frozenset((worker, holder))]: None
            for worker, found in told.items()
            for holders in found.values()
            if all(frozenset((worker, holder)) in apart for holder in holders)
            for holder in holders
        }
        gone = [worker for worker in sorted(self._pinned) if worker not in homes]
        silent = {worker: why for worker, why in lost.items() if worker not in self._silent}
        self._silent |= silent
        wrong = [f"worker {worker} {why}" for worker, why in silent.items()]
        if not (self._anew or silent) and self._is_for_ever(told.values()):
            self._anew = True
            wrong.append("silent workers alone hold what others need")
        return "; ".join([*cut, *wrong, *(f"worker {worker} has left" for worker in gone)])

    def _is_for_ever(self, told: Iterable[Mapping[Any, Sequence[str]]]) -> bool:
        """Whether workers wait for what silent ones have made, and others can make anew."""
        keys = {k for found in told for k, holders in found.items() if self._is_silent(holders)}
        return bool(keys) and not keys.isdisjoint(_made_by(self._sent))

    def _homes_of(self, ends: Sequence[Any]) -> Mapping[str, Sequence[int]]:
        found = self._contact.holders([end.key for end in ends]).values()
        return dict.fromkeys([worker for holders in found for worker in holders], ())


def _without_between(blocks: Sequence[Any], anew: bool) -> Sequence[Any]:
    """The same blocks with a task for what only one other needs, as long as that is all it needs.

    So nothing in between is kept, and measured: dask asks every column of a dataframe for its
    size. Nor does the graph of all blocks travel with some of them.

    Args:
        blocks: the blocks.
        anew: see :class:`Computing`.
    """
    if anew:
        blocks = [one for b in blocks for one in (b.to_delayed() if is_frame(b) else [b])]
    if not all(isinstance(block, Delayed) for block in blocks):
        return blocks
    known = dict(HighLevelGraph.merge(*(block.__dask_graph__() for block in blocks)))
    keys = [block.key for block in blocks if block.key in known]
    needed, _ = cull(known, keys)
    plain, names = convert_legacy_graph(needed), dict[Any, Any]()
    if anew:
        names = new_names(plain)
        kept = {key: task for key, task in plain.items() if key not in names}
        plain = kept | {new: plain[key].substitute(names, new) for key, new in names.items()}
    tasks = fuse_linear_task_spec(plain, [names.get(key, key) for key in keys])
    found = []
    for block in blocks:
        end = tasks.get(names.get(block.key, block.key))
        if end is None:  # the scheduler has it: graphs hold a future of it, or nothing
            found.append(block)
        else:
            found.append(Delayed(end.target if isinstance(end, Alias) else end.key, tasks))
    return found


def _gave_up(error: BaseException) -> bool:
    """Whether an error only says that dask has given tasks up, as it does without a connection."""
    return isinstance(error, CancelledError) or isinstance(error.__cause__, CancelledError)


def _same(value: Any) -> Any:
    return value


def _data_of(block: Any) -> list[Any]:
    """The keys of what a block is made of, and that its graph does not make."""
    graph = _graph_of(block)
    made = {key for key, task in graph.items() if not isinstance(task, Future)}
    needed = {future.key: None for future in _futures_of(block)}
    for task in graph.values():  # in lists of Delayed, dask leaves only the keys of futures
        if isinstance(task, GraphNode):
            needed.update(dict.fromkeys(task.dependencies))
    return [key for key in needed if key not in made]


def _futures_of(block: Any) -> list[Any]:
    """Futures in the graph of a block: data that is on workers, or will be."""
    return list(futures_of(_graph_of(block)))


def _made_by(blocks: Iterable[Any]) -> list[Any]:
    """The keys of all tasks in the graphs of blocks."""
    return [k for b in blocks for k, v in _graph_of(b).items() if not isinstance(v, Future)]


def _graph_of(block: Any) -> dict[Any, Any]:
    """The tasks of a block by key; also those of its neighbours, in graphs of dataframes."""
    graph = block.__dask_graph__()
    if isinstance(graph, HighLevelGraph):  # of the whole collection
        graph = graph.cull(set(flatten(block.__dask_keys__())))
    return dict(graph)
