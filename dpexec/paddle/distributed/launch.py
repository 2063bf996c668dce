"""``python -m dpexec.paddle.distributed.launch``: runs a script in several trainers.

Takes the options of ``python -m paddle.distributed.launch``, and ``--nproc_per_node`` of later
versions, and starts the same processes as ``dpexec run --trainers``. For several machines, call it
on each, with the same random text in the environment variable DPEXEC_SECRET.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dpexec.commands import USAGE_ERROR, CommandError, count
from dpexec.commands.launch import Job
from dpexec.commands.launch import launch as run_job
from dpexec.engine.core.places import get_cuda_device_count
from dpexec.paddle.distributed.cloud_utils import get_cloud_cluster, get_trainers_num
from dpexec.paddle.distributed.utils import Cluster, Pod, find_free_ports, get_cluster

__all__ = ["get_cluster_from_args", "get_gpus", "launch"]

_FIRST_PORT = 6070


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser("dpexec.paddle.distributed.launch", description=description)
    add = parser.add_argument
    add("--cluster_node_ips", default="127.0.0.1", help="addresses of all machines")
    add("--node_ip", default="127.0.0.1", help="address of this one")
    add("--use_paddlecloud", action="store_true", help="take both from the environment")
    add("--started_port", type=int, help="first port of each machine (default: free ones, or 6070)")
    add("--print_config", type=bool, default=True, help="show the options")
    add("--selected_gpus", help="numbers of GPUs; a trainer for each (default: all)")
    add("--nproc_per_node", type=count, help="number of trainers, without GPUs (default: 1)")
    add("--log_level", type=int, default=20, help="accepted")
    add("--log_dir", type=Path, help="write what trainers print into files workerlog.N there")
    add("training_script", help="a Python file")
    add("training_script_args", nargs=argparse.REMAINDER, help="go to the script as they are")
    return parser


def get_gpus(selected_gpus: str | None) -> list[str]:
    """Indices of GPUs among those visible to this process.

    Args:
        selected_gpus: the machine's indices, such as ``"4,5"``; None takes all.

    Returns:
        The indices as text, such as ``["0", "1"]``.

    Raises:
        CommandError: an index is not in CUDA_VISIBLE_DEVICES.

    Example:
        >>> from dpexec.paddle.distributed import launch
        >>> launch.get_gpus("0, 1")
        ['0', '1']
    """
    if selected_gpus is None:
        return [str(number) for number in range(get_cuda_device_count())]
    asked = [item.strip() for item in selected_gpus.split(",")]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not visible:
        return asked
    there = [item.strip() for item in visible.split(",")]
    for number in asked:
        if number not in there:
            raise CommandError(f"GPU {number} is not in CUDA_VISIBLE_DEVICES={visible}")
    return [str(there.index(number)) for number in asked]


def get_cluster_from_args(
    args: argparse.Namespace, selected_gpus: Sequence[str]
) -> tuple[Cluster, Pod]:
    """All trainers of a job, and those of this machine, from options.

    Args:
        args: options with ``cluster_node_ips``, ``node_ip`` and ``started_port``.
        selected_gpus: the GPU of each trainer of a machine.

    Returns:
        All machines, and this one.

    Raises:
        ValueError: this machine is not among them.

    Example:
        >>> from argparse import Namespace
        >>> from dpexec.paddle.distributed import launch
        >>> hosts = "10.0.0.1,10.0.0.2"
        >>> options = Namespace(cluster_node_ips=hosts, node_ip="10.0.0.2", started_port=6170)
        >>> cluster, pod = launch.get_cluster_from_args(options, ["0"])
        >>> cluster.trainers_endpoints()
        ['10.0.0.1:6170', '10.0.0.2:6170']
        >>> pod.rank
        1
    """
    addresses = [item.strip() for item in args.cluster_node_ips.split(",")]
    if len(addresses) == 1 and args.started_port is None:
        ports = sorted(find_free_ports(len(selected_gpus)))
    else:
        first = _FIRST_PORT if args.started_port is None else args.started_port
        ports = list(range(first, first + len(selected_gpus)))
    endpoints = [[f"{address}:{port}" for port in ports] for address in addresses]
    return get_cluster(addresses, args.node_ip, endpoints, selected_gpus)


def launch(args: argparse.Namespace) -> int:
    """Run a script in the trainers of this machine.

    Args:
        args: the command line's options.

    Returns:
        0, or the exit code of the first process that failed.

    Raises:
        CommandError: there is no such script or GPU.

    Example:
        >>> # python -m dpexec.paddle.distributed.launch --nproc_per_node=2 train.py
        >>> from dpexec.paddle.distributed.launch import launch
        >>> launch(args)  # the parsed options of that command  # doctest: +SKIP
        0
    """
    gpus = [] if args.nproc_per_node else get_gpus(args.selected_gpus)
    trainers = gpus or [""] * (args.nproc_per_node or 1)
    if args.use_paddlecloud and get_trainers_num() != 1:
        cluster, pod = get_cloud_cluster(
            args.cluster_node_ips, args.node_ip, args.started_port, trainers
        )
    else:
        cluster, pod = get_cluster_from_args(args, trainers)
    first = pod.trainers[0].rank
    here = range(first, first + len(pod.trainers))
    job = Job(cluster.trainers_endpoints(), here, gpus=gpus, logs=args.log_dir)
    return run_job(options_for(args), job)


def options_for(args: argparse.Namespace) -> argparse.Namespace:
    """The equivalent options of ``dpexec run``."""
    unset = dict.fromkeys(("restarts", "devices", "mode", "scheduler", "report", "trace"))
    script, words = args.training_script, args.training_script_args
    return argparse.Namespace(script=script, arguments=words, **unset)


def show(args: argparse.Namespace) -> None:
    """Print the options, if ``print_config`` is set."""
    if args.print_config:
        for name, value in sorted(vars(args).items()):
            print(f"{name}: {value}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = _parser().parse_args(arguments)
    show(args)
    try:
        return launch(args)
    except (CommandError, ValueError) as error:
        print(f"dpexec.paddle.distributed.launch: {error}", file=sys.stderr)
        return USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())
