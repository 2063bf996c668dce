"""``dpexec run --trainers N [--servers M]``: the same script in several processes.

Every process is told who it is as ``paddle.distributed.launch`` and ``launch_ps`` do it:
PADDLE_TRAINER_ID, PADDLE_TRAINERS_NUM, PADDLE_CURRENT_ENDPOINT and PADDLE_TRAINER_ENDPOINTS; with
parameter servers TRAINING_ROLE, PADDLE_PSERVERS_IP_PORT_LIST, POD_IP and PADDLE_PORT, too. They
share a secret that nobody else knows.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from dpexec.commands import CommandError

__all__ = ["launch"]

_LOOK = 0.05  # seconds between looks at who has ended
_CLOSING = 2.0  # seconds that servers have to end when all trainers have
_GRACE = 5.0  # seconds that processes have to end when they are asked to


@dataclass(frozen=True)
class _Role:
    """One of the processes.

    Args:
        mark: what its lines begin with.
        name: what people call it.
        rank: its number among those of its kind.
        variables: what tells it who it is.
    """

    mark: str
    name: str
    rank: int
    variables: Mapping[str, str]

    @property
    def is_server(self) -> bool:
        """Whether it ends when the trainers have ended."""
        return self.name.startswith("server")


@dataclass(frozen=True)
class _Running:
    """A process that was started.

    Args:
        role: who it is.
        process: of the operating system.
    """

    role: _Role
    process: subprocess.Popen[bytes]


def launch(options: argparse.Namespace) -> int:
    """Run a script in several processes; when one fails, all are ended.

    Args:
        options: what the user asked for.

    Returns:
        0, or the exit code of the first process that failed.

    Raises:
        CommandError: there is no such script.
    """
    if not Path(options.script).is_file():
        raise CommandError(f"there is no script {options.script}")
    common = {
        **os.environ,
        "PADDLE_TRAINERS_NUM": str(options.trainers),
        "DPEXEC_SECRET": os.environ.get("DPEXEC_SECRET") or secrets.token_hex(32),
        "CPU_NUM": str(_devices(options)),
        "PYTHONUNBUFFERED": "1",
    }
    running: list[_Running] = []
    readers: list[threading.Thread] = []
    with _ending(running):
        for role in _roles(options.trainers, options.servers or 0):
            process = _start(_command(options, role), {**common, **role.variables})
            running.append(_Running(role, process))
            readers += _echo(running[-1])
        try:
            code = _wait(running)
        except KeyboardInterrupt:
            code = 128 + signal.SIGINT
    for reader in readers:
        reader.join(_GRACE)  # processes that they started may keep the pipe open
    return code


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
        roles.append(_Role(f"[server {rank}]", f"server {rank}", rank, variables))
    for rank, endpoint in enumerate(of_trainers):
        own = {"PADDLE_CURRENT_ENDPOINT": endpoint, "PADDLE_TRAINER_ID": str(rank)}
        variables = {**common, **own, **(_role_variables("TRAINER") if servers else {})}
        roles.append(_Role(f"[{rank}]", f"trainer {rank}", rank, variables))
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
    if role.rank == 0 and not role.is_server:
        passed |= {"--report": options.report, "--trace": options.trace}
    own = [word for name, v in passed.items() if v is not None for word in (name, str(v))]
    begin = [sys.executable, "-m", "dpexec", "run"]
    return [*begin, *own, options.script, "--", *options.arguments]


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe)


def _echo(running: _Running) -> list[threading.Thread]:
    """Write what a process writes, each line with its mark."""
    process = running.process
    assert process.stdout is not None
    assert process.stderr is not None
    pairs = (process.stdout, sys.stdout), (process.stderr, sys.stderr)
    mark = running.role.mark
    threads = [threading.Thread(target=_copy, args=(mark, *p), daemon=True) for p in pairs]
    for thread in threads:
        thread.start()
    return threads


def _copy(mark: str, source: IO[bytes], target: IO[str]) -> None:
    with source:
        for line in source:
            target.write(f"{mark} {line.decode(errors='replace').rstrip()}\n")
            target.flush()


def _wait(running: Sequence[_Running]) -> int:
    """Wait until trainers and servers have ended, or one process has failed.

    Servers that go on when all trainers have ended get some time to end.

    Returns:
        The exit code.
    """
    deadline: float | None = None
    while deadline is None or time.monotonic() < deadline:
        codes = [one.process.poll() for one in running]
        for one, code in zip(running, codes, strict=True):
            if code:
                print(f"dpexec run: {one.role.name} {_how_it_ended(code)}", file=sys.stderr)
                return code if code > 0 else 128 - code
        if None not in codes:
            break
        left = [one for one, code in zip(running, codes, strict=True) if code is None]
        if deadline is None and all(one.role.is_server for one in left):
            deadline = time.monotonic() + _CLOSING
        time.sleep(_LOOK)
    return 0


def _how_it_ended(code: int) -> str:
    """What an exit code of a process that failed means; negative: the number of a signal."""
    if code > 0:
        return f"failed with exit code {code}"
    return f"was ended by signal {signal.Signals(-code).name}"


@contextlib.contextmanager
def _ending(running: Sequence[_Running]) -> Iterator[None]:
    """Leave no process behind, also when this one is interrupted or terminated."""
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        for one in running:
            if one.process.poll() is None:
                one.process.terminate()
        deadline = time.monotonic() + _GRACE
        for one in running:
            try:
                one.process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()


def _terminated(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)
