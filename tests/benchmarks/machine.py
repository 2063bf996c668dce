"""Resources used by processes and by the rest of the machine, from Linux's /proc."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
_GONE = (OSError, ValueError)  # processes end while one looks at them


@dataclass(frozen=True)
class Usage:
    """Seconds of processors since the machine started, or between two moments.

    Args:
        at: the moment.
        machine: used by everybody, other guests of the host included.
        own: used by the processes.
        waiting: what their threads waited for a processor.
    """

    at: float
    machine: float
    own: float
    waiting: float

    def since(self, before: Usage) -> dict[str, float]:
        """Processors in use on average: by the processes, by others, and waited for."""
        seconds = self.at - before.at
        own = (self.own - before.own) / seconds
        return {
            "cpu": own,
            "other_cpu": max(0.0, (self.machine - before.machine) / seconds - own),
            "cpu_wait": (self.waiting - before.waiting) / seconds,
        }


def descendants(roots: list[int]) -> list[int]:
    """The processes with all that they started."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        with suppress(*_GONE):
            if path.name.isdigit():
                children.setdefault(int(_stat(int(path.name))[1]), []).append(int(path.name))
    found = list(roots)
    for pid in found:  # grows meanwhile
        found.extend(children.get(pid, []))
    return found


def usage(roots: list[int]) -> Usage:
    """What processes and their children have used so far."""
    own = waiting = 0.0
    for pid in descendants(roots):
        with suppress(*_GONE):
            fields = _stat(pid)
            own += (int(fields[11]) + int(fields[12])) / _TICKS
            waiting += sum(_waited(pid))
    times = [int(text) for text in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    idle = times[3] + times[4]
    return Usage(time.perf_counter(), (sum(times) - idle) / _TICKS, own, waiting)


def footprint(roots: list[int]) -> dict[str, Any]:
    """Peak memory of all processes in MB, and how many processes and threads there are."""
    pids = descendants(roots)
    peak = sum(_status(pid, "VmHWM") for pid in pids) / 1024
    threads = sum(_status(pid, "Threads") for pid in pids)
    return {"memory_mb": round(peak), "processes": len(pids), "threads": threads}


def describe() -> dict[str, Any]:
    """The machine and the moment."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "commit": _commit(),
        "system": platform.platform(),
        "processor": models[0] if models else platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
    }


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat behind the name, which may hold blanks."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def _waited(pid: int) -> Iterator[float]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(*_GONE):
            yield int((task / "schedstat").read_text().split()[1]) / 1e9


def _status(pid: int, key: str) -> int:
    with suppress(*_GONE):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1])
    return 0


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    here = Path(__file__).parent
    try:
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
