"""The replicas of a run on their workers: where they live, and how they move.

A time in which all replicas keep their homes is an epoch. It ends when workers are lost or join,
and when a step failed. Workers then refuse tasks of that epoch, all replicas go back to the last
complete step, and replicas without a home get one. Their state comes from replicas that have the
same values, and from mirrors.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import dask

from dpexec.engine.cluster.client import losses
from dpexec.engine.cluster.client.candidates import Candidates
from dpexec.engine.cluster.client.lifetime import tell_homes, watch_client
from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.cluster.messages import Epoch, NewBinding
from dpexec.engine.cluster.worker import state as cluster_state
from dpexec.engine.cluster.worker.departure import hold_until_closed
from dpexec.engine.cluster.worker.own_state import own_names
from dpexec.engine.cluster.worker.state import Held
from dpexec.engine.cluster.worker.worker import KINDS, rehearse
from dpexec.engine.compile.plans.compilation import Compilation
from dpexec.engine.core.errors import ClusterError, StateLostError, WorkerLostError
from dpexec.engine.dask.annotations import of_ours
from dpexec.engine.dask.calling import call
from dpexec.engine.dask.reach import have_ended
from dpexec.engine.dask.waiting import Contact
from dpexec.engine.run.fetch import host_copy

__all__ = ["ReplicaGroup"]

_LOOK = 1.0  # seconds between looks at who has joined or left
_IMPORT = 1.5  # seconds in which most workers have imported dpexec

_NO_ADVICE = {"distributed.admin.large-graph-warning-threshold": "1 PB"}
"""Parameters come from the scope, so dask's advice to load data on the workers does not apply."""

_logger = logging.getLogger(__name__)
_counter = itertools.count()


class _Kept(NamedTuple):
    """The client's copy of the state of all replicas.

    Args:
        step: the step after which it was copied.
        parts: by replica, its own variables, and the variables that are equal on all.
    """

    step: int
    parts: dict[int, list[Any]]


