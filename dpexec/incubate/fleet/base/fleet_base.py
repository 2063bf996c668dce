"""``Fleet``: the roles of a job's processes, and distributed optimizers."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from dpexec.contrib.mixed_precision.decorator import OptimizerWithMixedPrecision
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.executors.executor import Executor
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.incubate.fleet.base.mode import Mode
from dpexec.incubate.fleet.base.role_maker import RoleMakerBase
from dpexec.io.inference import save_inference_model
from dpexec.optimizer.base import Optimizer

__all__ = ["DistributedOptimizer", "Fleet", "Mode"]


class Fleet(abc.ABC):
    """The processes that train together, as one of them sees them.

    Args:
        mode: one of :class:`Mode`.

    Attributes:
        main_program: the program that this process runs; set by ``minimize``.
        startup_program: the program to run once before it.

    Example:
        >>> from dpexec.incubate.fleet.base.role_maker import UserDefinedCollectiveRoleMaker
        >>> from dpexec.incubate.fleet.collective import Collective
        >>> fleet = Collective()
        >>> fleet.init(UserDefinedCollectiveRoleMaker(1, ["10.0.0.1:6170", "10.0.0.2:6170"]))
        >>> fleet.split_files(["a", "b", "c"])  # every trainer gets its share
        ['c']
    """

    main_program: Any
    startup_program: Program | None

    def __init__(self, mode: int) -> None:
        self._mode = mode
        self._is_initialized = False
        self._role: RoleMakerBase | None = None
        self._executor = Executor(CPUPlace())

    def init(self, role_maker: RoleMakerBase | None = None) -> None:
        """Determine the role of this process.

        Args:
            role_maker: object that provides the role.

        Raises:
            TypeError: ``role_maker`` is none.
        """
        if not isinstance(role_maker, RoleMakerBase):
            raise TypeError(
                "role_maker must be an instance of RoleMakerBase, such as "
                f"PaddleCloudRoleMaker(), but received {role_maker!r}"
            )
        self._executor = Executor(CPUPlace())
        self._role = role_maker
        role_maker.generate_role()
        self._is_initialized = True

    @property
    def _role_maker(self) -> RoleMakerBase:
        if self._role is None:
            raise ValueError("call fleet.init(role_maker) before anything else of fleet")
        return self._role

    # ---- who is who

    def is_first_worker(self) -> bool:
        """Whether this process is trainer 0."""
        return self._role_maker.is_first_worker()

    def worker_index(self) -> int:
        """The number of this trainer."""
        return self._role_maker.worker_index()

    def worker_num(self) -> int:
        """The number of trainers."""
        return self._role_maker.worker_num()

    def is_worker(self) -> bool:
        """Whether this process is a trainer."""
        return self._role_maker.is_worker()

    def worker_endpoints(self, to_string: bool = False) -> list[str] | str:
        """The endpoints of the trainers.

        Args:
            to_string: return a string with commas instead of a list.
        """
        return _joined(self._role_maker.get_trainer_endpoints(), to_string)

    def server_num(self) -> int:
        """The number of servers."""
        return len(self._role_maker.get_pserver_endpoints())

    def server_index(self) -> int:
        """Number of this server."""
        return self._role_maker.server_index()

    def server_endpoints(self, to_string: bool = False) -> list[str] | str:
        """The endpoints of the servers.

        Args:
            to_string: return a string with commas instead of a list.
        """
        return _joined(self._role_maker.get_pserver_endpoints(), to_string)

    def is_server(self) -> bool:
        """Whether this process is a parameter server."""
        return self._role_maker.is_server()

    def split_files(self, files: Sequence[str]) -> list[str]:
        """The files that this trainer reads: the trainers' parts differ by one at most.

        Args:
            files: the files of all trainers.

        Raises:
            TypeError: ``files`` is no list.

        Example: of ``[a, b, c, d, e]`` trainer 0 of 2 reads ``[a, b, c]``, trainer 1 ``[d, e]``.
        """
        if not isinstance(files, list):
            raise TypeError(f"files should be a list of files to be read, not {files!r}")
        number, count = self.worker_index(), self.worker_num()
        each, more = divmod(len(files), count)
        begin = number * each + min(number, more)
        return files[begin : begin + each + (number < more)]

    def all_reduce_worker(self, input: Any, output: Any) -> None:
        """Not supported, see :meth:`RoleMakerBase.all_reduce_worker`."""
        self._role_maker.all_reduce_worker(input, output)

    def barrier_worker(self) -> None:
        """Not supported, see :meth:`RoleMakerBase.barrier_worker`."""
        self._role_maker.barrier_worker()

    # ---- what each kind of fleet does in its own way

    @abc.abstractmethod
    def init_worker(self) -> None:
        """Connect a trainer to the servers."""

    @abc.abstractmethod
    def init_server(self, model_dir: str | None = None) -> None:
        """Initialise a server's parameters."""

    @abc.abstractmethod
    def run_server(self) -> None:
        """Serve until all trainers are done."""

    @abc.abstractmethod
    def stop_worker(self) -> None:
        """Tell the servers that this trainer is done."""

    @abc.abstractmethod
    def distributed_optimizer(self, optimizer: Any, strategy: Any = None) -> DistributedOptimizer:
        """An optimizer whose ``minimize`` divides the program, too."""

    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: Sequence[str],
        target_vars: Sequence[Variable],
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Save the program for prediction, with this process's parameters.

        Args:
            executor: ignored; accepted for compatibility.
            dirname: directory to write to.
            feeded_var_names: names of the variables to feed.
            target_vars: variables to fetch.
            main_program: None takes the one that was minimized, as it was before it was divided.
            export_for_deployment: see :func:`dpexec.io.save_inference_model`.

        Raises:
            AssertionError: executor or program are of another type, where there are no servers.
            TypeError: the same, where there are some.
        """
        with self._predicting(executor, main_program) as program:
            save_inference_model(
                dirname,
                feeded_var_names,
                target_vars,
                executor,
                program,
                export_for_deployment=export_for_deployment,
            )

    @abc.abstractmethod
    def _predicting(self, executor: Any, given: Any) -> AbstractContextManager[Program]:
        """The program that is saved, with the values of its variables for as long as it takes."""

    @abc.abstractmethod
    def save_persistables(
        self, executor: Executor, dirname: str, main_program: Program | None = None
    ) -> None:
        """Save all persistable variables of this process."""


def _joined(endpoints: list[str], to_string: bool) -> list[str] | str:
    return ",".join(endpoints) if to_string else endpoints


class DistributedOptimizer(abc.ABC):
    """An optimizer whose ``minimize`` divides the program between processes, too.

    Args:
        optimizer: updates the parameters.
        strategy: options for dividing the program.

    Raises:
        TypeError: ``optimizer`` is none.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.incubate.fleet.base.fleet_base import DistributedOptimizer
        >>> class Plain(DistributedOptimizer):
        ...     "Divides nothing."
        ...     def minimize(self, loss, **options):
        ...         return self._optimizer.minimize(loss, **options)
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        ...     _, pairs = Plain(fluid.optimizer.SGD(0.1)).minimize(loss)
        >>> [parameter.name for parameter, gradient in pairs]
        ['fc_0.w_0', 'fc_0.b_0']
    """

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        if not isinstance(optimizer, (Optimizer, OptimizerWithMixedPrecision)):
            raise TypeError(f"optimizer must be an instance of Optimizer, not {optimizer!r}")
        self._optimizer: Any = optimizer
        self._strategy = strategy

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Any] | None = None,
        no_grad_set: Iterable[Any] | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Append the backward pass; see :meth:`Optimizer.backward`."""
        return self._optimizer.backward(
            loss, startup_program, parameter_list, no_grad_set, callbacks
        )

    def apply_gradients(self, params_grads: Any) -> Any:
        """Append the updates; see :meth:`Optimizer.apply_gradients`."""
        return self._optimizer.apply_gradients(params_grads)

    @abc.abstractmethod
    def minimize(self, *args: Any, **options: Any) -> Any:
        """Append backward pass and updates, and divide the program."""
