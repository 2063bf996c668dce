"""Several hosts on one machine: network namespaces, joined by links that are narrow and can be cut.

Needs root and iproute2. A link that is delayed, too, goes through a process (:mod:`.delay`).

Whoever is killed removes no network. So the processes of one end with who has started them, and
what is left is removed by the next one who makes or removes a network. A network is named by its
addresses: the system lets nobody take a name, and so the addresses, that another process has. Its
bridge comes before its hosts and goes after them, so a host without a bridge belongs to nobody.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from distributed import Client

from tests.distributed import delay as cable
from tests.distributed.forked_dask import Forked
from tests.waiting import until

_LARGEST = 70_000  # bytes of what the kernel sends at once if it need not cut it into frames
_NOBODY = "02:00:00:00:00:01"
_JUMBO = 9000  # bytes of a frame: a process that carries them has fewer to carry
_CONTROL = "cubic"
"""How hosts find out what links take: as Linux does unless told otherwise. BBR, which some machines
choose, takes late acknowledgements of hosts that share a few cores for a slow link."""

_NAMESPACES = Path("/run/netns")
_NETWORKS = 250
_WITH_US = ["setpriv", "--pdeathsig", "KILL"]


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def _began(pid: int) -> str:
    """What tells a process from others that have its number at other times; empty: it is over."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def remove_forgotten() -> None:
    """Remove networks whose processes are gone, and hosts whose networks are."""
    for path in Path("/sys/class/net").glob("dpx*/ifalias"):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):  # or somebody else has
            alias, name = path.read_text().split(), path.parent.name
            if len(alias) == 2 and _began(int(alias[0])) != alias[1]:
                for host in _NAMESPACES.glob(f"{name}h*"):
                    _ip("netns", "del", host.name)
                _ip("link", "del", name)
    for host in _NAMESPACES.glob("dpx*h*"):
        if not Path(f"/sys/class/net/{host.name.rpartition('h')[0]}").exists():
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", host.name)


def take_network() -> tuple[str, str]:
    """Make a bridge that nobody else has; its name, and the first three numbers of its addresses.

    Raises:
        subprocess.CalledProcessError: none can be made.
        OSError: all are in use.
    """
    remove_forgotten()
    used = _ip("-4", "addr")
    for number in (number % _NETWORKS for number in range(os.getpid(), os.getpid() + _NETWORKS)):
        network, net = f"dpx{number}", f"10.213.{number}"
        if f"{net}.1/" in used:
            continue
        try:
            _ip("link", "add", network, "type", "bridge")
        except subprocess.CalledProcessError:
            if not Path(f"/sys/class/net/{network}").exists():
                raise
        else:
            _ip("link", "set", network, "alias", f"{os.getpid()} {_began(os.getpid())}")
            return network, net
    raise OSError("all networks are in use")


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


