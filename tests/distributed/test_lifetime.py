"""How long workers keep the state of a run: until engine, executor or client is gone."""

import gc
import os
import signal
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client

import dpexec as fluid
from dpexec.engine.cluster.client.lifetime import _end, topic_of
from dpexec.engine.core.errors import SchedulerLostError
from tests.distributed.clusters import workers
from tests.distributed.nets import NETS
from tests.engine.run.nets import batches, classifier, persistables, strategies, train
from tests.waiting import until

ROOT = Path(__file__).parents[2]

both_collectives = pytest.mark.parametrize("collectives", ["tasks", "gang"])


def held():
    """What a worker has of runs: replicas, and memory and sockets of gangs."""
    from dpexec.engine.cluster.worker.worker import WorkerReplicas

    gc.collect()
    replicas = sum(type(thing) is WorkerReplicas for thing in gc.get_objects())
    links = [os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    memory = "".join([*links, Path("/proc/self/maps").read_text()]).count("dpexec-gang")
    mine = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    named = Path("/proc/net/unix").read_text(errors="replace")  # others' names are any bytes
    sockets = [line.split() for line in named.splitlines()]
    open_ones = sum(s[-1].startswith("@dpexec-") and s[-2] in mine for s in sockets)
    return replicas, memory, open_ones


def all_held(client):
    gc.collect()  # a thread may have held an engine until now
    return list(client.run(held).values())


NOTHING = [(0, 0, 0)] * 2

UNCLOSED = """
import sys
from distributed import Client
from tests.distributed.train_alone import trainer
from tests.engine.run.nets import batches
client = Client(sys.argv[1])
step = trainer(client, sys.argv[2])
step(*batches(1))
"""


@pytest.fixture(scope="module")
def pair():
    """Two workers that keep nothing of other tests: these may hold their runs for long."""
    with workers(2) as found:
        yield found.client


@pytest.fixture(autouse=True)
def _nothing_of_other_tests(little_to_search):
    gc.collect()  # errors that they caught hold what was running


def plugins(client):
    """The names of a scheduler's plugins."""
    return set(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.plugins)))


def topics(client):
    """The topics of events that a scheduler keeps for runs."""
    names = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler._broker._topics))
    return {name for name in names if name.startswith("dpexec-")}


@both_collectives
def test_collected_engine_leaves_nothing(pair, collectives):
    until(lambda: all_held(pair) == NOTHING)
    before, known = plugins(pair), topics(pair)
    run = train(*NETS["mlp"](), 2, scheduler=pair, collectives=collectives)
    token = run.compiled._engine._cluster.token
    assert any(token in topic for topic in topics(pair) - known)
    assert all(replicas == 1 for replicas, _, _ in all_held(pair))
    (mine,) = (name for name in plugins(pair) - before if name.startswith("dpexec-"))
    del run
    gc.collect()
    until(lambda: all_held(pair) == NOTHING)
    until(lambda: mine not in plugins(pair))  # it goes when the workers have answered
    until(lambda: not any(token in topic for topic in topics(pair)))  # late messages make them anew
    pair.run_on_scheduler(unsubscribe_late, token)
    until(lambda: not any(token in topic for topic in topics(pair)))


def unsubscribe_late(token, dask_scheduler):
    """As the client does over another connection than that on which it ends the run."""
    _end(token, dask_scheduler)
    dask_scheduler._broker.unsubscribe(topic_of(token), "a client")
    assert topic_of(token) in dask_scheduler._broker._topics


@both_collectives
def test_closed_executor_brings_values_home(pair, expected, collectives):
    net, feeds = NETS["mlp"]()
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    execution = fluid.ExecutionStrategy()
    execution.scheduler, execution.collectives = pair, collectives
    with fluid.scope_guard(scope):
        exe.run(net.startup)
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, exec_strategy=execution, places=fluid.cpu_places(2)
        )
        for feed in feeds:
            exe.run(compiled, feed=feed)
        exe.close()
    until(lambda: all_held(pair) == NOTHING)  # tasks of a gang end when they see that it is over
    for name, value in expected("mlp", 2).state.items():
        np.testing.assert_array_equal(persistables(net.main, scope)[name], value)


def left():
    """How many runs have replicas on a worker, and how many bytes its engines have."""
    from dpexec.engine.cluster.worker.worker import WorkerReplicas
    from dpexec.engine.core.memory import _counted

    return sum(type(it) is WorkerReplicas for it in gc.get_objects()), _counted.nbytes


@pytest.fixture
def no_search(pair):
    """Workers that do not look for cycles, and have nothing of other tests."""
    until(lambda: all_held(pair) == NOTHING)
    pair.run(gc.disable)
    yield pair
    pair.run(gc.enable)


@both_collectives
def test_state_of_a_closed_run_is_in_no_cycle(no_search, collectives):
    run = train(*NETS["mlp"](), 2, scheduler=no_search, collectives=collectives)
    run.compiled._engine.close()
    until(lambda: all(runs == 0 for runs, _ in no_search.run(left).values()))


