"""Role makers: whether a process is trainer or server, its number, and the other processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from dpexec.engine.core.errors import EnforceNotMet, see

__all__ = [
    "PaddleCloudRoleMaker",
    "Role",
    "RoleMakerBase",
    "UserDefinedCollectiveRoleMaker",
    "UserDefinedRoleMaker",
]


class Role:
    """The roles of processes.

    Example:
        >>> from dpexec.incubate.fleet.base.role_maker import Role
        >>> Role.WORKER, Role.SERVER
        (1, 2)
    """

    WORKER = 1
    SERVER = 2


class RoleMakerBase:
    """Base class: the role of this process, and the endpoints of all processes.

    ``MPISymetricRoleMaker`` and ``GeneralRoleMaker`` of fluid need MPI and gloo, and are not
    supported.

    Example:
        >>> from dpexec.incubate.fleet.base import role_maker
        >>> class Alone(role_maker.RoleMakerBase):
        ...     def generate_role(self):
        ...         self._worker_num, self._role_is_generated = 1, True
        >>> Alone().is_first_worker(), Alone().worker_num()
        (True, 1)
    """

    def __init__(self) -> None:
        self._worker_endpoints: list[str] = []
        self._server_endpoints: list[str] = []
        self._role_is_generated = False
        self._role = Role.WORKER
        self._current_id = 0
        self._worker_num = 0

    def generate_role(self) -> None:
        """Determine the role, unless done before."""
        self._role_is_generated = True

    def is_worker(self) -> bool:
        """Whether this process is a trainer."""
        self.generate_role()
        return self._role == Role.WORKER

    def is_server(self) -> bool:
        """Whether this process is a parameter server."""
        self.generate_role()
        return self._role == Role.SERVER

    def is_first_worker(self) -> bool:
        """Whether this process is trainer 0."""
        return self.is_worker() and self._current_id == 0

    def worker_num(self) -> int:
        """How many trainers there are."""
        self.generate_role()
        return self._worker_num

    def worker_index(self) -> int:
        """Number of this trainer."""
        self.generate_role()
        return self._current_id

    def server_index(self) -> int:
        """Number of this server."""
        self.generate_role()
        return self._current_id

    def get_trainer_endpoints(self) -> list[str]:
        """Where trainers listen; empty if they do not."""
        self.generate_role()
        return self._worker_endpoints

    def get_pserver_endpoints(self) -> list[str]:
        """Where servers listen; empty if there are none."""
        self.generate_role()
        return self._server_endpoints

    def to_string(self) -> str:
        """All of this in a line."""
        self.generate_role()
        return (
            f"role: {self._role}, current_id: {self._current_id}, "
            f"worker_endpoints: {self._worker_endpoints}, "
            f"server_endpoints: {self._server_endpoints}"
        )

    def all_gather(self, input: Any) -> Any:
        """Not supported.

        Raises:
            EnforceNotMet: always.
        """
        raise EnforceNotMet(_NO_GLOO.format("all_gather"))

    def all_reduce_worker(self, input: Any, output: Any, mode: str = "sum") -> None:
        """Not supported.

        Raises:
            EnforceNotMet: always.
        """
        raise EnforceNotMet(_NO_GLOO.format("all_reduce_worker"))

    def barrier_worker(self) -> None:
        """Not supported.

        Raises:
            EnforceNotMet: always.
        """
        raise EnforceNotMet(_NO_GLOO.format("barrier_worker"))

    def barrier_all(self) -> None:
        """Not supported.

        Raises:
            EnforceNotMet: always.
        """
        raise EnforceNotMet(_NO_GLOO.format("barrier_all"))


_NO_GLOO = (
    "{} is not supported: in fluid it needs MPI or gloo; trainers wait for each other in every "
    "step of their program, and values of all are fetched from it"
)


class PaddleCloudRoleMaker(RoleMakerBase):
    """The role from environment variables, as set by ``dpexec run --trainers N``.

    Trainers among themselves: PADDLE_TRAINER_ID (0), PADDLE_TRAINER_ENDPOINTS and
    PADDLE_TRAINING_ROLE (TRAINER). With servers: TRAINING_ROLE (TRAINER or PSERVER),
    PADDLE_TRAINERS_NUM, PADDLE_PSERVERS_IP_PORT_LIST, and PADDLE_TRAINER_ID of a trainer, POD_IP
    and PADDLE_PORT of a server.

    Args:
        is_collective: there are no servers.

    Example:
        >>> import os
        >>> from unittest import mock
        >>> from dpexec.incubate.fleet.base.role_maker import PaddleCloudRoleMaker
        >>> job = {"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINER_ENDPOINTS": "a:6170,b:6170"}
        >>> with mock.patch.dict(os.environ, job):
        ...     role = PaddleCloudRoleMaker(is_collective=True)
        ...     role.worker_index(), role.worker_num()
        (1, 2)
    """

    def __init__(self, is_collective: bool = False) -> None:
        super().__init__()
        self._is_collective = is_collective

    def generate_role(self) -> None:
        """Read the variables, unless done before.

        Raises:
            AssertionError: without servers: the endpoints are not set, or the role is another one.
            KeyError: with servers: a variable is not set.
            ValueError: with servers: a variable has a value that cannot be.
        """
        if self._role_is_generated:
            return
        if self._is_collective:
            self._read_trainer()
        else:
            self._read_role()
        self._role_is_generated = True

    def _read_trainer(self) -> None:
        role = os.environ.get("PADDLE_TRAINING_ROLE", "TRAINER")
        if role != "TRAINER":
            raise AssertionError(
                f"PADDLE_TRAINING_ROLE is {role}, but is_collective=True: there are only trainers"
            )
        endpoints = os.environ.get("PADDLE_TRAINER_ENDPOINTS")
        if endpoints is None:
            problem = (
                "can't find PADDLE_TRAINER_ENDPOINTS in the environment: start the script with "
                "dpexec run SCRIPT --trainers N, which sets it"
            )
            raise see("a-role-that-the-environment-does-not-tell", AssertionError(problem))
        self._current_id = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
        self._worker_endpoints = endpoints.split(",")
        self._worker_num = len(self._worker_endpoints)

    def _read_role(self) -> None:
        self._server_endpoints = _told("PADDLE_PSERVERS_IP_PORT_LIST").split(",")
        self._worker_num = int(_told("PADDLE_TRAINERS_NUM"))
        role = _told("TRAINING_ROLE")
        if role == "TRAINER":
            self._role, self._current_id = Role.WORKER, int(_told("PADDLE_TRAINER_ID"))
        elif role == "PSERVER":
            endpoint = f"{_told('POD_IP')}:{_told('PADDLE_PORT')}"
            if endpoint not in self._server_endpoints:
                raise ValueError(
                    f"POD_IP and PADDLE_PORT are {endpoint}, which is none of "
                    f"PADDLE_PSERVERS_IP_PORT_LIST, {', '.join(self._server_endpoints)}"
                )
            self._role = Role.SERVER
            self._current_id = self._server_endpoints.index(endpoint)
        else:
            raise ValueError(f"TRAINING_ROLE must be PSERVER or TRAINER, but it is {role}")


def _told(name: str) -> str:
    """A variable of the environment."""
    if name not in os.environ:
        problem = (
            f"{name} is not set: start the script with dpexec run SCRIPT --trainers N --servers M, "
            "which sets it"
        )
        raise see("a-role-that-the-environment-does-not-tell", KeyError(problem))
    return os.environ[name]


class UserDefinedRoleMaker(RoleMakerBase):
    """A role given by the script, for jobs with servers.

    Args:
        current_id: number among the processes of this role.
        role: ``Role.WORKER`` or ``Role.SERVER``.
        worker_num: number of trainers.
        server_endpoints: ``host:port`` of every server.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a number or a list has an invalid value.

    Example:
        >>> from dpexec.incubate.fleet.base.role_maker import Role, UserDefinedRoleMaker
        >>> role = UserDefinedRoleMaker(
        ...     current_id=1, role=Role.WORKER, worker_num=2, server_endpoints=["127.0.0.1:6174"]
        ... )
        >>> role.is_worker(), role.is_first_worker(), role.worker_index()
        (True, False, 1)
    """

    def __init__(
        self,
        current_id: int = 0,
        role: int = Role.WORKER,
        worker_num: int = 0,
        server_endpoints: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._server_endpoints = _endpoints("server_endpoints", server_endpoints)
        if role not in (Role.WORKER, Role.SERVER):
            raise TypeError(f"role must be Role.WORKER or Role.SERVER, but received {role!r}")
        servers = len(self._server_endpoints) if role == Role.SERVER else None
        self._role, self._current_id = role, _number(current_id, servers)
        if not isinstance(worker_num, int):
            raise TypeError(f"worker_num must be an int, but received {worker_num!r}")
        if worker_num <= 0:
            raise ValueError(f"worker_num must be greater than 0, but received {worker_num}")
        self._worker_num = worker_num


class UserDefinedCollectiveRoleMaker(RoleMakerBase):
    """A role given by the script, for trainers without servers.

    Args:
        current_id: number of this trainer.
        worker_endpoints: endpoints of the trainers.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a number or a list has an invalid value.

    Example:
        >>> from dpexec.incubate.fleet.base.role_maker import UserDefinedCollectiveRoleMaker
        >>> role = UserDefinedCollectiveRoleMaker(1, ["10.0.0.1:6170", "10.0.0.2:6170"])
        >>> role.worker_num(), role.worker_index(), role.is_server()
        (2, 1, False)
    """

    def __init__(self, current_id: int = 0, worker_endpoints: Sequence[str] | None = None) -> None:
        super().__init__()
        self._worker_endpoints = _endpoints("worker_endpoints", worker_endpoints)
        self._worker_num = len(self._worker_endpoints)
        self._current_id = _number(current_id, self._worker_num)


def _endpoints(name: str, given: Any) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
        raise TypeError(f"{name} must be a list of strings, but received {given!r}")
    if not given:
        raise ValueError(f"the length of {name} must be greater than 0")
    if len(given) != len(set(given)):
        raise ValueError(f"{name} can't have duplicate elements, but received {given}")
    return given


def _number(given: Any, count: int | None) -> int:
    if not isinstance(given, int):
        raise TypeError(f"current_id must be an int, but received {given!r}")
    if given < 0 or (count is not None and given >= count):
        below = "" if count is None else f" and less than {count}"
        raise ValueError(f"current_id must be at least 0{below}, but received {given}")
    return given
