"""Starts peers, and lets them train in turn."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.benchmarks import machine
from tests.benchmarks.registry import Entry

START_SECONDS = 600.0
_GENERATIONS = 10  # of processes that start others while they are stopped
BLOCK_SECONDS = 300.0
END_SECONDS = 5.0
FEWEST_STEPS = 3


class PeerError(Exception):
    """A peer ended or did not answer."""


class Peer:
    """Runs an entry in processes of its own.

    Args:
        entry: what to run.
        folder: for its files; is made.
    """

    def __init__(self, entry: Entry, folder: Path) -> None:
        self.entry = entry
        self._folder = folder
        self._processes: list[subprocess.Popen[str]] = []
        self._steps = 0
        self._pause = 0.0
        self._blocks: list[float] = []
        self._usages: list[dict[str, float]] = []
        self._frozen: set[int] = set()

    def start(self) -> dict[str, Any]:
        """Start it; returns what it says when it has made its first steps."""
        self._folder.mkdir()
        with self._log.open("w") as log:
            for rank in range(self.entry.shares if self.entry.kind.processes else 1):
                process = subprocess.Popen(
                    self.entry.command(rank, str(self._folder / "meet")),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=self.entry.environment(),
                    start_new_session=True,
                )
                self._processes.append(process)
        answers = self._answers(START_SECONDS)
        means = {key: statistics.mean(a[key] for a in answers) for key in ("first_loss", "loss")}
        return answers[0] | means | {"data_parallel": self.entry.kind.parallel}

    def freeze(self) -> None:
        """Stop all its processes until its turn: some spin, or poll, also when they do nothing."""
        stopped: set[int] = set()
        for _ in range(_GENERATIONS):
            new = set(machine.descendants(self._pids)) - stopped
            if not new:
                break
            _tell(new, signal.SIGSTOP)
            stopped |= new
        self._frozen = stopped

    def thaw(self) -> None:
        """Let all its processes go on."""
        frozen, self._frozen = self._frozen, set()
        _tell(frozen, signal.SIGCONT)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While it is its turn."""
        self.thaw()
        try:
            yield
        finally:
            self.freeze()

    def calibrate(self, seconds: float) -> None:
        """Find out how many steps a block of some seconds has."""
        with self.turn():
            self._calibrate(seconds)

    def _calibrate(self, seconds: float) -> None:
        self._train(2)
        ms = min(self._train(FEWEST_STEPS), self._train(FEWEST_STEPS))
        self._steps = max(FEWEST_STEPS, int(seconds * 1e3 / ms))
        self._pause = seconds / 3

    def block(self) -> None:
        """Train a block of steps and note what it took.

        Before that, what was due while it was stopped is done, and caches fill.
        """
        with self.turn():
            self._block()

    def _block(self) -> None:
        time.sleep(self._pause)
        self._train(max(2, self._steps // 20))
        before = machine.usage(self._pids)
        self._blocks.append(self._train(self._steps))
        self._usages.append(machine.usage(self._pids).since(before))

    def result(self) -> dict[str, Any]:
        """What its blocks took."""
        usages = self._usages
        return {
            "ms": statistics.median(self._blocks),
            "ms_min": min(self._blocks),
            "ms_max": max(self._blocks),
            "blocks": self._blocks,
            "block_steps": self._steps,
            **{key: round(statistics.median(u[key] for u in usages), 3) for key in usages[0]},
            **machine.footprint(self._pids),
        }

    def stop(self) -> None:
        """End the processes and what they started."""
        self.thaw()
        for process in self._processes:
            process.stdout.close()
            with suppress(BrokenPipeError):
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    @property
    def _pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def _train(self, steps: int) -> float:
        """Train some steps; returns milliseconds per step."""
        for process in self._processes:
            with suppress(BrokenPipeError):  # its answer is missing, too
                process.stdin.write(f"{steps}\n")
                process.stdin.flush()
        return max(answer["ms"] for answer in self._answers(BLOCK_SECONDS))

    def _answers(self, seconds: float) -> list[dict[str, Any]]:
        """The next line of every process.

        Raises:
            PeerError: one ended, or did not answer in time.
        """
        lines: dict[Any, str] = {}
        streams = [process.stdout for process in self._processes]
        while len(lines) < len(streams):
            ready, _, _ = select.select([s for s in streams if s not in lines], [], [], seconds)
            if not ready:
                raise PeerError(f"no answer in {seconds:.0f} s")
            lines.update((stream, stream.readline()) for stream in ready)
            if not all(lines.values()):
                said = self._log.read_text(errors="replace").strip().splitlines()
                raise PeerError(said[-1] if said else "it ended without a word")
        return [json.loads(lines[stream]) for stream in streams]


def _tell(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def progress(text: str) -> None:
    """Show one line that is overwritten, on terminals; elsewhere nothing but failures."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif "failed" in text:
        print(text, file=sys.stderr)


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other benchmark runs on this machine, and keep others from starting."""
    with (Path(tempfile.gettempdir()) / "dpexec-benchmarks.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def ends_when_told() -> Iterator[None]:
    """Let SIGTERM end a run like an error: peers that stand still would do so for ever."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def measure(
    entries: Sequence[Entry],
    rounds: int,
    seconds: float,
    say: Callable[[str], Any] = progress,
) -> list[dict[str, Any]]:
    """Let peers train in turn.

    Args:
        entries: who trains what.
        rounds: blocks of steps for everybody.
        seconds: length of a block.
        say: is told what goes on.

    Returns:
        What was found for every entry, in order; one that failed has an ``error``.
    """
    found: list[dict[str, Any]] = [{"label": entry.label} for entry in entries]
    with (
        alone(),
        ends_when_told(),
        tempfile.TemporaryDirectory(prefix="dpexec-benchmarks-") as base,
    ):
        peers = {i: Peer(entry, Path(base, str(i))) for i, entry in enumerate(entries)}

        def each(work: Callable[[Peer], dict[str, Any] | None]) -> None:
            for index, peer in list(peers.items()):
                try:
                    found[index].update(work(peer) or {})
                except PeerError as error:
                    say(f"{peer.entry.label} failed: {error}")
                    found[index]["error"] = str(error)
                    peers.pop(index).stop()

        try:
            say(f"starting {len(entries)} peers")
            each(Peer.start)
            each(Peer.freeze)
            each(lambda peer: peer.calibrate(seconds))
            for number in range(rounds):
                say(f"round {number + 1} of {rounds}")
                each(Peer.block)
            each(Peer.result)
        finally:
            say("")
            for peer in peers.values():
                peer.stop()
    return found
