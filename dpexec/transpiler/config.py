"""``DistributeTranspilerConfig``: how programs are divided between processes."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.errors import EnforceNotMet

__all__ = ["DistributeTranspilerConfig", "DistributedMode"]


class DistributedMode:
    """What servers wait for; the names of fluid."""

    SYNC = 0
    ASYNC = 1
    HALF_ASYNC = 2
    GEO = 3


class DistributeTranspilerConfig:
    """Options of :class:`DistributeTranspiler`; fields have fluid's names and defaults.

    Attributes:
        slice_var_up: cut parameters, so that every server has a part of the large ones.
        split_method: what chooses servers: ``RoundRobin`` (None) or ``HashName``.
        min_block_size: no part has fewer elements, in a parameter that is cut.
        mode: ``"pserver"``, or ``"nccl2"`` for trainers that exchange gradients themselves.
        sync_mode: servers wait for the gradients of all trainers.
        runtime_split_send_recv: the program names blocks in ``send`` and ``recv`` alone; needs
            ``sync_mode = False``.
        max_staleness: dpexec's own; with ``sync_mode = False``, how many steps a trainer may be
            ahead of the slowest one.
        print_log: accepted for fluid's sake.
        wait_port: accepted: the first run waits for the servers.
        nccl_comm_num: accepted for fluid's sake.
        use_hierarchical_allreduce: accepted for fluid's sake.
        hierarchical_allreduce_inter_nranks: accepted for fluid's sake.
        collective_mode: of mode ``"collective"``.
        enable_dc_asgd: with ``sync_mode = False``, servers correct gradients for what the
            parameters have changed since the trainer received them (DC-ASGD, Zheng et al. 2017).
        half_async: with ``sync_mode = False``, a trainer goes on when it has received what its
            gradients made of the parameters; here trainers always do.
        completely_not_async: with ``runtime_split_send_recv``, servers wait for all trainers
            nevertheless.
        geo_sgd_mode: trainers update their parameters themselves, and exchange with the servers
            what has changed.
        geo_sgd_need_push_nums: after how many steps they do, with ``geo_sgd_mode``.
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
        """Whether ``send`` and ``recv`` alone say which blocks there are.

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
        """Whether an update takes the gradients of all trainers."""
        return not self.geo_sgd_mode and (self.sync_mode or self.completely_not_async)

    @property
    def distributed_mode(self) -> int:
        """One of :class:`DistributedMode`, as servers are told."""
        if self.geo_sgd_mode:
            return DistributedMode.GEO
        if self.waits_for_all:
            return DistributedMode.SYNC
        split = self.runtime_split_send_recv
        return DistributedMode.ASYNC if split else DistributedMode.HALF_ASYNC

    def check(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            EnforceNotMet: fields do not fit together.
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
