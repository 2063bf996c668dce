"""``DistributeTranspilerConfig``: how programs are divided between processes."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.errors import EnforceNotMet

__all__ = ["DistributeTranspilerConfig", "DistributedMode"]


class DistributedMode:
    """Fluid's names for the gradients that servers wait for before an update.

    Example:
        >>> from dpexec.transpiler.distribute_transpiler import DistributedMode
        >>> DistributedMode.SYNC, DistributedMode.GEO
        (0, 3)
    """

    SYNC = 0
    ASYNC = 1
    HALF_ASYNC = 2
    GEO = 3


class DistributeTranspilerConfig:
    """Options of :class:`DistributeTranspiler`; fields have fluid's names and defaults.

    Attributes:
        slice_var_up: divide large parameters into blocks, distributed over the servers.
        split_method: assigns blocks to servers: ``RoundRobin`` (None) or ``HashName``.
        min_block_size: least number of elements per block of a divided parameter.
        mode: ``"pserver"``, or ``"nccl2"`` for trainers without servers.
        sync_mode: servers wait for the gradients of all trainers.
        runtime_split_send_recv: blocks appear only in ``send`` and ``recv`` of the program; needs
            ``sync_mode = False``.
        max_staleness: specific to dpexec; with ``sync_mode = False``, the number of steps that a
            trainer may be ahead of the slowest one.
        print_log: ignored; accepted for compatibility.
        wait_port: ignored; the first run waits for the servers.
        nccl_comm_num: ignored; accepted for compatibility.
        use_hierarchical_allreduce: ignored; accepted for compatibility.
        hierarchical_allreduce_inter_nranks: ignored; accepted for compatibility.
        collective_mode: the algorithm of mode ``"collective"``.
        enable_dc_asgd: with ``sync_mode = False``, servers compensate gradients for the parameters'
            changes since the trainer received them (DC-ASGD, Zheng et al. 2017).
        half_async: with ``sync_mode = False``, a trainer continues only after receiving the
            parameters updated with its gradients; here trainers always do so.
        completely_not_async: with ``runtime_split_send_recv``, servers wait for all trainers all
            the same.
        geo_sgd_mode: trainers update their own parameters, and exchange the changes with the
            servers.
        geo_sgd_need_push_nums: number of steps between exchanges, with ``geo_sgd_mode``.

    Example:
        >>> import dpexec as fluid
        >>> config = fluid.DistributeTranspilerConfig()
        >>> config.slice_var_up, config.min_block_size
        (True, 8192)
    """

    def __init__(self) -> None:
        self.slice_var_up = True
        self.split_method: Any = None
        self.min_block_size = 8192
        self.mode = "pserver"
        self.max_staleness = 8
        self.print_log = False
        self.wait_port = True
        self.nccl_comm_num = 1
        self.use_hierarchical_allreduce = False
        self.hierarchical_allreduce_inter_nranks = 0
        self.collective_mode: str | None = None
        self.enable_dc_asgd = False
        self.half_async = False
        self.completely_not_async = False
        self.geo_sgd_mode = False
        self.geo_sgd_need_push_nums = 100
        self._sync_mode = True
        self._runtime_split_send_recv = False

    @property
    def sync_mode(self) -> bool:
        """Whether servers wait for the gradients of all trainers.

        Raises:
            ValueError: set to None, or to True along with ``runtime_split_send_recv``.
        """
        return self._sync_mode

    @sync_mode.setter
    def sync_mode(self, value: bool) -> None:
        if value is None:
            raise ValueError("sync_mode can't be None")
        if value and self._runtime_split_send_recv:
            raise ValueError("sync_mode is for runtime_split_send_recv = False; set that first")
        self._sync_mode = bool(value)

    @property
    def runtime_split_send_recv(self) -> bool:
        """Whether blocks appear only in ``send`` and ``recv``.

        Raises:
            ValueError: set to None, or to True along with ``sync_mode``.
        """
        return self._runtime_split_send_recv

    @runtime_split_send_recv.setter
    def runtime_split_send_recv(self, value: bool) -> None:
        if value is None:
            raise ValueError("runtime_split_send_recv can't be None")
        if value and self._sync_mode:
            raise ValueError("runtime_split_send_recv is for sync_mode = False; set that first")
        self._runtime_split_send_recv = bool(value)

    @property
    def waits_for_all(self) -> bool:
        """Whether an update uses the gradients of all trainers."""
        return not self.geo_sgd_mode and (self.sync_mode or self.completely_not_async)

    @property
    def distributed_mode(self) -> int:
        """The value of :class:`DistributedMode` that servers get."""
        if self.geo_sgd_mode:
            return DistributedMode.GEO
        if self.waits_for_all:
            return DistributedMode.SYNC
        split = self.runtime_split_send_recv
        return DistributedMode.ASYNC if split else DistributedMode.HALF_ASYNC

    def check(self) -> None:
        """Check that the fields are consistent.

        Raises:
            EnforceNotMet: fields contradict each other.
        """
        if self.completely_not_async and not self.runtime_split_send_recv:
            raise EnforceNotMet(
                "DistributeTranspilerConfig.completely_not_async is for runtime_split_send_recv = "
                "True; sync_mode = True says the same without it"
            )
        if self.enable_dc_asgd and (self.waits_for_all or self.geo_sgd_mode):
            raise EnforceNotMet(
                "DistributeTranspilerConfig.enable_dc_asgd is for servers that wait for nobody: "
                "set sync_mode = False, and neither completely_not_async nor geo_sgd_mode"
            )
        if self.geo_sgd_mode and self.geo_sgd_need_push_nums < 1:
            raise EnforceNotMet(
                "DistributeTranspilerConfig.geo_sgd_need_push_nums is a number of steps, not "
                f"{self.geo_sgd_need_push_nums}"
            )
