"""What a program of a trainer exchanges with parameter servers, read from its operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dpexec.core.scope import Scope
from dpexec.core.tensors import SelectedRows
from dpexec.errors import EnforceNotMet
from dpexec.ir import roles
from dpexec.ir.operator import Operator, op_error
from dpexec.ir.program import Program
from dpexec.runtime.engine import Engine
from dpexec.runtime.feed import Feeds
from dpexec.runtime.fetch import merge
from dpexec.runtime.gang.wire import GangError
from dpexec.runtime.pservers.client import Servers
from dpexec.runtime.pservers.geo import LocalUpdates
from dpexec.runtime.pservers.messages import Values
from dpexec.runtime.pservers.store import store
from dpexec.runtime.pservers.update import listener
from dpexec.runtime.strategy import BuildStrategy

__all__ = ["Part", "Remote", "check_mode", "remote_of"]


@dataclass(frozen=True)
class Part:
    """Rows of a variable that are on one server.

    Args:
        name: what the server calls them.
        endpoint: the server.
        begin: first row.
        rows: number of rows; None: all of them.
    """

    name: str
    endpoint: str
    begin: int = 0
    rows: int | None = None

    def of(self, value: Any) -> Any:
        """These rows of an array, or of a sparse gradient."""
        if self.rows is None:
            return value
        end = self.begin + self.rows
        if not isinstance(value, SelectedRows):
            return value[self.begin : end]
        inside = (value.row_array >= self.begin) & (value.row_array < end)
        return SelectedRows(value.row_array[inside] - self.begin, self.rows, value.value[inside])


@dataclass
class Remote:
    """What happens at the end of a step.

    Args:
        local: the program without it.
        serves: whether it is a server's program: then it does nothing else.
        synchronous: whether servers wait for the gradients of all trainers.
        trainer: number of the trainer.
        endpoints: the servers.
        sent: the parts of every gradient; with ``own_updates``, of every parameter.
        received: the parts of every parameter.
        own_updates: of a trainer that updates parameters itself (GEO-SGD); None: of any other.
        tables: what travels as rows with ``own_updates``.
    """

    local: Program
    serves: bool = False
    synchronous: bool = False
    trainer: int = 0
    endpoints: dict[str, None] = field(default_factory=dict)
    sent: dict[str, list[Part]] = field(default_factory=dict)
    received: dict[str, list[Part]] = field(default_factory=dict)
    own_updates: LocalUpdates | None = None
    tables: set[str] = field(default_factory=set)

    @property
    def servers(self) -> Servers:
        """The servers: the same ones for all programs of a trainer, until it is done."""
        return Servers.of(list(self.endpoints), self.trainer)

    def run(
        self, engine: Engine, batches: Sequence[Feeds], fetch: Sequence[str], merged: bool
    ) -> list[Any]:
        """Run a step, send its gradients, and store the parameters that come back.

        Args:
            engine: of the local program.
            batches: what it is fed.
            fetch: names of variables to return.
            merged: concatenate the devices' values along axis 0.

        Returns:
            What was fetched; parameters as they are after the exchange.

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
        gradients = self.sent if own is None else ()
        names = list(dict.fromkeys([*fetch, *gradients]))
        values = dict(zip(names, engine.run(batches, names, merged=False), strict=True))
        if own is None or own.count(scope):
            new = self._exchange(scope, values, engine.graph.owners)
            for name in new.keys() & values.keys():
                values[name] = [new[name].copy() for _ in values[name]]
        return [merge(values[name]) if merged else values[name] for name in fetch]

    def _exchange(
        self, scope: Scope, values: Mapping[str, Any], owners: Mapping[str, int]
    ) -> dict[str, Any]:
        """Tell the servers what they wait for; returns what parameters are then."""
        own = self.own_updates
        sent: dict[str, dict[str, Any]] = {endpoint: {} for endpoint in self.endpoints}
        for name, parts in self.sent.items():
            if own is None:
                value = _gradient(values[name], owners.get(name, 0))
            else:
                value = own.told(scope, name, name in self.tables)
            for part in parts:
                sent[part.endpoint][part.name] = part.of(value)
        answers = self.servers.exchange("push" if self.sent else "pull", sent)
        self._check_complete(answers)
        new = {}
        for name, parts in self.received.items():
            pieces = [answers[part.endpoint][part.name] for part in parts]
            new[name] = (store if own is None else own.take)(scope, name, pieces)
        return new

    def _check_complete(self, answers: Mapping[str, Values]) -> None:
        for part in (part for parts in self.received.values() for part in parts):
            if part.name not in answers[part.endpoint]:
                problem = (
                    f"parameter server {part.endpoint} has no {part.name}: all processes must "
                    "build the same program and transpile it alike"
                )
                self.servers.leave(problem)
                raise GangError(problem)


