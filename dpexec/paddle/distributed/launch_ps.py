"""``python -m dpexec.paddle.distributed.launch_ps``: runs a script in trainers and servers.

Takes the options of ``python -m paddle.distributed.launch_ps``, and starts the same processes as
``dpexec run --trainers N --servers M``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dpexec.commands import USAGE_ERROR, CommandError, count
from dpexec.commands.launch import Job, free_endpoints
from dpexec.commands.launch import launch as run_job
from dpexec.paddle.distributed.launch import options_for, show

__all__ = ["launch", "parse_args", "start_procs"]


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the options of a command line; None takes the process's arguments.

    Args:
        arguments: the words of the command line; None takes those of the process.

    Returns:
        The options.

    Example:
        >>> from dpexec.paddle.distributed import launch_ps
        >>> args = launch_ps.parse_args(["--worker_num", "2", "--server_num", "1", "train.py"])
        >>> args.worker_num, args.server_num, args.training_script
        (2, 1, 'train.py')
    """
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser("dpexec.paddle.distributed.launch_ps", description=description)
    add = parser.add_argument
    add("--cluster_node_ips", default="127.0.0.1", help="accepted")
    add("--node_ip", default="127.0.0.1", help="accepted")
    add("--start_port", type=int, default=6170, help="port of the first server")
    add("--print_config", type=bool, default=True, help="show the options")
    add("--endpoints", default="", help="endpoints of the servers instead of --start_port")
    add("--worker_num", type=count, default=2, help="number of trainers")
    add("--server_num", type=count, default=2, help="number of servers")
    add("--log_dir", type=Path, default=Path("logs"), help="where each process writes its file")
    add("training_script", help="a Python file")
    add("training_script_args", nargs=argparse.REMAINDER, help="go to the script as they are")
    return parser.parse_args(arguments)


def start_procs(args: argparse.Namespace) -> int:
    """Run a script in all processes.

    Args:
        args: the command line's options.

    Returns:
        0, or the exit code of the first process that failed.

    Raises:
        CommandError: there is no such script, or there are too few endpoints.

    Example:
        >>> from dpexec.paddle.distributed import launch_ps
        >>> options = launch_ps.parse_args(["--worker_num=2", "train.py"])
        >>> launch_ps.start_procs(options)  # doctest: +SKIP
        0
    """
    ports = range(args.start_port, args.start_port + args.server_num)
    servers = args.endpoints.split(",") if args.endpoints else [f"127.0.0.1:{p}" for p in ports]
    if len(servers) < args.server_num:
        raise CommandError(f"{len(servers)} --endpoints for {args.server_num} servers")
    trainers = free_endpoints(args.worker_num)
    job = Job(trainers, range(args.worker_num), servers[: args.server_num], logs=args.log_dir)
    return run_job(options_for(args), job)


def launch(arguments: Sequence[str] | None = None) -> int:
    """Start parameter servers and trainers as a command line says, and wait for them.

    Args:
        arguments: the words of the command line; None takes those of the process.

    Returns:
        The exit code.

    Example:
        >>> from dpexec.paddle.distributed import launch_ps
        >>> launch_ps.launch(["--worker_num=2", "--server_num=1", "train.py"])  # doctest: +SKIP
        0
    """
    args = parse_args(arguments)
    show(args)
    try:
        return start_procs(args)
    except CommandError as error:
        print(f"dpexec.paddle.distributed.launch_ps: {error}", file=sys.stderr)
        return USAGE_ERROR


if __name__ == "__main__":
    sys.exit(launch())
