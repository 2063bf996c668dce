"""The exchange of a trainer's program with parameter servers, read from its operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.scope import Scope
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.dispatch.engine import Engine
from dpexec.engine.exchange.messages import Values
from dpexec.engine.exchange.wire import GangError
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator, op_error
from dpexec.engine.ir.program import Program
from dpexec.engine.parameter_server.client import Servers
from dpexec.engine.parameter_server.geo import LocalUpdates
from dpexec.engine.parameter_server.row_blocks import RowBlock
from dpexec.engine.parameter_server.store import store
from dpexec.engine.parameter_server.tables import Table, fetch, tables_in, whole_tables
from dpexec.engine.parameter_server.update import listener
from dpexec.engine.run.fetch import merge
from dpexec.engine.strategy.strategies import BuildStrategy

__all__ = ["Remote", "check_mode", "remote_of"]


@dataclass
class Remote:
    """The exchange at the end of a trainer's step, or the service of a server's program.

    Args:
        local: the program without the operators of the exchange.
        serves: whether it is a server's program, which does nothing but serve.
        synchronous: whether servers wait for the gradients of all trainers.
        trainer: number of the trainer.
        endpoints: the servers.
        sent: the blocks of every gradient; with ``own_updates``, of every parameter.
        received: the blocks of every parameter.
        own_updates: state of a trainer that updates parameters itself (GEO-SGD); None otherwise.
        by_rows: parameters of which, with ``own_updates``, only changed rows are sent.
        tables: distributed tables, which the trainer does not hold.
        table_of: maps the gradients of such tables to the tables.
    """

    local: Program
    serves: bool = False
    synchronous: bool = False
    trainer: int = 0
    endpoints: dict[str, None] = field(default_factory=dict)
    sent: dict[str, list[RowBlock]] = field(default_factory=dict)
    received: dict[str, list[RowBlock]] = field(default_factory=dict)
    own_updates: LocalUpdates | None = None
    by_rows: set[str] = field(default_factory=set)
    tables: list[Table] = field(default_factory=list)
    table_of: dict[str, Table] = field(default_factory=dict)

    @property
    def servers(self) -> Servers:
        """The servers: the same ones for all programs of a trainer, until it is done."""
        return Servers.of(list(self.endpoints), self.trainer)

    def run(
        self, engine: Engine, batches: Sequence[Feeds], names: Sequence[str], merged: bool
    ) -> list[Any]:
        """Run a step, send its gradients, and store the parameters that the servers return.

        Rows of distributed tables are fetched from the servers before the step.

        Args:
            engine: the engine of the local program.
            batches: the fed batches.
            names: names of variables to return.
            merged: concatenate the devices' values along axis 0.

        Returns:
            The fetched values; parameters have their values after the exchange.

        Raises:
            EnforceNotMet: a run has several steps, or an operator cannot work.
            GangError: a server did not answer; no parameter has changed.
        """
        if len(batches) != 1:
            raise EnforceNotMet(
                "a program for parameter servers exchanges gradients after every step: leave "
                "ExecutionStrategy.num_iteration_per_run at 1"
            )
        scope, own = engine.replicas.scope, self.own_updates
        if own is not None:
            own.begin(scope, self.sent)
        looked_up: dict[str, Any] = {}
        if self.tables:
            feeds, looked_up = fetch(self.tables, batches[0], self.servers)
            batches = [feeds]
        wanted = list(dict.fromkeys([*names, *(self.sent if own is None else ())]))
        values = dict(zip(wanted, engine.run(batches, wanted, merged=False), strict=True))
        if own is None or own.count(scope):
            sent = self._sent(scope, values, engine.graph.owners, looked_up)
            new = self._exchange(scope, sent)
            for name in new.keys() & values.keys():
                values[name] = [new[name].copy() for _ in values[name]]
        return [merge(values[name]) if merged else values[name] for name in names]

    def table_values(self) -> dict[str, np.ndarray[Any, Any]]:
        """The complete distributed tables, by name.

        Raises:
            GangError: a server did not answer.
        """
        return whole_tables(self.tables, self.servers) if self.tables else {}

    def _sent(
        self,
        scope: Scope,
        values: Mapping[str, Any],
        owners: Mapping[str, int],
        looked_up: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The values to send to the servers, by name."""
        own = self.own_updates
        if own is not None:
            return {name: own.told(scope, name, name in self.by_rows) for name in self.sent}
        found = {name: _gradient(values[name], owners.get(name, 0)) for name in self.sent}
        for name, table in self.table_of.items():
            found[name] = table.whole(found[name], looked_up[table.var.name])
        return found

    def _exchange(self, scope: Scope, values: Mapping[str, Any]) -> dict[str, Any]:
        """Send values to the servers; returns the parameters' new values."""
        if not self.sent and not self.received:
            return {}
        own = self.own_updates
        sent: dict[str, dict[str, Any]] = {endpoint: {} for endpoint in self.endpoints}
        for name, blocks in self.sent.items():
            for block in blocks:
                sent[block.endpoint][block.name] = block.of(values[name])
        answers = self.servers.exchange("push" if self.sent else "pull", sent)
        self._check_complete(answers)
        new = {}
        for name, blocks in self.received.items():
            pieces = [answers[block.endpoint][block.name] for block in blocks]
            new[name] = (store if own is None else own.take)(scope, name, pieces)
        return new

    def _check_complete(self, answers: Mapping[str, Values]) -> None:
        for block in (block for blocks in self.received.values() for block in blocks):
            if block.name not in answers[block.endpoint]:
                problem = (
                    f"parameter server {block.endpoint} has no {block.name}: all processes must "
                    "build the same program and transpile it alike"
                )
                self.servers.leave(problem)
                raise GangError(problem)


