"""``dpexec run --trainers N [--servers M]``: the same script in several processes.

Every process gets its role in environment variables, as ``paddle.distributed.launch`` and
``launch_ps`` set them: PADDLE_TRAINER_ID, PADDLE_TRAINERS_NUM, PADDLE_CURRENT_ENDPOINT and
PADDLE_TRAINER_ENDPOINTS; with parameter servers TRAINING_ROLE, PADDLE_PSERVERS_IP_PORT_LIST, POD_IP
and PADDLE_PORT, too. The processes share a secret. When one fails, all are ended, and with
``--restarts`` all start again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dpexec.commands import INTERRUPTED, CommandError
from dpexec.commands.processes import Start, run_together
from dpexec.engine.core.light_dataclasses import dataclass

__all__ = ["Job", "free_endpoints", "launch"]


@dataclass(frozen=True)
class Job:
    """The processes of a job.

    Args:
        trainers: endpoints of all trainers, including those on other machines.
        here: ranks of the trainers on this machine.
        servers: endpoints of the parameter servers, all on this machine.
        gpus: value of FLAGS_selected_gpus for each trainer of this machine.
        logs: directory of log files, one per process; None shows the output instead.
    """

    trainers: Sequence[str]
    here: range
    servers: Sequence[str] = ()
    gpus: Sequence[str] = ()
    logs: Path | None = None

    @classmethod
    def local(cls, trainers: int, servers: int) -> Job:
        """A job on this machine only, with free ports."""
        endpoints = free_endpoints(trainers + servers)
        return cls(endpoints[:trainers], range(trainers), endpoints[trainers:])


@dataclass(frozen=True)
class _Role:
    """One process of a job.

    Args:
        kind: ``"trainer"`` or ``"server"``.
        rank: number of the process among those of its kind.
        variables: environment variables that tell the process its role.
    """

    kind: str
    rank: int
    variables: Mapping[str, str]


def launch(options: argparse.Namespace, job: Job | None = None) -> int:
    """Run a script in several processes; when one fails, all are ended or restarted.

    Args:
        options: the command line's options.
        job: the processes; None derives them from the options, with new ports for each start.

    Returns:
        0, or the exit code of the first process that failed.

    Raises:
        CommandError: there is no such script.
    """
    if not Path(options.script).is_file():
        raise CommandError(f"there is no script {options.script}")
    restart, restarts = 0, options.restarts or 0
    while True:
        try:
            local = job or Job.local(options.trainers, options.servers or 0)
            failure = run_together(_starts(options, local))
        except KeyboardInterrupt:
            return INTERRUPTED
        if failure is None:
            return 0
        print(f"dpexec run: {failure}", file=sys.stderr)
        if restart == restarts:
            return failure.code
        restart += 1
        print(f"dpexec run: all start again, {restart} of {restarts}", file=sys.stderr)


def _starts(options: argparse.Namespace, job: Job) -> list[Start]:
    """The start of every process of this machine, servers first."""
    common = {
        **os.environ,
        "PADDLE_TRAINERS_NUM": str(len(job.trainers)),
        "DPEXEC_SECRET": os.environ.get("DPEXEC_SECRET") or secrets.token_hex(32),
        "CPU_NUM": str(_devices(options, len(job.here))),
        "PYTHONUNBUFFERED": "1",
    }
    starts = []
    for role in _roles(job):
        serves = role.kind == "server"
        mark = f"[server {role.rank}]" if serves else f"[{role.rank}]"
        command, variables = _command(options, role), {**common, **role.variables}
        file = f"{'serverlog' if serves else 'workerlog'}.{role.rank}"
        log = None if job.logs is None else job.logs / file
        starts.append(Start(f"{role.kind} {role.rank}", mark, serves, command, variables, log))
    return starts


def _roles(job: Job) -> list[_Role]:
    """All processes of this machine, servers first."""
    common = {"PADDLE_TRAINER_ENDPOINTS": ",".join(job.trainers)}
    if job.servers:
        common["PADDLE_PSERVERS_IP_PORT_LIST"] = ",".join(job.servers)
    roles = []
    for rank, endpoint in enumerate(job.servers):
        host, port = endpoint.split(":")
        own = {"PADDLE_CURRENT_ENDPOINT": endpoint, "POD_IP": host, "PADDLE_PORT": port}
        variables = {**common, **own, **_role_variables("PSERVER")}
        roles.append(_Role("server", rank, variables))
    for number, rank in enumerate(job.here):
        own = {"PADDLE_CURRENT_ENDPOINT": job.trainers[rank], "PADDLE_TRAINER_ID": str(rank)}
        if job.gpus:
            own["FLAGS_selected_gpus"] = job.gpus[number]
        variables = {**common, **own, **(_role_variables("TRAINER") if job.servers else {})}
        roles.append(_Role("trainer", rank, variables))
    return roles


def _role_variables(role: str) -> dict[str, str]:
    return {"TRAINING_ROLE": role, "PADDLE_TRAINING_ROLE": role}


def free_endpoints(number: int) -> list[str]:
    """Free ports of the loopback interface."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{sock.getsockname()[1]}" for sock in sockets]


def _devices(options: argparse.Namespace, trainers: int) -> int:
    """The number of replicas per process: the option, or else an equal share of the processors."""
    from dpexec.engine.core.places import available_cpus

    given: int | str | None = options.devices or os.environ.get("CPU_NUM")
    return int(given or max(available_cpus() // trainers, 1))


def _command(options: argparse.Namespace, role: _Role) -> list[str]:
    """The command of a process; only the first trainer writes reports and traces."""
    passed = {"--mode": options.mode, "--scheduler": options.scheduler}
    if role.kind == "trainer" and role.rank == 0:
        passed |= {"--report": options.report, "--trace": options.trace}
    own = [word for name, v in passed.items() if v is not None for word in (name, str(v))]
    begin = [sys.executable, "-m", "dpexec", "run"]
    return [*begin, *own, options.script, "--", *options.arguments]
