"""``paddle.distributed.utils``: descriptions of a job's trainers, and small helpers."""

from __future__ import annotations

import argparse
import logging
import socket
from collections.abc import Sequence
from typing import Any

from dpexec.commands.launch import free_endpoints
from dpexec.engine.core.light_dataclasses import dataclass, field

__all__ = [
    "Cluster",
    "Pod",
    "Trainer",
    "add_arguments",
    "find_free_ports",
    "get_cluster",
    "get_host_name_ip",
    "get_logger",
]


@dataclass
class Trainer:
    """A trainer process.

    Args:
        gpus: GPUs that it uses.
        endpoint: address and port on which it listens.
        rank: number of the trainer.

    Example:
        >>> from dpexec.paddle.distributed.utils import Trainer
        >>> Trainer(gpus=["0"], endpoint="10.0.0.1:6070", rank=0)
        Trainer(gpus=['0'], endpoint='10.0.0.1:6070', rank=0)
    """

    gpus: list[str]
    endpoint: str
    rank: int


@dataclass
class Pod:
    """The trainers of a machine.

    Args:
        rank: number of the machine.
        addr: address of the machine.
        trainers: trainers on the machine.

    Example:
        >>> from dpexec.paddle.distributed.utils import Pod, Trainer
        >>> pod = Pod(0, "10.0.0.1", [Trainer(["0"], "10.0.0.1:6070", 0)])
        >>> len(pod.trainers)
        1
    """

    rank: int
    addr: str
    trainers: list[Trainer] = field(default_factory=list)


@dataclass
class Cluster:
    """The machines of a job.

    Args:
        pods: one ``Pod`` for each machine.

    Example:
        >>> from dpexec.paddle.distributed.utils import Cluster, Pod, Trainer
        >>> pods = [Pod(i, ip, [Trainer([], f"{ip}:6070", i)]) for i, ip in enumerate(["a", "b"])]
        >>> Cluster(pods).trainers_nranks(), Cluster(pods).trainers_endpoints()
        (2, ['a:6070', 'b:6070'])
    """

    pods: list[Pod]

    def trainers_endpoints(self) -> list[str]:
        """Endpoints of all trainers, by rank."""
        return [trainer.endpoint for pod in self.pods for trainer in pod.trainers]

    def trainers_nranks(self) -> int:
        """The number of trainers."""
        return len(self.trainers_endpoints())

    def pods_nranks(self) -> int:
        """The number of machines."""
        return len(self.pods)


def get_cluster(
    node_ips: Sequence[str],
    node_ip: str,
    trainer_endpoints: Sequence[Sequence[str]],
    selected_gpus: Sequence[str],
) -> tuple[Cluster, Pod]:
    """All trainers of a job, and those of this machine.

    Args:
        node_ips: addresses of the machines.
        node_ip: address of this machine.
        trainer_endpoints: endpoints of each machine, at least one per trainer.
        selected_gpus: the GPU of each trainer of a machine.

    Returns:
        All machines, and this one.

    Raises:
        AssertionError: a machine has too few endpoints.
        ValueError: this machine is not among them.

    Example:
        >>> from dpexec.paddle.distributed.utils import get_cluster
        >>> ips = ["10.0.0.1", "10.0.0.2"]
        >>> endpoints = [["10.0.0.1:6070", "10.0.0.1:6071"], ["10.0.0.2:6070", "10.0.0.2:6071"]]
        >>> cluster, pod = get_cluster(ips, "10.0.0.2", endpoints, selected_gpus=["0", "1"])
        >>> [trainer.rank for trainer in pod.trainers]  # those of 10.0.0.2
        [2, 3]
    """
    pods, number = [], len(selected_gpus)
    for node, (address, endpoints) in enumerate(zip(node_ips, trainer_endpoints, strict=True)):
        if len(endpoints) < number:
            raise AssertionError(f"{address} has {len(endpoints)} endpoints for {number} trainers")
        pods.append(Pod(node, address))
        for index, (gpu, endpoint) in enumerate(zip(selected_gpus, endpoints, strict=False)):
            pods[-1].trainers.append(Trainer([gpu], endpoint, node * number + index))
    return Cluster(pods), pods[list(node_ips).index(node_ip)]


def find_free_ports(num: int) -> set[int]:
    """Free ports of this machine.

    Args:
        num: how many.

    Returns:
        The ports; another process may take one before it is used.

    Example:
        >>> from dpexec.paddle.distributed.utils import find_free_ports
        >>> len(find_free_ports(2))
        2
    """
    return {int(endpoint.rpartition(":")[2]) for endpoint in free_endpoints(num)}


def get_host_name_ip() -> tuple[str, str] | None:
    """Name and address of this machine; None if the name has no address.

    Returns:
        Name and address, or None.

    Example:
        >>> from dpexec.paddle.distributed.utils import get_host_name_ip
        >>> found = get_host_name_ip()  # None if the name of the machine has no address
        >>> found is None or len(found) == 2
        True
    """
    name = socket.gethostname()
    try:
        return name, socket.gethostbyname(name)
    except OSError:
        return None


def get_logger(log_level: int, name: str = "root") -> logging.Logger:
    """A logger that writes to stderr.

    Args:
        log_level: lowest level that is written, such as ``logging.INFO`` or 20.
        name: name of the logger.

    Returns:
        The logger.

    Example:
        >>> import logging
        >>> from dpexec.paddle.distributed.utils import get_logger
        >>> get_logger(logging.WARNING, "launch").isEnabledFor(logging.INFO)
        False
    """
    logger = logging.getLogger(name)
    logger.setLevel(log_level)
    handler = logging.StreamHandler()
    form = "%(levelname)s %(asctime)s %(filename)s:%(lineno)d] %(message)s"
    handler.setFormatter(logging.Formatter(form))
    logger.addHandler(handler)
    return logger


def add_arguments(
    argname: str,
    type: Any,
    default: Any,
    help: str,
    argparser: argparse.ArgumentParser,
    **kwargs: Any,
) -> None:
    """Add an option ``--argname`` whose help shows the default; bools are parsed from words.

    Args:
        argname: name of the option without ``--``.
        type: type of its value; ``bool`` takes words such as ``true`` and ``0``.
        default: value if the option is not given.
        help: text for ``--help``.
        argparser: takes the option.
        kwargs: further arguments for ``add_argument``.

    Example:
        >>> import argparse
        >>> from dpexec.paddle.distributed.utils import add_arguments
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments("use_gpu", bool, False, "Train on GPUs.", parser)
        >>> parser.parse_args(["--use_gpu", "yes"]).use_gpu
        True
    """
    kind = _as_bool if type is bool else type
    text = f"{help} Default: %(default)s."
    argparser.add_argument(f"--{argname}", default=default, type=kind, help=text, **kwargs)


def _as_bool(text: str) -> bool:
    words = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
    known = words | {"y": True, "t": True, "1": True, "n": False, "f": False, "0": False}
    if text.lower() not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return known[text.lower()]
