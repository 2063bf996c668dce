"""The protocol between a peer and the driver: one line of JSON for each command.

A peer is started with a request in JSON as its argument. It builds its net, trains to step 30 and
says so. Then each line that it reads is a number of steps to train; it answers with the
milliseconds per step. The end of its input ends it. Python 3.7 and newer.
"""

from __future__ import annotations

import json
import os
import sys
import time

LOSS_AT = 30


def now():
    """Seconds on the clock, and of this process's threads on processors."""
    return time.perf_counter(), time.process_time()


STARTED = now()
PHASES = "import", "build", "first step", "second step"


class Request:
    """What the driver wants.

    Attributes:
        spec: the workload.
        mode: the peer's way to train.
        replicas: how many share a batch.
        rank: number of this process among those of the peer.
        on_gpu: whether it trains on GPUs.
        precision: ``float32``, ``tf32`` or ``bfloat16``: of products on GPUs.
        options: more settings, by name.
        imported: when the framework had been imported, as ``now`` says it.
    """

    def __init__(self):
        values = json.loads(sys.argv[1])
        self.spec = values["spec"]
        self.mode = values["mode"]
        self.replicas = values["replicas"]
        self.rank = values["rank"]
        self.on_gpu = values["device"] == "gpu"
        self.precision = values["precision"]
        self.options = values["options"]
        self.imported = STARTED
        self._replies = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what libraries print must not mix with the replies

    def reply(self, **values):
        """Send one line to the driver."""
        self._replies.write(json.dumps(values) + "\n")
        self._replies.flush()


def serve(request, step, batches, wait=None, about=None):
    """Train as the driver says, until it has enough.

    Args:
        request: the driver's.
        step: takes a batch, trains on it, and returns its loss.
        batches: what to train on, again and again.
        wait: waits for everything that has been started, on all processes.
        about: returns what else there is to say after the first steps.
    """
    done = 0

    def train(steps):
        nonlocal done
        for _ in range(steps):
            value = step(batches[done % len(batches)])
            done += 1
        return value

    stamps = [STARTED, request.imported, now()]
    first = train(1)
    stamps.append(now())
    last = train(1)
    stamps.append(now())
    last = train(LOSS_AT - 2)
    phases = {}
    for number, name in enumerate(PHASES):
        (began, worked), (ended, all_work) = stamps[number : number + 2]
        phases[name] = [ended - began, all_work - worked]
    request.reply(
        phases=phases,
        build_s=phases["import"][0] + phases["build"][0],
        first_step_s=phases["first step"][0],
        first_loss=float(first),
        loss=float(last),
        **(about() if about else {}),
    )
    for line in sys.stdin:
        steps = int(line)
        if wait:
            wait()
        start = time.perf_counter()
        last = train(steps)
        if wait:
            wait()
        request.reply(ms=(time.perf_counter() - start) / steps * 1e3, loss=float(last))
