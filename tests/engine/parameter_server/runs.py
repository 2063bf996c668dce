"""Servers and trainers of a case on threads, each with its own programs and scope."""

import contextlib
import socket
import threading

import numpy as np

import dpexec as fluid
from tests.fixtures import pserver_cases as cases


def free_endpoints(count):
    """Endpoints on this machine that nobody listens at."""
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{sock.getsockname()[1]}" for sock in socks]


def connected(endpoint):
    """A connection, as soon as somebody listens."""
    host, port = endpoint.split(":")
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((host, int(port)), 5)


class Server(threading.Thread):
    """A server; :meth:`join` raises what it raised."""

    def __init__(self, transpiler, endpoint):
        super().__init__(daemon=True)
        self.scope, self.error, self.endpoint = fluid.Scope(), None, endpoint
        self.program, self.startup = transpiler.get_pserver_programs(endpoint)
        self.start()

    def run(self):
        executor = fluid.Executor(fluid.CPUPlace())
        try:
            executor.run(self.startup, scope=self.scope)
            executor.run(self.program, scope=self.scope)
        except Exception as error:
            self.error = error

    def join(self, timeout=20):
        super().join(timeout)
        assert not self.is_alive(), "the server does not end"
        if self.error is not None:
            raise self.error


class Trainer(threading.Thread):
    """A trainer; ``losses`` and ``parameters`` are there after :meth:`join`."""

    def __init__(self, name, number, servers, steps, devices=None, mode=None, batches=None):
        super().__init__(daemon=True)
        self.name_of_case, self.number, self.steps = name, number, steps
        self.scope, self.error, self.losses = fluid.Scope(), None, []
        self.main, self.startup, self.loss = cases.build(fluid, name)
        self.transpiler = cases.transpiler(fluid, name, self.main, self.startup, number, servers)
        self.program = self.transpiler.get_trainer_program()
        if devices:
            build = fluid.BuildStrategy()
            build.reduce_strategy = mode or build.ReduceStrategy.AllReduce
            self.program = fluid.CompiledProgram(self.program).with_data_parallel(
                self.loss.name, build, places=fluid.cpu_places(devices)
            )
        self.batches = batches or steps

    def before(self, step):
        """Called before every step."""

    def run(self):
        executor = self.executor = fluid.Executor(fluid.CPUPlace())
        try:
            executor.run(self.startup, scope=self.scope)
            for step in range(self.steps):
                self.before(step)
                feed = cases.batch(self.name_of_case, step % self.batches, self.number)
                fetched = executor.run(self.program, feed, [self.loss.name], scope=self.scope)
                self.losses.append(float(fetched[0].mean()))
            self.parameters = values(self.main, self.scope)
            executor.close()
        except Exception as error:
            self.error = error

    def join(self, timeout=20):
        super().join(timeout)
        assert not self.is_alive(), "the trainer does not end"
        if self.error is not None:
            raise self.error


def values(program, scope):
    """The parameters of a program in a scope."""
    names = [param.name for param in program.all_parameters()]
    return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


def train(name, steps=4, trainers=2, servers=2, **options):
    """Train a case; gives the trainers."""
    endpoints = free_endpoints(servers)
    team = [Trainer(name, number, endpoints, steps, **options) for number in range(trainers)]
    serving = [Server(team[0].transpiler, endpoint) for endpoint in endpoints]
    for member in team:
        member.start()
    for member in [*team, *serving]:
        member.join()
    return team


def train_alone(name, steps=4, trainers=2):
    """Train a case in one process, with the batches of all trainers as one: losses, parameters."""
    main, startup, loss = cases.build(fluid, name)
    scope, executor = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    executor.run(startup, scope=scope)
    losses = []
    for step in range(steps):
        batches = [cases.batch(name, step, number) for number in range(trainers)]
        feed = {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
        losses.append(float(executor.run(main, feed, [loss.name], scope=scope)[0].item()))
    return losses, values(main, scope)
