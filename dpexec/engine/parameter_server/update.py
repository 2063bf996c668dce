"""The program that updates a server's parameters, and the feeding of gradients into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.core.places import Place
from dpexec.engine.core.scope import Scope
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.dispatch.engine import Engine
from dpexec.engine.exchange.messages import Values
from dpexec.engine.exchange.wire import GangError
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program

__all__ = ["Update"]


class Update:
    """Updates the parameters of a server.

    Args:
        program: the server's program.
        scope: the scope with parameters and optimizer state.
        place: the device that computes the updates.

    Attributes:
        gradients: names of the gradients that an update takes.
        params: names of the parameters that trainers hold.
        corrects: whether gradients are corrected for delay (DC-ASGD).
    """

    def __init__(self, program: Program, scope: Scope, place: Place) -> None:
        listen = listener(program)
        assert listen is not None
        self._scope = scope
        self._block = program.global_block()
        self.gradients: list[str] = listen.input("X")
        self._table = dict(pair.split(":") for pair in listen.attr("sparse_grad_to_param"))
        local = _flat(program, self._table)
        ops = local.global_block().ops
        self._updating = dict(pair for op in ops if (pair := self._updated(op)) is not None)
        self._fetched = frozenset(listen.attr("distributed_tables"))
        self.params = [name for name in self._updating if name not in self._fetched]
        self.corrects = bool(listen.attr("dc_asgd"))
        self._param_of = self._params_by_gradient(listen)
        self._engine = Engine(local, [place], scope, label=program)

    def _updated(self, op: Operator) -> tuple[str, tuple[Operator, str]] | None:
        """The parameter that an operator updates, with the operator and the gradient it reads."""
        if "LearningRate" in op.inputs:
            return op.input("Param")[0], (op, op.input("Grad")[0])
        out = op.output_arg_names[0]
        if op.type == "sum" and self._block.has_var(out) and self._block.var(out).persistable:
            return out, (op, op.input("X")[1])
        return None

    def _params_by_gradient(self, listen: Operator) -> dict[str, str]:
        """Maps each gradient that trainers send to the parameter that its block updates."""
        blocks = {block.idx: block for block in listen.attr("optimize_blocks")}
        found = {}
        for pair in listen.attr("grad_to_block_id"):
            grad, _, number = pair.rpartition(":")
            updated = filter(None, map(self._updated, blocks[int(number)].ops))
            found[grad] = next(param for param, _ in updated)
        return found

    @property
    def tables(self) -> set[str]:
        """Parameters of which an update changes only the rows in their sparse gradients."""
        held = set(self._table.values()) - self._fetched
        return {name for name in held if self._by_rows(name)}

    def _by_rows(self, param: str) -> bool:
        op, grad = self._updating[param]
        lazy = op.definition.updates == "rows" and op.attrs.get("lazy_mode", True)
        # weight decay makes a dense gradient
        return bool(lazy) and self._block.var(grad).type == VarType.SELECTED_ROWS

    def run(self, gradients: Values, seen: Values) -> dict[str, np.ndarray[Any, Any]]:
        """Make an update.

        Args:
            gradients: gradients by name; a missing one counts as zeros.
            seen: the parameter values that the gradients were computed with, to correct for delay.

        Returns:
            For each parameter in :attr:`tables`, the numbers of the changed rows.

        Raises:
            GangError: a gradient has the wrong kind or shape; nothing has changed.
        """
        feed: dict[str, Any] = {}
        rows: dict[str, list[np.ndarray[Any, Any]]] = {name: [] for name in self.tables}
        for name in self.gradients:
            value = gradients.get(name)
            if value is None:
                value = self._nothing(name)
            self._check(name, value)
            if isinstance(value, SelectedRows):
                feed[_ids(name)] = value.row_array.reshape(-1, 1)
                feed[_rows(name)] = value.value
                rows.setdefault(self._table[name], []).append(value.row_array)
            else:
                feed[name] = self._correct(name, value, seen)
        self._engine.run([Feeds([feed], [1])], [])  # not split: a sparse gradient may have no rows
        return {name: np.unique(np.concatenate(rows[name])) for name in self.tables}

    def _correct(self, name: str, gradient: Any, seen: Values) -> Any:
        """A gradient corrected for later parameter changes (Zheng et al. 2017, lambda = 1)."""
        if not self.corrects:
            return gradient
        param = self._param_of[name]
        return gradient + (self.value(param) - seen[param]) * gradient * gradient

    def _nothing(self, name: str) -> Any:
        var = self._block.var(name)
        dtype = to_numpy(var.dtype)
        if name not in self._table:
            return np.zeros(var.shape, dtype)
        return SelectedRows((), var.shape[0], np.zeros((0, *var.shape[1:]), dtype))

    def _check(self, name: str, value: Any) -> None:
        var = self._block.var(name)
        sparse = isinstance(value, SelectedRows)
        fits = sparse == (name in self._table) and value.dtype == to_numpy(var.dtype)
        if sparse and fits and value.numel():
            fits = value.row_array.min() >= 0 and value.row_array.max() < var.shape[0]
        if not fits or tuple(value.shape) != var.shape:
            raise GangError(
                f"gradient {name} came as {type(value).__name__} {tuple(value.shape)} of "
                f"{value.dtype}, but it is {var.shape} of {to_numpy(var.dtype)}"
            )

    def value(self, param: str) -> np.ndarray[Any, Any]:
        """The current value of a parameter, without a copy.

        Raises:
            GangError: the startup program has not run.
        """
        var = self._scope.find_var(param)
        if var is None or not var.get_tensor()._is_initialized():
            raise GangError(f"parameter {param} has no value: run the server's startup program")
        return var.get_tensor().numpy()

    def rows(self, table: str, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Some rows of a distributed table.

        Args:
            table: name of the table, or of its block on this server.
            numbers: numbers of the rows.

        Raises:
            GangError: the table or a row does not exist.
        """
        if table not in self._fetched:
            raise GangError(f"there is no table {table} to fetch rows from")
        value = self.value(table)
        known = numbers.dtype == np.int64 and numbers.ndim == 1
        if not known or (numbers.size and not 0 <= numbers.min() <= numbers.max() < len(value)):
            raise GangError(f"table {table} has {len(value)} rows, but others were asked for")
        return value[numbers]


