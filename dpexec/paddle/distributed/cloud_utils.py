"""``paddle.distributed.cloud_utils``: a job's trainers, from PaddleCloud's variables."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dpexec.paddle.distributed.utils import Cluster, Pod, get_cluster

__all__ = ["get_cloud_cluster", "get_trainers_num"]

_FIRST_PORT = 6170


def get_trainers_num() -> int:
    """The number of trainers in PADDLE_TRAINERS_NUM; 1 if it is not set.

    Returns:
        The number.

    Example:
        >>> from dpexec.paddle.distributed import cloud_utils
        >>> cloud_utils.get_trainers_num()  # PADDLE_TRAINERS_NUM is not set here
        1
    """
    return int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))


def get_cloud_cluster(
    args_node_ips: str, args_node_ip: str, args_port: int | None, selected_gpus: Sequence[str]
) -> tuple[Cluster, Pod]:
    """All trainers of a job, and those of this machine, from the environment.

    PADDLE_TRAINERS holds the machines' addresses, PADDLE_TRAINER_ID the number of this machine,
    POD_IP its address, and DISTRIBUTED_TRAINER_ENDPOINTS all endpoints, TRAINER_PORTS_NUM per
    machine. If there are no endpoints and several machines, ports are counted from PADDLE_PORT.

    Args:
        args_node_ips: ignored; accepted for compatibility.
        args_node_ip: ignored; accepted for compatibility.
        args_port: the first port, if the environment names none; None takes 6170.
        selected_gpus: the GPU of each trainer of a machine.

    Returns:
        All machines, and this one.

    Raises:
        AssertionError: a variable is missing, or the endpoints are inconsistent with the others.

    Example:
        >>> import os
        >>> from unittest import mock
        >>> from dpexec.paddle.distributed.cloud_utils import get_cloud_cluster
        >>> job = {"PADDLE_TRAINERS": "10.0.0.1,10.0.0.2", "PADDLE_TRAINER_ID": "1"}
        >>> job |= {"POD_IP": "10.0.0.2", "TRAINER_PORTS_NUM": "1"}
        >>> with mock.patch.dict(os.environ, job):
        ...     cluster, pod = get_cloud_cluster("", "", 6170, ["0"])
        >>> cluster.trainers_endpoints(), pod.rank
        (['10.0.0.1:6170', '10.0.0.2:6170'], 1)
    """
    addresses = _variable("PADDLE_TRAINERS").split(",")
    here, rank = _variable("POD_IP"), int(_variable("PADDLE_TRAINER_ID"))
    ports = int(_variable("TRAINER_PORTS_NUM"))
    listed = os.environ.get("DISTRIBUTED_TRAINER_ENDPOINTS")
    if listed is None:
        given = os.environ.get("PADDLE_PORT") if len(addresses) > 1 else None
        first = int(given) if given and ports >= len(selected_gpus) else args_port or _FIRST_PORT
        found = [[f"{ip}:{first + n}" for n in range(len(selected_gpus))] for ip in addresses]
    else:
        every = listed.split(",")
        if len(every) != len(addresses) * ports:
            raise AssertionError(
                f"{len(every)} DISTRIBUTED_TRAINER_ENDPOINTS for {len(addresses)} machines with "
                f"{ports} (TRAINER_PORTS_NUM) each"
            )
        found = [every[n * ports : (n + 1) * ports] for n in range(len(addresses))]
    cluster, _ = get_cluster(addresses, here, found, selected_gpus)
    return cluster, cluster.pods[rank]


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise AssertionError(f"the environment variable {name} is not set")
    return value