class Host:
    """A host with a worker, behind a link of its own.

    Args:
        network: name of the bridge.
        net: the first three numbers of all addresses.
        number: counts the hosts.
        megabits: per second that the link takes, in either direction.
        delay: seconds that it takes to go through the link, in either direction.
    """

    def __init__(self, network: str, net: str, number: int, megabits: int, delay: float) -> None:
        self.name, self.address = f"{network}h{number}", f"{net}.{number + 2}"
        self.link = f"{network}l{number}"  # the end of the bridge
        self._inside = f"{network}i{number}"
        self._network, self._megabits, self._delay = network, megabits, delay
        self._route = f"{net}.0/24"
        self._carrier: subprocess.Popen[bytes] | None = None  # of what goes through the link
        self._worker: Forked | None = None
        self._scheduler: Path

    def build(self) -> None:
        """Make the host and its link."""
        _ip("netns", "add", self.name)
        self._connect()
        _ip("link", "set", self._inside, "netns", self.name)
        _ip("link", "set", self.link, "master", self._network, "up")
        inside = ["-n", self.name]
        for command in (
            ["addr", "add", f"{self.address}/24", "dev", self._inside],
            ["link", "set", self._inside, "up"],
            ["link", "set", "lo", "up"],
            ["route", "replace", self._route, "dev", self._inside, "congctl", _CONTROL],
        ):
            _ip(*inside, *command)
        self._narrow([], self.link)
        self._narrow(inside, self._inside)

    def _connect(self) -> None:
        """Make both ends of the link."""
        if not self._delay:
            _ip("link", "add", self.link, "type", "veth", "peer", "name", self._inside)
            return
        ends = [self.link, self._inside]
        command = [*_WITH_US, sys.executable, cable.__file__, str(self._delay), *ends]
        self._carrier = subprocess.Popen(command)
        until(lambda: all(Path(f"/sys/class/net/{end}").exists() for end in ends), 10)
        for end in ends:
            _ip("link", "set", end, "mtu", str(_JUMBO))

    def _narrow(self, inside: Sequence[str], device: str) -> None:
        burst = max(_LARGEST, self._megabits * 125)  # bytes; those of a millisecond
        bucket = ["tbf", "rate", f"{self._megabits}mbit", "burst", str(burst), "latency", "50ms"]
        command = ["tc", *inside, "qdisc", "add", "dev", device, "root", *bucket]
        subprocess.run(command, check=True, capture_output=True)

    def start(self, scheduler: Path) -> None:
        """Start the worker of the scheduler that a file names."""
        self._scheduler = scheduler
        options = ["--host", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        # who imports it later, in the middle of a step, may seem silent
        options += ["--preload", "dpexec.engine.compile.bindings.native"]
        arguments = ["--scheduler-file", str(scheduler), *options]
        self._worker = Forked("worker", *arguments, inside=self.name)

    def start_again(self) -> None:
        """Start another worker in the place of one that has ended."""
        self.start(self._scheduler)

    @property
    def works(self) -> bool:
        """Whether the process of its worker is there."""
        return self._worker is not None and self._worker.works

    def end(self) -> None:
        """Kill the worker."""
        if self._worker is not None:
            self._worker.kill()

    def signal(self, number: int) -> None:
        """Send the process of the worker a signal, if it is there."""
        if self._worker is not None:
            self._worker.send_signal(number)

    def cut(self) -> None:
        """Cut the link: nobody is told."""
        _ip("link", "set", self.link, "down")

    def mend(self) -> None:
        """Join what was cut."""
        _ip("link", "set", self.link, "up")

    def lose(self, other: "Host") -> None:
        """Send nothing to another host any more: its frames go to nobody, who does not say so."""
        self._neighbour("replace", other, "lladdr", _NOBODY, "nud", "permanent")

    def find(self, other: "Host") -> None:
        """Send to another host again."""
        with contextlib.suppress(subprocess.CalledProcessError):  # it was not lost
            self._neighbour("del", other)

    def _neighbour(self, action: str, other: "Host", *options: str) -> None:
        command = ["neigh", action, other.address, *options, "dev", self._inside]
        _ip("-n", self.name, *command)

    @property
    def received(self) -> int:
        """Bytes that came to the host so far."""
        return int(Path(f"/sys/class/net/{self.link}/statistics/tx_bytes").read_text())

    def remove(self) -> None:
        """Kill the worker, and remove the host."""
        self.end()
        if self._carrier is not None:
            _kill(self._carrier)
        for command in (["link", "del", self.link], ["netns", "del", self.name]):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip(*command)


@contextmanager
def hosts(count: int, megabits: int, delay: float = 0.0) -> Iterator[tuple[Client, list[Host]]]:
    """A cluster with a worker on each of some hosts.

    Args:
        count: of hosts.
        megabits: per second that their links take.
        delay: seconds that it takes to go through a link, of which two are between hosts.

    Returns:
        A client, and the hosts. The test is skipped where none can be made.
    """
    if os.getuid() or not all(map(shutil.which, ("ip", "tc", "setpriv"))):
        pytest.skip("hosts of its own need root, ip and tc of iproute2, setpriv of util-linux")
    if delay and not os.access("/dev/net/tun", os.W_OK):
        pytest.skip("links that take time need /dev/net/tun")
    with ExitStack() as stack:
        try:
            network, net = take_network()
            stack.callback(remove_forgotten)
            stack.callback(lambda: _ip("link", "del", network))
            _ip("addr", "add", f"{net}.1/24", "dev", network)
            _ip("link", "set", network, "up")
            made = [Host(network, net, number, megabits, delay) for number in range(count)]
            for host in made:
                stack.callback(host.remove)
                host.build()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"hosts of its own cannot be made here: {error.stderr}")
        file = Path(stack.enter_context(TemporaryDirectory())) / "scheduler.json"
        options = ("--host", f"{net}.1", "--port", "0", "--no-dashboard")
        scheduler = Forked("scheduler", "--scheduler-file", str(file), *options)
        stack.callback(scheduler.kill)
        for host in made:
            host.start(file)
        client = Client(
            scheduler_file=str(until(lambda: file.exists() and file)), set_as_default=False
        )
        stack.enter_context(client)
        client.wait_for_workers(count, timeout=60)
        yield client, made