def listener(program: Program) -> Operator | None:
    """The ``listen_and_serv`` operator of a server's program; None for other programs."""
    ops = program.global_block().ops
    return next((op for op in ops if op.type == "listen_and_serv"), None)


def _ids(gradient: str) -> str:
    return f"{gradient}@IDS"


def _rows(gradient: str) -> str:
    return f"{gradient}@ROWS"


def _flat(program: Program, table: Mapping[str, str]) -> Program:
    """Join all blocks of a server's program into one, so that they run as one step."""
    made = program.clone()
    block = made.global_block()
    listen = listener(made)
    assert listen is not None
    parts = listen.attr("optimize_blocks")
    block.ops = []
    for name, param in table.items():
        _add_sparse_gradient(made, name, param)
    for part in parts:
        for op in part.ops:
            op.block = block
            block.ops.append(op)
        for name, var in part.vars.items():
            var.block = block
            block.vars.setdefault(name, var)
        for inner in made.blocks:
            if inner.parent_idx == part.idx:
                inner.parent_idx = 0
    made.current_block_idx = 0
    made._drop_unused_blocks()
    return made


def _add_sparse_gradient(program: Program, name: str, param: str) -> None:
    """Add an operator that makes a sparse gradient from fed row numbers and rows."""
    block = program.global_block()
    table = block.var(param)
    ids = block.create_var(name=_ids(name), shape=[-1, 1], dtype="int64", is_data=True)
    rows = block.create_var(
        name=_rows(name), shape=[-1, *table.shape[1:]], dtype=table.dtype, is_data=True
    )
    block.append_op(
        "lookup_table_grad",
        {"W": table, "Ids": ids, "Out@GRAD": rows},
        {"W@GRAD": name},
        {"is_sparse": True},
    )
