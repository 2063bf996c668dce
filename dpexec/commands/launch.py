"""``dpexec run --trainers N [--servers M]``: the same script in several processes.

Every process is told who it is as ``paddle.distributed.launch`` and ``launch_ps`` do it:
PADDLE_TRAINER_ID, PADDLE_TRAINERS_NUM, PADDLE_CURRENT_ENDPOINT and PADDLE_TRAINER_ENDPOINTS; with
parameter servers TRAINING_ROLE, PADDLE_PSERVERS_IP_PORT_LIST, POD_IP and PADDLE_PORT, too. They
share a secret that nobody else knows. When one fails, all are ended, and with ``--restarts`` they
all start again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dpexec.commands import CommandError
from dpexec.commands.processes import Start, run_together

__all__ = ["launch"]


@dataclass(frozen=True)
class _Role:
    """One of the processes.

    Args:
        kind: ``"trainer"`` or ``"server"``.
        rank: its number among those of its kind.
        variables: what tells it who it is.
    """

    kind: str
    rank: int
    variables: Mapping[str, str]


def launch(options: argparse.Namespace) -> int:
    """Run a script in several processes; when one fails, all are ended, or started again.

    Args:
        options: what the user asked for.

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
            failure = run_together(_starts(options))
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        if failure is None:
            return 0
        print(f"dpexec run: {failure}", file=sys.stderr)
        if restart == restarts:
            return failure.code
        restart += 1
        print(f"dpexec run: all start again, {restart} of {restarts}", file=sys.stderr)


def _starts(options: argparse.Namespace) -> list[Start]:
    """How all processes are started, servers first."""
    common = {
        **os.environ,
        "PADDLE_TRAINERS_NUM": str(options.trainers),
        "DPEXEC_SECRET": os.environ.get("DPEXEC_SECRET") or secrets.token_hex(32),
        "CPU_NUM": str(_devices(options)),
        "PYTHONUNBUFFERED": "1",
    }
    starts = []
    for role in _roles(options.trainers, options.servers or 0):
        serves = role.kind == "server"
        mark = f"[server {role.rank}]" if serves else f"[{role.rank}]"
        command, variables = _command(options, role), {**common, **role.variables}
        starts.append(Start(f"{role.kind} {role.rank}", mark, serves, command, variables))
    return starts


def _roles(trainers: int, servers: int) -> list[_Role]:
    """All processes, servers first."""
    endpoints = _free_endpoints(trainers + servers)
    of_trainers, of_servers = endpoints[:trainers], endpoints[trainers:]
    common = {"PADDLE_TRAINER_ENDPOINTS": ",".join(of_trainers)}
    if servers:
        common["PADDLE_PSERVERS_IP_PORT_LIST"] = ",".join(of_servers)
    roles = []
    for rank, endpoint in enumerate(of_servers):
        host, port = endpoint.split(":")
        own = {"PADDLE_CURRENT_ENDPOINT": endpoint, "POD_IP": host, "PADDLE_PORT": port}
        variables = {**common, **own, **_role_variables("PSERVER")}
        roles.append(_Role("server", rank, variables))
    for rank, endpoint in enumerate(of_trainers):
        own = {"PADDLE_CURRENT_ENDPOINT": endpoint, "PADDLE_TRAINER_ID": str(rank)}
        variables = {**common, **own, **(_role_variables("TRAINER") if servers else {})}
        roles.append(_Role("trainer", rank, variables))
    return roles


def _role_variables(role: str) -> dict[str, str]:
    return {"TRAINING_ROLE": role, "PADDLE_TRAINING_ROLE": role}


def _free_endpoints(number: int) -> list[str]:
    """Ports of the loopback interface that nobody uses."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{sock.getsockname()[1]}" for sock in sockets]


def _devices(options: argparse.Namespace) -> int:
    """Replicas of a process: as asked for, else an equal share of the processors."""
    from dpexec.core.places import available_cpus

    given: int | str | None = options.devices or os.environ.get("CPU_NUM")
    return int(given or max(available_cpus() // options.trainers, 1))


def _command(options: argparse.Namespace, role: _Role) -> list[str]:
    """How a process is started; what is written is written by the first trainer."""
    passed = {"--mode": options.mode, "--scheduler": options.scheduler}
    if role.kind == "trainer" and role.rank == 0:
        passed |= {"--report": options.report, "--trace": options.trace}
    own = [word for name, v in passed.items() if v is not None for word in (name, str(v))]
    begin = [sys.executable, "-m", "dpexec", "run"]
    return [*begin, *own, options.script, "--", *options.arguments]
