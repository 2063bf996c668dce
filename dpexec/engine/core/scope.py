"""Scopes: where values live under the names of variables."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.lod import LoDRankTable
from dpexec.engine.core.rings import Ring
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.tensors import LoDTensor, LoDTensorArray, moved

__all__ = ["Scope", "ScopeVariable", "global_scope", "scope_guard"]


class ScopeVariable:
    """A named slot of a scope; what it holds is decided by the first getter that is called.

    Args:
        name: of the variable.

    Attributes:
        value: what it holds; None: nothing yet.
        packed: copies of the value in the layouts that machine code wants, which all predictors of
            a model share; :class:`~dpexec.engine.kernels.values.Packed` makes them.
    """

    __slots__ = ("name", "packed", "value")

    def __init__(self, name: str) -> None:
        self.name = name
        self.value: Any = None
        self.packed: dict[Any, Any] = {}

    def _get(self, kind: type[Any]) -> Any:
        if self.value is None:
            self.value = kind()
        if not isinstance(self.value, kind):
            raise EnforceNotMet(
                f"variable {self.name} holds a {type(self.value).__name__}, not a {kind.__name__}"
            )
        return self.value

    def get_tensor(self) -> LoDTensor:
        """The dense tensor of this variable, made empty if the variable is new."""
        tensor: LoDTensor = self._get(LoDTensor)
        tensor.in_scope = True
        return tensor

    def get_selected_rows(self) -> SelectedRows:
        """The rows of this variable, made empty if the variable is new."""
        rows: SelectedRows = self._get(SelectedRows)
        rows.in_scope = True
        return rows

    def get_lod_tensor_array(self) -> LoDTensorArray:
        """The tensor array of this variable, made empty if the variable is new."""
        array: LoDTensorArray = self._get(LoDTensorArray)
        return array

    get_fetch_list = get_lod_tensor_array

    def get_lod_rank_table(self) -> LoDRankTable:
        """The rank table of this variable, made empty if the variable is new."""
        table: LoDRankTable = self._get(LoDRankTable)
        return table

    def is_int(self) -> bool:
        """Whether an int was stored with :meth:`set_int`."""
        return isinstance(self.value, int)

    def is_float(self) -> bool:
        """Whether a float was stored with :meth:`set_float`."""
        return isinstance(self.value, float)

    def set_int(self, value: int) -> None:
        """Store a bare int."""
        self.value = int(value)
        moved()

    def set_float(self, value: float) -> None:
        """Store a bare float."""
        self.value = float(value)
        moved()

    def get_int(self) -> int:
        """The bare int stored before."""
        number: int = self._get(int)
        return number

    def get_float(self) -> float:
        """The bare float stored before."""
        number: float = self._get(float)
        return number


class RunCount:
    """How many runs of a program were completed in a scope: :attr:`number`."""

    def __init__(self) -> None:
        self.number = 0


class Scope:
    """Maps names to :class:`ScopeVariable`; a name not found here is looked up in the parent.

    Args:
        parent: where names that are not here are looked up; None for none.

    See Also:
        :func:`~dpexec.global_scope`: the scope of runs.
        :func:`~dpexec.scope_guard`: another one instead.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> scope = fluid.Scope()
        >>> with fluid.program_guard(fluid.Program()):
        ...     _ = fluid.layers.create_global_var([1], 5.0, "float32", persistable=True, name="n")
        ...     startup = fluid.default_startup_program()
        ...     _ = fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
        >>> np.array(scope.find_var("n").get_tensor())
        array([5.], dtype=float32)
    """

    def __init__(self, parent: Scope | None = None) -> None:
        self._vars: dict[str, ScopeVariable] = {}
        self._parent = parent
        self._children: list[Scope] = []
        self._rings: dict[int, Ring] = {}
        self._runs: weakref.WeakKeyDictionary[Any, RunCount] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        inside = "" if self._parent is None else " inside another scope"
        return f"<Scope: {len(self._vars)} variables{inside}>"

    def var(self, name: str) -> ScopeVariable:
        """The variable of this scope with this name, made if it is not there.

        Raises:
            TypeError: the name is no string.
        """
        if name not in self._vars:
            _require_name(name)
            self._vars[name] = ScopeVariable(name)
        return self._vars[name]

    def find_var(self, name: str) -> ScopeVariable | None:
        """The variable with this name here or in a parent; None if there is none.

        Raises:
            TypeError: the name is no string.
        """
        scope: Scope | None = self
        while scope is not None:
            if name in scope._vars:
                return scope._vars[name]
            scope = scope._parent
        _require_name(name)
        return None

    def erase(self, names: list[str]) -> None:
        """Forget variables of this scope."""
        for name in names:
            var = self._vars.pop(name, None)
            if var is not None and isinstance(var.value, (LoDTensor, SelectedRows)):
                var.value.touch()  # runtimes that hold copies look again
                moved()

    def local_var_names(self) -> list[str]:
        """Names of the variables of this scope itself."""
        return list(self._vars)

    def new_scope(self) -> Scope:
        """A child of this scope."""
        kid = Scope(self)
        self._children.append(kid)
        return kid

    def drop_kids(self) -> None:
        """Forget all children."""
        self._children.clear()

    def _kids(self) -> list[Scope]:
        return list(self._children)

    def _remove_from_pool(self) -> None:
        """Let go of all values; the scope is not to be used afterwards."""
        self.erase(self.local_var_names())
        self.drop_kids()

    def set_ring(self, number: int, ring: Ring) -> None:
        """Let operators that run in this scope find a ring of trainers."""
        self._rings[number] = ring

    def rings(self) -> dict[int, Ring]:
        """The rings of trainers of this scope and its parents, by number."""
        around = {} if self._parent is None else self._parent.rings()
        return {**around, **self._rings}

    def run_count(self, program: Any) -> int:
        """The number of completed training runs of ``program`` in this scope.

        Random operators with a seed draw from (seed, run): the count belongs to the state that
        the run advances, so two scopes that start equal stay equal.
        """
        return self.runs_of(program).number

    def runs_of(self, program: Any) -> RunCount:
        """The counter behind it, as an object: there is one for each program."""
        if program not in self._runs:
            self._runs[program] = RunCount()
        return self._runs[program]

    def set_run_count(self, program: Any, count: int) -> None:
        """Say how many runs of ``program`` were completed."""
        self.runs_of(program).number = count


_current = [Scope()]


def global_scope() -> Scope:
    """The scope that executors use unless told otherwise.

    Returns:
        The scope: that of the innermost :func:`scope_guard`, else one for the whole process.

    See Also:
        :class:`~dpexec.Scope`: values by name.
        :func:`~dpexec.scope_guard`: another one instead.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     fluid.global_scope().var("x").get_tensor().set(np.array([1.0]), fluid.CPUPlace())
        ...     np.array(fluid.global_scope().find_var("x").get_tensor())
        array([1.])
    """
    return _current[-1]


@contextlib.contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Use ``scope`` as the global scope inside the ``with`` block.

    Args:
        scope: used by runs, saving and loading inside the block.

    Yields:
        None.

    Raises:
        TypeError: ``scope`` is no scope.

    See Also:
        :func:`~dpexec.program_guard`: where layers go.
        :func:`~dpexec.name_scope`: names of operators in pictures.
        :func:`~dpexec.device_guard`: where operators run.
        :class:`~dpexec.Scope`: values by name.

    Example:
        >>> import dpexec as fluid
        >>> scope = fluid.Scope()
        >>> with fluid.scope_guard(scope):
        ...     fluid.global_scope() is scope
        True
    """
    if not isinstance(scope, Scope):
        raise TypeError(f"scope_guard takes a Scope, but received {type(scope).__name__}")
    _current.append(scope)
    try:
        yield
    finally:
        _current.pop()


def _require_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of a variable is a string, but received {name!r:.80}")