def _gradient(values: Sequence[Any], owner: int) -> Any:
    """The gradient of all devices; duplicate rows of a sparse gradient are added up first."""
    value = values[owner] if len(values) > 1 else values[0]
    return value.merged() if isinstance(value, SelectedRows) else value


_known: WeakKeyDictionary[Program, tuple[int, Remote | None]] = WeakKeyDictionary()


def remote_of(program: Program) -> Remote | None:
    """The exchange of a program with parameter servers; None if it has none.

    Raises:
        EnforceNotMet: an operator sends or receives a variable in an unsupported way.
    """
    version, found = _known.get(program, (-1, None))
    if version != program._version:
        found = _read(program)
        _known[program] = (program._version, found)
    return found


def _read(program: Program) -> Remote | None:
    if listener(program) is not None:
        return Remote(Program(), serves=True)
    if not any(op.role & roles.RPC or op.attrs.get("epmap") for op in program.global_block().ops):
        return None
    remote = Remote(program.clone())
    remote.tables = tables_in(remote.local)
    kept: list[Operator] = []
    cut: dict[str, tuple[str, int, int]] = {}
    received: dict[str, RowBlock] = {}
    for op in remote.local.global_block().ops:
        if op.type in ("split_byref", "split_selected_rows"):
            cut.update(_cut(op))
        elif op.type == "send":
            _add_sent(remote, op, cut)
        elif op.type == "recv":
            received.update(_received(remote, op))
        elif op.type in ("send_barrier", "fetch_barrier"):
            remote.synchronous |= op.type == "send_barrier" and not op.attr("half_async")
            remote.endpoints.update(dict.fromkeys(op.attr("endpoints")))
        elif op.type == "concat" and received.keys() >= set(op.input("X")):
            remote.received[op.output("Out")[0]] = [received.pop(name) for name in op.input("X")]
        else:
            if op.attrs.get("epmap"):  # a lookup in a table that the trainer does not hold
                remote.trainer = op.attr("trainer_id")
            kept.append(op)
    remote.received.update({name: [block] for name, block in received.items()})
    tables = (table.blocks for table in remote.tables)
    for blocks in (*remote.sent.values(), *remote.received.values(), *tables):
        remote.endpoints.update(dict.fromkeys(block.endpoint for block in blocks))
    remote.local.global_block().ops = kept
    return remote


def check_mode(remote: Remote | None, strategy: BuildStrategy) -> None:
    """Reject a strategy that contradicts the program.

    Raises:
        EnforceNotMet: the strategy is asynchronous, but the program is not.
    """
    if strategy.async_mode and (remote is None or remote.synchronous):
        raise EnforceNotMet(
            "BuildStrategy.async_mode is for programs that DistributeTranspiler made with "
            "sync_mode=False, and this one is none; leave async_mode False"
        )


def _cut(op: Operator) -> dict[str, tuple[str, int, int]]:
    """Per block of a gradient: the gradient, the first row, the number of rows."""
    rows = op.attr("sections" if op.type == "split_byref" else "height_sections")
    return _rows(op.input("X")[0], op.output("Out"), rows)


def _rows(
    source: str, names: Sequence[str], rows: Sequence[int]
) -> dict[str, tuple[str, int, int]]:
    begins = np.cumsum([0, *rows[:-1]]).tolist()
    return {n: (source, at, count) for n, at, count in zip(names, begins, rows, strict=True)}


def _add_sent(remote: Remote, op: Operator, cut: Mapping[str, tuple[str, int, int]]) -> None:
    names, servers = op.input("X"), op.attr("epmap")
    if op.attr("send_varnames"):
        cut = _rows(names[0], op.attr("send_varnames"), op.attr("sections"))
        names = list(cut)
    if len(names) != len(servers):
        raise op_error(op, f"it sends {len(names)} variables to {len(servers)} servers", {})
    if "geo_need_push_nums" in op.attrs:
        _add_own_updates(remote, op)
    for name, server in zip(names, servers, strict=True):
        source, begin, rows = cut.get(name, (name, 0, None))
        remote.sent.setdefault(source, []).append(RowBlock(name, server, begin, rows))
        for table in remote.tables:
            if op.role_var[:1] == [table.var.name]:
                remote.table_of[source] = table


def _add_own_updates(remote: Remote, op: Operator) -> None:
    """Note that the trainer updates a parameter itself."""
    if remote.own_updates is None:
        remote.own_updates = LocalUpdates(op.attr("geo_need_push_nums"), op.attr("trainers"))
    if op.attr("is_sparse"):
        remote.by_rows.update(op.input("X"))


def _received(remote: Remote, op: Operator) -> dict[str, RowBlock]:
    remote.trainer = op.attr("trainer_id")
    names, servers = op.attr("recv_varnames") or op.output("Out"), op.attr("epmap")
    if len(names) != len(servers):
        raise op_error(op, f"it receives {len(names)} variables from {len(servers)} servers", {})
    blocks = [RowBlock(name, server) for name, server in zip(names, servers, strict=True)]
    if op.attr("recv_varnames"):
        remote.received[op.output("Out")[0]] = blocks
        return {}
    return {block.name: block for block in blocks}
