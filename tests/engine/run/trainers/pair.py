"""Two trainers on threads of a test."""

import socket
import threading

import numpy as np

import dpexec as fluid
from dpexec.engine.exchange.endpoints import Endpoint
from tests.engine.run.nets import AllReduce

LIMIT = 60  # seconds; other tests of the machine may keep a trainer from compiling for long


def free_endpoint(host="127.0.0.1"):
    with socket.socket() as sock:
        sock.bind((host, 0))
        return Endpoint(*sock.getsockname())


def rows_of(feed, rank, trainers):
    """The rows of a batch that one trainer is fed."""
    return {name: np.array_split(array, trainers)[rank] for name, array in feed.items()}


class Trainer:
    """One of the trainers, with a scope of its own, on a thread of the test."""

    def __init__(self, net, endpoints, rank, devices=2, mode=AllReduce, passes=(), **options):
        build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
        build.reduce_strategy = mode
        build.num_trainers, build.trainer_id = len(endpoints), rank
        build.trainers_endpoints = [str(endpoint) for endpoint in endpoints]
        execution.scheduler, execution.collective_timeout = "threads", LIMIT
        for step in passes:
            build.append_pass(step)
        for name, value in options.items():
            setattr(build if name in type(build).fields() else execution, name, value)
        self.net, self.scope, self.losses, self.error = net, fluid.Scope(), [], None
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, execution, places=fluid.cpu_places(devices)
        )

    def start(self):
        self.exe.run(self.net.startup, scope=self.scope)

    def run(self, feeds):
        try:
            for feed in feeds:
                (loss,) = self.exe.run(self.compiled, feed, [self.net.loss], scope=self.scope)
                self.losses.append(np.array(loss))
        except Exception as error:
            self.error = error

    def state(self):
        stored = [var.name for var in self.net.main.list_vars() if var.persistable]
        return {name: np.array(self.scope.find_var(name).get_tensor()) for name in stored}


def together(trainers, feeds):
    """Let all trainers run at once."""
    threads = [
        threading.Thread(target=trainer.run, args=(fed,))
        for trainer, fed in zip(trainers, feeds, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def two(net, endpoints, **options):
    trainers = [Trainer(net, endpoints, rank, **options) for rank in range(2)]
    for trainer in trainers:
        trainer.start()
    return trainers