@both_collectives
def test_large_memory_of_a_closed_run_does_not_wait_for_a_search(no_search, collectives):
    before = max(nbytes for _, nbytes in no_search.run(left).values())
    net, feeds = classifier(sizes=(8, 1000, 3)), batches(3, rows=20_000)
    run = train(net, feeds, 2, scheduler=no_search, collectives=collectives)
    assert all(nbytes > before + (30 << 20) for _, nbytes in no_search.run(left).values())
    run.compiled._engine.close()
    until(lambda: all(it < before + (1 << 20) for _, it in no_search.run(left).values()))


def test_closed_program_goes_on_with_another_client(pair, expected):
    """If nobody closes it before its client, the next run says so at once."""
    net, feeds = NETS["mlp"]()
    build, execution = strategies(scheduler=None)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build, execution, places=fluid.cpu_places(2)
    )
    scope, losses = fluid.Scope(), []
    fluid.Executor(fluid.CPUPlace()).run(net.startup, scope=scope)
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        for some in (feeds[:1], feeds[1:]):
            exe, address = fluid.Executor(fluid.CPUPlace()), pair.scheduler.address
            with Client(address, set_as_default=False) as client, client.as_current():
                for feed in some:
                    losses += exe.run(compiled, feed, [net.loss], scope=scope)
                if some[0] is feeds[0]:
                    exe.close()
        with pytest.raises(SchedulerLostError, match="is closed, by the program"):
            exe.run(compiled, feeds[0], [net.loss], scope=scope)
        until(lambda: all_held(pair) == NOTHING)
    np.testing.assert_array_equal(losses, expected("mlp", 2).losses)


def in_a_fork(act):
    """What a function raises in a forked child: the class and the first words."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, from Python 3.12 on
        child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            os.write(write, f"returned {act()}".encode())
        except BaseException as error:
            os.write(write, f"{type(error).__name__} {error}".encode()[:200])
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read, "rb") as found:
        return found.read().decode()


@both_collectives
def test_forked_process_cannot_give_orders_to_the_workers_of_its_parent(
    pair, expected, collectives
):
    net, (first, *rest) = NETS["mlp"]()
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    _, execution = strategies(scheduler=pair, collectives=collectives)
    with fluid.scope_guard(scope):
        exe.run(net.startup)
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, exec_strategy=execution, places=fluid.cpu_places(2)
        )
        losses = exe.run(compiled, first, [net.loss])
        weight = scope.find_var(net.main.all_parameters()[0].name).get_tensor()
        for act in (lambda: exe.run(compiled, first, [net.loss]), lambda: np.array(weight)):
            assert in_a_fork(act).startswith("ClusterError the Client is of the process that")
        for feed in rest:
            losses += exe.run(compiled, feed, [net.loss])
        exe.close()
    np.testing.assert_array_equal(losses, expected("mlp", 2).losses)


def test_values_on_workers_are_not_read_while_a_graph_is_sent(pair):
    net, feeds = NETS["mlp"]()
    execution = fluid.ExecutionStrategy()
    execution.scheduler = pair
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup)
    compiled = fluid.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, exec_strategy=execution, places=fluid.cpu_places(2)
    )
    exe.run(compiled, feed=feeds[0])
    weight = fluid.global_scope().find_var(net.main.all_parameters()[0].name).get_tensor()
    with pytest.raises(TypeError, match="Could not serialize") as caught:
        pair.submit(np.array, weight, pure=False)  # else dask would pickle it before, for its name
    assert "put np.array(value) into the graph" in "".join(traceback.format_exception(caught.value))
    assert np.array(weight).any()
    exe.close()


def test_killed_client_leaves_nothing(pair):
    command = [sys.executable, "-m", "tests.distributed.train_alone", pair.scheduler.address]
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as trainer,
    ):
        for _ in range(2):
            assert trainer.stdout.readline() == b"step\n"
        assert all(replicas == 2 for replicas, _, _ in all_held(pair))
        os.kill(trainer.pid, signal.SIGKILL)
        trainer.wait()
        until(lambda: all_held(pair) == NOTHING)


@both_collectives
def test_closed_cluster_of_this_process_leaves_nothing(collectives):
    before = held()
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "set_as_default": False}
    with Client(n_workers=2, processes=False, **options) as client:
        run = train(*NETS["mlp"](), 2, scheduler=client, collectives=collectives)
        assert held()[0] == before[0] + 2
    until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))
    assert run.compiled._engine._cluster is not None


ENDING = """
from dpexec.engine.cluster.worker.nannies import end_at_once

class Garbage:
    def __init__(self):
        self.itself = self

    def __del__(self):
        print("looked for garbage")

garbage = Garbage()
end_at_once()
"""


def test_processes_with_nannies_end_without_a_search_for_garbage():
    shown = subprocess.check_output([sys.executable, "-c", ENDING], text=True)
    assert shown == ""
    usual = ENDING.replace("end_at_once()", "")
    shown = subprocess.check_output([sys.executable, "-c", usual], text=True)
    assert shown == "looked for garbage\n"


def test_script_that_closes_nothing_ends_without_a_word(pair):
    command = [sys.executable, "-c", UNCLOSED, pair.scheduler.address, "gang"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