class ReplicaGroup:
    """The replicas of a run.

    Args:
        contact: talks to the workers.
        token: names the run on the workers.
        spec: how program and plans are compiled.
        mirrored: whether own state of replicas is mirrored.

    Attributes:
        homes: the workers of the replicas.
        epoch: the present epoch.
        own: per replica, names of its own state: variables that differ from replica to replica.
        complete: number of the last step that all replicas have made.
        filled: whether the workers have values.
        latest: gives the bindings that steps are likely to run.

    Raises:
        ClusterError: there are no workers.
    """

    def __init__(self, contact: Contact, token: str, spec: Compilation, mirrored: bool) -> None:
        self._contact, self._spec, self._mirrored = contact, spec, mirrored
        self.epoch = Epoch(token, 0)
        self.complete, self.filled = -1, False
        self.latest: Callable[[], Sequence[NewBinding]] = tuple
        graph, _ = spec.graph()
        self.own = own_names(graph)
        self._mirror_anew = False
        self._kept: _Kept | None = None
        self._is_last = False  # whether only one of several workers is left
        self._candidates = Candidates(contact)
        self.homes = HomeTable([""] * len(graph.places))
        self._set_up()

    @property
    def mirrors(self) -> list[tuple[int, str]]:
        """The replicas that are mirrored, and the workers that mirror them."""
        buddies = [(device, self.homes.buddy(device)) for device in range(len(self.own))]
        return [(d, buddy) for d, buddy in buddies if buddy and self.mirrored[d]]

    def own_also(self, fed: Collection[str]) -> bool:
        """Note that persistable variables are fed: replicas may have different values from now on.

        Args:
            fed: names of the variables.

        Returns:
            Whether another epoch must begin, in which they are mirrored.
        """
        if all(own.issuperset(fed) for own in self.own):
            return False
        self.own = [own.union(fed) for own in self.own]
        self._mirror_anew = self.filled
        return self.filled

    @property
    def mirrored(self) -> list[frozenset[str]]:
        """Names of mirrored variables, per replica."""
        return self.own if self._mirrored else [frozenset() for _ in self.own]

    def call(
        self, function: Callable[..., Any], calls: Iterable[tuple[str, tuple[Any, ...]]], what: str
    ) -> list[Any]:
        """Run tasks on workers in the present epoch, from the last complete step.

        Args:
            function: takes the epoch, the step, and the arguments.
            calls: the worker and the arguments of each call.
            what: their purpose, for errors.

        Returns:
            The results of the calls.
        """
        futures = [self._submit(worker, function, self.complete, *args) for worker, args in calls]
        return self._contact.gather(futures, self.homes.workers, what)

    def _submit(self, worker: str, function: Callable[..., Any], step: int, *args: Any) -> Any:
        call = self.epoch, step, *args
        run = f"{self.epoch.token[:8]}-{self.epoch.number}-{next(_counter)}"
        key = f"{function.__name__}-{run}"  # keys of a step's tasks are tuples, see the dashboard
        with dask.config.set(_NO_ADVICE), of_ours():
            return self._contact.client.submit(function, *call, key=key, workers=[worker])

    # ---- who is there

    def look(self) -> bool:
        """Check which workers are wanted, and, from time to time, which have joined or left.

        Returns:
            Whether replicas should move to other workers.

        Raises:
            WorkerLostError: the worker of a replica has left.
            ClusterError: there is no wanted worker.
        """
        _ = self._contact.client  # an error if it is closed, though members still take orders
        if self._candidates.want():
            return True
        if time.monotonic() - self._candidates.looked < _LOOK and not self._is_last:
            return False
        return self.survey()

    def survey(self) -> bool:
        """Check which workers have joined or left, see :meth:`look`."""
        living = self._candidates.living()
        gone = {w: "has left the cluster" for w in self.homes.workers if w not in living}
        if gone:
            raise WorkerLostError(f"{losses.named(gone, self.homes)}", gone)
        fit, is_crowded = self._candidates.fit(living), self.homes.is_crowded
        return is_crowded(fit) and is_crowded(self._candidates.ready(fit, self._rehearse))

    def _rehearse(self, worker: str) -> Any:
        return self._submit(worker, rehearse, self.complete, self._spec, self.latest())

    # ---- another epoch

    def regroup(self, lost: Mapping[str, str], allowed: Sequence[int] = ()) -> None:
        """Begin another epoch: all replicas get living homes, and go to the same step.

        Args:
            lost: what is wrong with lost workers, by address.
            allowed: numbers of steps after the last complete one that need not be made again if
                all have made them.

        Raises:
            WorkerLostError: more workers were lost meanwhile; it can be tried again.
            StateLostError: no worker has the state of some replicas any more.
            ClusterError: there are no workers.
        """
        self.epoch = self.epoch._replace(number=self.epoch.number + 1)
        self._candidates.leave_out(lost)
        before = self.homes
        answers, silent = self._stop(self._candidates.living())
        self._candidates.leave_out(silent)
        held = {worker: found for worker, found in answers.items() if found is not None}
        step = losses.common_step(held, self.complete, allowed)
        if not self._candidates.fit(answers):
            raise WorkerLostError(f"{losses.named(silent, self.homes)}", silent)
        self._move(self._candidates.homes(before, answers), held, step)
        gone = {w: {**lost, **silent}.get(w, "is gone") for w in before.workers if w not in answers}
        out = before.workers.keys() - self.homes.workers.keys() - gone.keys()
        there = self._candidates.fit(out)
        losses.report(before, self.homes, gone | dict.fromkeys(there, "does not reach all others"))

    def _stop(self, workers: Sequence[str]) -> tuple[dict[str, Held | None], dict[str, str]]:
        """Let workers end the tasks of earlier epochs, however long these take.

        Returns:
            The state that each worker has, and what is wrong with workers that do not answer.
        """
        answers: dict[str, Held | None] = {}
        silent: dict[str, str] = {}
        left = list(workers)
        while left:
            homes = {worker: self.homes.workers.get(worker, ()) for worker in left}
            found, lost = self._contact.reach(
                cluster_state.advance, self.epoch, homes=homes, what="to end a step"
            )
            silent |= lost
            answers |= found
            left = [worker for worker, held in found.items() if held is not None and held.running]
        return {w: held for w, held in answers.items() if w not in silent}, silent

    def state_may_come(self) -> bool:
        """Whether a home that has left may still hand on its state, or a silent one may wake up."""
        there, homes = self._contact.workers(), self.homes.workers
        left = [worker for worker in homes if worker not in there]
        if any(self._candidates.is_left_out(worker) for worker in homes if worker in there):
            return True
        return not call(self._contact.client, have_ended, left)

    def restart(self) -> None:
        """Begin another epoch without any state; variables are sent before the next step."""
        client, token = self._contact.client, self.epoch.token
        watch_client(client, token, self._contact.limit, self._spec.places)  # of a new scheduler
        self.epoch = self.epoch._replace(number=self.epoch.number + 1)
        self.filled = False
        self._set_up()

    def _set_up(self) -> None:
        """Choose homes and make room there; elsewhere if workers are lost meanwhile.

        Raises:
            WorkerLostError: that happened too often.
        """
        self._candidates.want()
        for left in reversed(range(losses.ATTEMPTS)):
            try:
                living = self._candidates.living(begins=True)
                self.homes = self._candidates.homes(self.homes, living)
                self._make_room(self.homes.workers, self.complete)
                self._is_last = left < losses.ATTEMPTS - 1 and len(self.homes.workers) == 1
                break
            except WorkerLostError as error:
                if not left:
                    raise
                _logger.warning("%s: replicas get other homes", error)
                self._candidates.leave_out(error.lost)
                self.epoch = self.epoch._replace(number=self.epoch.number + 1)
        tell_homes(self._contact.client, self.epoch.token, self.homes.workers)

    def _make_room(self, homes: Mapping[str, Sequence[int]], step: int) -> None:
        """Let workers make what replicas need.

        Raises:
            WorkerLostError: some are gone, or cannot take replicas, as they lack a package.
        """
        args = cluster_state.setup, step, self._spec, list(self.homes.workers), self.filled
        futures = {worker: self._submit(worker, *args) for worker in homes}
        what = "to make room for replicas"
        if not self._contact.ended([*futures.values()], _IMPORT):  # or others have all threads
            self._contact.ask(os.getpid, homes=homes, what=what)  # who does not answer is lost now
            self._contact.reach(hold_until_closed, homes=homes, what=what)
        try:
            self._contact.gather([*futures.values()], homes, what)
        except ClusterError:
            raise
        except Exception as error:
            failed = [w for w, future in futures.items() if future.status == "error"]
            raise self._candidates.refused(failed, error) from error

    def _move(self, homes: HomeTable, held: Mapping[str, Held], step: int) -> None:
        """Bring all state to its homes and mirrors."""
        ready = {worker for worker, found in held.items() if found.has_room}
        for worker in homes.workers.keys() - ready:
            self._make_room({worker: homes.workers[worker]}, step)
        everybody = {worker: homes.workers.get(worker, ()) for worker in {**homes.workers, **held}}
        moved = {}
        for worker, devices in homes.workers.items():
            new = [d for d in devices if worker not in losses.having(held, d, step, "stores")]
            if new:
                moved[worker] = self._parts(worker, new, held, step)
        self._give(moved, step, False, everybody, "to move replicas")
        before, self.homes = len(self.homes.workers), homes
        self._is_last = len(homes.workers) == 1 and (before > 1 or self._is_last)
        mirrors: dict[str, dict[int, list[Any]]] = {}
        for device, worker in self.mirrors if self.filled else ():
            if self._mirror_anew or worker not in losses.having(held, device, step, "mirrors"):
                args = step, device, "stores", self.own[device]
                part = self._submit(homes.address[device], cluster_state.take, *args)
                mirrors.setdefault(worker, {})[device] = [part]
        self._give(mirrors, step, True, homes.workers, "to mirror replicas")
        mirrored = {w: {d for d, buddy in self.mirrors if buddy == w} for w in homes.workers}
        table = self.epoch, step, homes.workers, mirrored
        self._contact.ask(cluster_state.settle, *table, homes=everybody, what="to go on")
        self.complete, self._mirror_anew = step, False
        self.keep(step)
        tell_homes(self._contact.client, self.epoch.token, self.homes.workers)

    def keep(self, step: int, filled: bool = False) -> None:
        """Copy the state after a step to the client, while only one of several workers is left.

        No other worker could mirror it, and this worker may be lost for the same reason as others.

        Args:
            step: a step that all replicas have made.
            filled: whether the worker has just got its first values.

        Raises:
            WorkerLostError: the worker is gone; the copy of an earlier step stays.
        """
        if not (self._is_last and (filled or self.filled) and self._mirrored):
            self._kept = None
            return
        (worker, devices), *_ = self.homes.workers.items()
        first = devices[0]  # gives the variables that are equal on all replicas
        wanted: list[tuple[Any, ...]] = [(d, "stores", self.own[d]) for d in devices]
        wanted.append((first, "stores", None, self.own[first]))
        tasks = [self._submit(worker, cluster_state.take, step, *args) for args in wanted]
        found = self._contact.gather(tasks, self.homes.workers, "to copy state to the client")
        *own, common = ({name: host_copy(value) for name, value in part.items()} for part in found)
        self._kept = _Kept(step, {d: [part, common] for d, part in zip(devices, own, strict=True)})

    def _give(
        self,
        parts: Mapping[str, Mapping[int, Sequence[Any]]],
        step: int,
        mirrored: bool,
        homes: Mapping[str, Sequence[int]],
        what: str,
    ) -> None:
        """Make workers homes or mirrors of replicas, whose state comes in parts."""
        give = cluster_state.give
        futures = [self._submit(w, give, step, mirrored, found) for w, found in parts.items()]
        self._contact.gather(futures, homes, what)

    def _parts(
        self, worker: str, devices: Sequence[int], held: Mapping[str, Held], step: int
    ) -> dict[int, list[Any]]:
        """Tasks that give a worker the state of replicas; variables equal on all come once.

        Raises:
            StateLostError: no worker has a part of the state.
        """
        if not self.filled:
            return {device: [] for device in devices}
        sources = losses.whole(held, range(len(self.own)), step)
        if not sources and (kept := self._kept_after(step)):
            return {device: kept[device] for device in devices}
        if not sources:
            raise StateLostError(losses.what_is_lost(devices[0], self.homes, self._mirrored))
        own = {device: self._own_part(device, worker, held, step) for device in devices}
        home, first, kind = min(sources, key=lambda source: self._distance(source[0], worker))
        common = self._part(home, worker, step, first, kind, None, self.own[first])
        return {device: [*part, common] for device, part in own.items()}

    def _kept_after(self, step: int) -> Mapping[int, list[Any]] | None:
        """The client's copy of all replicas after a step; None if it has none."""
        return self._kept.parts if self._kept is not None and self._kept.step == step else None

    def _distance(self, home: str, worker: str) -> int:
        """How far state is from a worker: 0 on itself, 1 on a worker that it reaches, else 2."""
        return 0 if home == worker else 1 if self._contact.reachability.between(home, worker) else 2

    def _part(self, home: str, worker: str, step: int, device: int, *args: Any) -> Any:
        """A task that gives state of a replica; its result if the worker cannot reach its home."""
        part = self._submit(home, cluster_state.take, step, device, *args)
        if self._distance(home, worker) < 2:
            return part
        return self._contact.gather([part], {home: (device,)}, "to move replicas")[0]

    def _own_part(self, device: int, worker: str, held: Mapping[str, Held], step: int) -> list[Any]:
        """The tasks that give a worker a replica's own state; empty if it has none."""
        if not self.own[device]:
            return []
        for kind in KINDS:
            there = losses.having(held, device, step, kind)
            if there:
                home = min(there, key=lambda home: self._distance(home, worker))
                return [self._part(home, worker, step, device, kind, self.own[device])]
        if kept := self._kept_after(step):  # the last one was lost while replicas moved from it
            return kept[device][:1]
        raise StateLostError(losses.what_is_lost(device, self.homes, self._mirrored))
