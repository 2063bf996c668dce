"""``dpexec run --trainers N``: the same script in several processes of this machine.

Every process is told who it is as ``paddle.distributed.launch`` does it, with PADDLE_TRAINER_ID,
PADDLE_TRAINERS_NUM, PADDLE_CURRENT_ENDPOINT and PADDLE_TRAINER_ENDPOINTS. They share a secret that
nobody else knows.
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
from pathlib import Path
from typing import IO, NoReturn

from dpexec.commands import CommandError

__all__ = ["launch"]

_LOOK = 0.05  # seconds between looks at who has ended
_GRACE = 5.0  # seconds that processes have to end when they are asked to


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
    endpoints = _free_endpoints(options.trainers)
    common = {
        "PADDLE_TRAINERS_NUM": str(options.trainers),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "DPEXEC_SECRET": os.environ.get("DPEXEC_SECRET") or secrets.token_hex(32),
        "CPU_NUM": str(_devices(options)),
        "PYTHONUNBUFFERED": "1",
    }
    processes: list[subprocess.Popen[bytes]] = []
    with _ending(processes):
        for rank, endpoint in enumerate(endpoints):
            own = {"PADDLE_TRAINER_ID": str(rank), "PADDLE_CURRENT_ENDPOINT": endpoint}
            processes.append(_start(_command(options, rank), {**os.environ, **common, **own}))
        readers = [
            thread for rank, process in enumerate(processes) for thread in _echo(rank, process)
        ]
        try:
            code = _wait(processes)
        except KeyboardInterrupt:
            code = 128 + signal.SIGINT
    for reader in readers:
        reader.join(_GRACE)  # processes that they started may keep the pipe open
    return code


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


def _command(options: argparse.Namespace, rank: int) -> list[str]:
    """How a process is started; what is written is written by the first."""
    passed = {"--mode": options.mode, "--scheduler": options.scheduler}
    if rank == 0:
        passed |= {"--report": options.report, "--trace": options.trace}
    own = [word for name, v in passed.items() if v is not None for word in (name, str(v))]
    begin = [sys.executable, "-m", "dpexec", "run"]
    return [*begin, *own, options.script, "--", *options.arguments]


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe)


def _echo(rank: int, process: subprocess.Popen[bytes]) -> list[threading.Thread]:
    """Write what a process writes, each line with its number."""
    assert process.stdout is not None
    assert process.stderr is not None
    pairs = (process.stdout, sys.stdout), (process.stderr, sys.stderr)
    threads = [threading.Thread(target=_copy, args=(rank, *pair), daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    return threads


def _copy(rank: int, source: IO[bytes], target: IO[str]) -> None:
    with source:
        for line in source:
            target.write(f"[{rank}] {line.decode(errors='replace').rstrip()}\n")
            target.flush()


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait until all have ended, or one has failed; returns its exit code."""
    while True:
        codes = [process.poll() for process in processes]
        failed = [(rank, code) for rank, code in enumerate(codes) if code]
        if failed:
            rank, code = failed[0]
            print(f"dpexec run: trainer {rank} failed with exit code {code}", file=sys.stderr)
            return code if code > 0 else 128 - code
        if None not in codes:
            return 0
        time.sleep(_LOOK)


@contextlib.contextmanager
def _ending(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Leave no process behind, also when this one is interrupted or terminated."""
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        for process in processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + _GRACE
        for process in processes:
            try:
                process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _terminated(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)
