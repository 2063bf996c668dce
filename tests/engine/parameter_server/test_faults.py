"""Trainers and servers that die, do not come or disagree: errors, and no process left waiting."""

import socket
from contextlib import ExitStack, closing, suppress

import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.exchange import messages
from dpexec.engine.exchange.wire import GangError
from tests.certificates import requiring_encryption
from tests.engine.parameter_server.runs import Server, Trainer, connected, free_endpoints
from tests.engine.run.strangers import DEEDS, crowd
from tests.fixtures import pserver_cases as cases


class Mortal(Trainer):
    """A trainer whose connections break in a step, as those of a process that is killed do."""

    def before(self, step):
        if step == 2:
            for servers in self.executor._servers:
                for channel in servers._channels.values():
                    channel.interrupt()
            raise GangError("dead")


def team(name="sgd", kinds=(Trainer, Trainer), servers=1):
    endpoints = free_endpoints(servers)
    members = [kind(name, number, endpoints, 4) for number, kind in enumerate(kinds)]
    return members, [Server(members[0].transpiler, endpoint) for endpoint in endpoints]


def test_a_trainer_that_dies_ends_the_run_for_all():
    members, (server,) = team(kinds=(Trainer, Mortal))
    for member in members:
        member.start()
    with pytest.raises(GangError, match="trainer 1 is gone"):
        server.join()
    with pytest.raises(GangError, match=r"parameter server 127.*: trainer 1 is gone"):
        members[0].join()
    with pytest.raises(GangError, match="dead"):
        members[1].join()
    members[1].executor.close()
    # either trainer may end the second step first; the answer to the other is lost with the run
    assert len(members[0].losses) >= 1


def test_a_server_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_deadline", "300")
    (endpoint,) = free_endpoints(1)
    trainer = Trainer("one_trainer", 0, [endpoint], 1)
    trainer.start()
    with pytest.raises(GangError, match=f"parameter server at {endpoint} did not let us in"):
        trainer.join()


def test_a_trainer_that_does_not_come_is_named(monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_deadline", "600")
    members, (server,) = team()
    members[0].start()
    with pytest.raises(GangError, match="trainer 1 did not come within"):
        server.join()
    with pytest.raises(GangError, match="trainer 1"):
        members[0].join()


def test_different_programs_are_refused():
    endpoints = free_endpoints(1)
    other = Trainer("sparse", 0, endpoints, 4)
    server = Server(Trainer("one_trainer", 0, endpoints, 4).transpiler, endpoints[0])
    other.start()
    with pytest.raises(GangError, match="build the same program"):
        server.join()
    with pytest.raises(GangError, match="build the same program"):
        other.join()


@pytest.fixture(params=["plain", "encrypted"])
def encryption(request, tmp_path):
    """Where dask's configuration requires encryption, and where it does not."""
    if request.param == "plain":
        yield
    else:
        with requiring_encryption(tmp_path):
            yield


@pytest.mark.usefixtures("encryption")
@pytest.mark.parametrize("deed", DEEDS)
def test_no_stranger_ends_a_server(deed):
    members, (server,) = team("one_trainer", kinds=(Trainer,))
    with ExitStack() as stack:
        for _ in range(5):
            stranger = stack.enter_context(closing(connected(server.endpoint)))
            with suppress(ConnectionError):
                DEEDS[deed](stranger)
        members[0].start()
        members[0].join()
        server.join()
    assert len(members[0].losses) == 4


@pytest.mark.usefixtures("encryption")
def test_no_crowd_ends_a_server():
    members, (server,) = team("one_trainer", kinds=(Trainer,))
    host, port = server.endpoint.split(":")
    with crowd(socket.AF_INET, (host, int(port)), 1500):
        members[0].start()
        members[0].join()
        server.join()
    assert len(members[0].losses) == 4


def test_who_does_not_know_the_secret_stays_outside(monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_deadline", "500")
    monkeypatch.setenv("DPEXEC_SECRET", "of the server")
    endpoints = free_endpoints(1)
    trainer = Trainer("one_trainer", 0, endpoints, 1)
    server = Server(trainer.transpiler, endpoints[0])
    connected(endpoints[0]).close()  # it listens, and has read its secret
    monkeypatch.setenv("DPEXEC_SECRET", "another")
    trainer.start()
    with pytest.raises(GangError, match=f"{endpoints[0]} did not let us in"):
        trainer.join()
    with pytest.raises(GangError, match="trainer 0 did not come"):
        server.join()
    assert trainer.losses == []


def test_who_came_instead_is_told(monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_deadline", "600")
    _, (server,) = team()
    connected(server.endpoint).close()
    with pytest.raises(GangError, match=r"did not come within 0.6 s \(1 connection came and went"):
        server.join()


def test_a_frame_that_is_too_large_is_named(monkeypatch):
    """The server ends, as with any trainer that fails, and says why."""
    members, (server,) = team("one_trainer", kinds=(Trainer,))
    monkeypatch.setattr(messages, "encode", lambda message: [_Endless()])
    members[0].start()
    with pytest.raises(GangError, match=r"trainer 0 announces .* no memory"):
        server.join()
    with pytest.raises(GangError, match=r"parameter server .* trainer 0 announces"):
        members[0].join()
    members[0].executor.close()


class _Endless(bytes):
    """Says that it is larger than any memory."""

    def __len__(self):
        return 1 << 62


def test_several_steps_in_one_run_are_refused():
    main, startup, loss = cases.build(fluid, "sgd")
    made = cases.transpiler(fluid, "sgd", main, startup)
    strategy = fluid.ExecutionStrategy()
    strategy.num_iteration_per_run = 2
    program = fluid.CompiledProgram(made.get_trainer_program()).with_data_parallel(
        loss.name, exec_strategy=strategy, places=fluid.cpu_places(1)
    )
    scope = fluid.Scope()
    feed = cases.batch("sgd", 0, 0)
    with pytest.raises(EnforceNotMet, match="num_iteration_per_run at 1"):
        fluid.Executor(fluid.CPUPlace()).run(program, feed, [loss.name], scope=scope)


@pytest.mark.parametrize("name", ["sgd", "async"])
def test_async_mode_is_for_asynchronous_programs(name):
    main, startup, loss = cases.build(fluid, name)
    made = cases.transpiler(fluid, name, main, startup)
    strategy = fluid.BuildStrategy()
    strategy.async_mode = True
    program = fluid.CompiledProgram(made.get_trainer_program()).with_data_parallel(
        loss.name, build_strategy=strategy, places=fluid.cpu_places(1)
    )
    message = "async_mode is for programs" if name == "sgd" else "has not been initialized"
    run = fluid.Executor(fluid.CPUPlace()).run
    with pytest.raises(EnforceNotMet, match=message):
        run(program, cases.batch(name, 0, 0), [loss.name], scope=fluid.Scope())


@pytest.mark.parametrize("text", ["soon", "0", "-5"])
def test_the_limit_is_a_number_of_milliseconds(monkeypatch, text):
    monkeypatch.setenv("FLAGS_rpc_deadline", text)
    main, startup, _ = cases.build(fluid, "sgd")
    made = cases.transpiler(fluid, "sgd", main, startup, 0, free_endpoints(2))
    program, first = made.get_pserver_programs(made._source.endpoints[0])
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(first, scope=scope)
    with pytest.raises(EnforceNotMet, match="FLAGS_rpc_deadline is a number of milliseconds"):
        executor.run(program, scope=scope)