def _gradient(values: Sequence[Any], owner: int) -> Any:
    """The gradient of all devices: rows of a sparse one travel once."""
    value = values[owner] if len(values) > 1 else values[0]
    return value.merged() if isinstance(value, SelectedRows) else value


_known: WeakKeyDictionary[Program, tuple[int, Remote | None]] = WeakKeyDictionary()


def remote_of(program: Program) -> Remote | None:
    """What a program exchanges with others; None: nothing.

    Raises:
        EnforceNotMet: an operator sends or receives what cannot be.
    """
    version, found = _known.get(program, (-1, None))
    if version != program._version:
        found = _read(program)
        _known[program] = (program._version, found)
    return found


def _read(program: Program) -> Remote | None:
    if listener(program) is not None:
        return Remote(Program(), serves=True)
    if not any(op.role & roles.RPC for op in program.global_block().ops):
        return None
    remote = Remote(program.clone())
    kept: list[Operator] = []
    cut: dict[str, tuple[str, int, int]] = {}
    blocks: dict[str, Part] = {}
    for op in remote.local.global_block().ops:
        if op.type in ("split_byref", "split_selected_rows"):
            cut.update(_cut(op))
        elif op.type == "send":
            _add_sent(remote, op, cut)
        elif op.type == "recv":
            blocks.update(_received(remote, op))
        elif op.type in ("send_barrier", "fetch_barrier"):
            remote.synchronous |= op.type == "send_barrier" and not op.attr("half_async")
            remote.endpoints.update(dict.fromkeys(op.attr("endpoints")))
        elif op.type == "concat" and blocks.keys() >= set(op.input("X")):
            remote.received[op.output("Out")[0]] = [blocks.pop(name) for name in op.input("X")]
        else:
            kept.append(op)
    remote.received.update({name: [part] for name, part in blocks.items()})
    for parts in (*remote.sent.values(), *remote.received.values()):
        remote.endpoints.update(dict.fromkeys(part.endpoint for part in parts))
    remote.local.global_block().ops = kept
    return remote


def check_mode(remote: Remote | None, strategy: BuildStrategy) -> None:
    """Refuse a strategy that says something else than the program.

    Raises:
        EnforceNotMet: it is asynchronous, and the program is not.
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
        remote.sent.setdefault(source, []).append(Part(name, server, begin, rows))


def _add_own_updates(remote: Remote, op: Operator) -> None:
    """Note that the trainer updates a parameter itself."""
    if remote.own_updates is None:
        remote.own_updates = LocalUpdates(op.attr("geo_need_push_nums"), op.attr("trainers"))
    if op.attr("is_sparse"):
        remote.tables.update(op.input("X"))


def _received(remote: Remote, op: Operator) -> dict[str, Part]:
    remote.trainer = op.attr("trainer_id")
    names, servers = op.attr("recv_varnames") or op.output("Out"), op.attr("epmap")
    if len(names) != len(servers):
        raise op_error(op, f"it receives {len(names)} variables from {len(servers)} servers", {})
    parts = [Part(name, server) for name, server in zip(names, servers, strict=True)]
    if op.attr("recv_varnames"):
        remote.received[op.output("Out")[0]] = parts
        return {}
    return {part.name: part for part in parts}
