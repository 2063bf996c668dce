"""The jobs of a step on workers.

A job is a dask task, see :mod:`dpexec.engine.cluster.client.jobs`. The description of its work is
sent with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from distributed import get_worker

from dpexec.engine.cluster.messages import BindingKey, Feeding, Noted, StepOf, Value
from dpexec.engine.cluster.worker.actions import Action, Takes
from dpexec.engine.cluster.worker.exports import Exports, exported
from dpexec.engine.cluster.worker.recording import noted_on_worker
from dpexec.engine.cluster.worker.telling import copy_to_send
from dpexec.engine.cluster.worker.worker import WorkerReplicas, at_work
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.copies import values_on
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.run.fetch import host_copy

__all__ = ["JobOf", "Storing", "Work", "fetch", "run_jobs"]


class Storing(NamedTuple):
    """What the last job of a replica stores, and returns.

    Args:
        takes: values that come from other workers before it stores.
        fed: names of feeds that also set a persistable variable.
        own: names of variables that are mirrored.
        fetches: whether it returns the fetched values; if not, it returns the mirrored ones.
    """

    takes: Takes
    fed: Sequence[str]
    own: Sequence[str]
    fetches: bool


class Work(NamedTuple):
    """The work of a job.

    Args:
        device: the replica that it works for.
        feeding: the replica's feed, if the job begins the step of the replica.
        actions: the tasks of the plan that are run, and shares of sums.
        gives: values that jobs on other workers need.
        storing: what is stored, if the job ends the step of the replica.
    """

    device: int
    feeding: Feeding | None
    actions: Sequence[Action]
    gives: Sequence[Value]
    storing: Storing | None


_HOST = CPUPlace()

_Result = Exports | dict[str, Any] | tuple[dict[str, Any], Noted | None]


class JobOf(NamedTuple):
    """A job of a certain step.

    Args:
        step: the step.
        key: the name of its binding.
        work: the work of the job.
    """

    step: StepOf
    key: BindingKey
    work: Work


def run_jobs(jobs: Sequence[JobOf], *after: Any) -> _Result:
    """A dask task that runs jobs; a replica's last job of a step may go on with the next step.

    Args:
        jobs: the jobs.
        after: results of the tasks that the first job waits for.

    Returns:
        The result of the last job.
    """
    *before, last = jobs
    try:
        for job in before:
            _run(job, after)
            after = ()
        return _run(last, after)
    except BaseException as error:
        told = copy_to_send(error)
        if (type(told), type(told.__cause__)) == (type(error), type(error.__cause__)):
            raise  # it can be sent as it is, with its traceback
    raise told  # outside of the handler, so that the original is not attached as its context


def _run(job: JobOf, after: Sequence[Any]) -> _Result:
    """Run a job.

    Args:
        job: the job.
        after: results of the jobs that it waits for; for the first job of a replica, the blocks
            that it is fed.

    Returns:
        The values that others need. A job that stores returns mirrored values, or the fetched
        values and the notes.
    """
    step, key, work = job
    device, feeding, actions, gives, storing = work
    with at_work(step.epoch) as replicas:
        plan = replicas.binding(key).plan
        if feeding is not None and feeding.recorded:
            replicas.record(key, step.number)
        envs = replicas.envs(plan, step)
        if feeding is not None:
            replicas.feed(envs[device], feeding, after)
        for action in actions:
            _take(replicas, envs, action.takes, after)
            action.run(replicas, key, step, envs)
        if storing is None:
            made = {(where, name): envs[where][name] for where, name in gives}
            return exported(made, replicas.place, get_worker().address)
        _take(replicas, envs, storing.takes, after)
        replicas.commit(plan, device, envs[device], storing.fed)
        if storing.fetches:
            return _fetched(replicas, plan, step, device)
        stored = replicas.stores[device].values
        return values_on(_HOST, {name: stored[name] for name in storing.own if name in stored})


def _take(
    replicas: WorkerReplicas, envs: Sequence[Env], takes: Takes, results: Sequence[Any]
) -> None:
    found = {target: results[index][value] for index, value, target in takes}
    for (device, name), value in values_on(replicas.place, found).items():
        envs[device][name] = value


def fetch(
    step: StepOf, key: BindingKey, device: int, *after: Any
) -> tuple[dict[str, Any], Noted | None]:
    """The fetched values of a replica, and the notes if the step is recorded.

    It is a task of its own if the last job of the replica returns values for its mirror.
    """
    with at_work(step.epoch) as replicas:
        return _fetched(replicas, replicas.binding(key).plan, step, device)


def _fetched(
    replicas: WorkerReplicas, plan: Plan, step: StepOf, device: int
) -> tuple[dict[str, Any], Noted | None]:
    env = replicas.envs(plan, step)[device]
    fetched = {name: host_copy(env[name]) for name in plan.fetch if name in env}
    recording = replicas.recording(step.number)
    return fetched, None if recording is None else noted_on_worker(recording)
