"""The state of training: everything that the next step depends on, saved and restored.

It consists of the persistable variables (parameters, accumulators, rates, step counters), with
separate values of replicas where these differ, and of each program's number of runs, which
determines the position of seeded random operators in their streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from dpexec.checkpoint.files import Stored
from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.core.errors import EnforceNotMet, see
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.scope import Scope, global_scope
from dpexec.engine.core.variable_values import Flat, flat, with_sequences, write
from dpexec.engine.dispatch.engine import Engine
from dpexec.engine.executors.compiled_program import CompiledProgram
from dpexec.engine.executors.executor import Executor
from dpexec.engine.ir.program import Program, default_main_program
from dpexec.engine.ir.variable import Variable
from dpexec.io.selection import is_persistable
from dpexec.parallel_executor import ParallelExecutor

__all__ = ["Training"]

Array = np.ndarray[Any, Any]
Trained = Program | CompiledProgram

_NAMED = 8  # variables that an error shows

_KINDS = (
    *(VarType.LOD_TENSOR, VarType.SELECTED_ROWS),
    *(VarType.LOD_TENSOR_ARRAY, VarType.LOD_RANK_TABLE),
)
"""What is state, of variables that outlive a run."""


@dataclass(frozen=True)
class _Facts:
    """How a program was run: its number of runs and replicas."""

    runs: int
    replicas: int
    mode: str


class Training:
    """A training: programs, the executor that runs them, and the scope.

    Args:
        executor: an Executor or ParallelExecutor.
        programs: the programs that the Executor runs; None takes the default main program.
        scope: where variables live; None takes the global scope.

    Raises:
        TypeError: an argument has the wrong type, or programs are given for a ParallelExecutor,
            which has its own.
    """

    def __init__(
        self,
        executor: Executor | ParallelExecutor,
        programs: Trained | Sequence[Trained] | None,
        scope: Scope | None,
    ) -> None:
        if isinstance(executor, ParallelExecutor):
            if programs is not None or scope is not None:
                raise TypeError("a ParallelExecutor has its own program and scope: give no other")
            programs, scope = executor._compiled_program, executor._scope
            executor = executor._executor
        if not isinstance(executor, Executor):
            raise TypeError(
                f"checkpoints take an Executor or ParallelExecutor, but received {type(executor)}"
            )
        if programs is None:
            programs = default_main_program()
        if isinstance(programs, Trained):
            programs = [programs]
        for program in programs:
            if not isinstance(program, Trained):
                raise TypeError(
                    f"checkpoints take Programs and CompiledPrograms, but received {type(program)}"
                )
        self._programs = list(programs)
        self._place = executor.place
        self._scope = global_scope() if scope is None else scope

    # ---- taking

    def take(self) -> Stored:
        """Return a copy of the state."""
        variables, engines = self._variables(), self._engines()
        held = [_held(engine, variables) for engine in engines]
        values = {name: _copied(flat(value)) for name, value in self._values(variables)}
        arrays: list[tuple[dict[str, Any], Array]] = []
        for name, value in values.items():
            arrays += _entries({"variable": name}, value)
        for number, devices in enumerate(held):
            for device, found in enumerate(devices):
                for name, own in found.items():
                    if name in values and not _same_bits(flat(own), values[name]):
                        facts = {"variable": name, "program": number, "replica": device}
                        arrays += _entries(facts, _copied(flat(own)))
        programs = [asdict(facts) for facts in self._facts(engines)]
        return Stored({"variables": variables, "programs": programs}, arrays)

    def _engines(self) -> list[Engine | None]:
        return [
            program._compile(self._scope, self._place)
            if isinstance(program, CompiledProgram)
            else None
            for program in self._programs
        ]

    def _facts(self, engines: Iterable[Engine | None]) -> list[_Facts]:
        facts = []
        for program, engine in zip(self._programs, engines, strict=True):
            runs = self._scope.run_count(_label(program))
            if engine is None:
                facts.append(_Facts(runs, 1, ""))
            else:
                mode = engine.compilation.options.mode
                facts.append(_Facts(runs, len(engine.places), mode))
        return facts

    def _variables(self) -> dict[str, str]:
        """The declared types and shapes of all persistable variables."""
        programs = [p._program if isinstance(p, CompiledProgram) else p for p in self._programs]
        return {
            var.name: _declared(var)
            for program in programs
            for var in program.list_vars()
            if is_persistable(var) and var.type in _KINDS
        }

    def _values(self, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """The scope's values of variables, without those that have no value."""
        for name in names:
            value = with_sequences(self._scope.find_var(name))
            if value is not None:
                yield name, value

    # ---- giving back

    def give(self, stored: Stored, path: str) -> None:
        """Restore a state.

        Raises:
            EnforceNotMet: the state belongs to other programs or to other replicas, or lacks a
                value for a variable that has one here; nothing has changed then.
        """
        engines = self._engines()
        facts = [_Facts(**program) for program in stored.about["programs"]]
        self._check_variables(stored.about["variables"], path)
        self._check_replicas(facts, self._facts(engines), stored, path)
        self._check_values(stored, path)
        own: list[dict[str, dict[int, Any]]] = [{} for _ in engines]
        for (name, number, replica), value in stored.values().items():
            if replica:
                own[number].setdefault(name, {})[replica] = value
            else:
                write(self._scope.find_var(name) or self._scope.var(name), value)
        for program, engine, known, values in zip(self._programs, engines, facts, own, strict=True):
            self._scope.set_run_count(_label(program), known.runs)
            if engine is not None and not engine.compilation.options.shared_memory:
                for name, devices in values.items():
                    engine.replicas.restore(name, devices)

    def _check_variables(self, saved: Mapping[str, str], path: str) -> None:
        mine = self._variables()
        differing = [
            name for name in saved.keys() | mine.keys() if saved.get(name) != mine.get(name)
        ]
        differing.sort(key=lambda name: (name not in saved or name not in mine, name))
        problems = [
            f"{name} is {saved.get(name, 'missing')} in the checkpoint, "
            f"{mine.get(name, 'missing')} in the program"
            for name in differing
        ]
        if problems:
            more = len(problems) - _NAMED
            end = f"\n  and {more} more" if more > 0 else ""
            shown = "\n  ".join(problems[:_NAMED])
            problem = f"checkpoint {path} is of another program:\n  {shown}{end}"
            raise see("a-checkpoint-of-another-program", EnforceNotMet(problem))

    def _check_values(self, stored: Stored, path: str) -> None:
        """Check that variables without a value in the state have none here, either."""
        saved = {entry["variable"] for entry, _ in stored.arrays}
        for name, _ in self._values(name for name in self._variables() if name not in saved):
            raise EnforceNotMet(
                f"checkpoint {path} has no value for variable {name}, which has one here: it had "
                "none when the checkpoint was written, so resume in a new scope"
            )

    def _check_replicas(
        self, saved: list[_Facts], mine: list[_Facts], stored: Stored, path: str
    ) -> None:
        if len(saved) != len(mine):
            raise EnforceNotMet(
                f"checkpoint {path} is of {len(saved)} programs, but {len(mine)} are trained here"
            )
        for number, (then, now) in enumerate(zip(saved, mine, strict=True)):
            if then.replicas != now.replicas:
                raise EnforceNotMet(
                    f"checkpoint {path} is of {then.replicas} replicas, but the program is "
                    f"compiled for {now.replicas}: give it as many places (CPU_NUM), they may "
                    "share a worker or thread"
                )
            own = {e["variable"]: None for e, _ in stored.arrays if e.get("program") == number}
            if own and then.mode != now.mode:
                raise EnforceNotMet(
                    f"checkpoint {path} was written in mode {then.mode} and holds values of single "
                    f"replicas, such as {next(iter(own))}, that mode {now.mode} has no place for: "
                    "choose the same reduce_strategy"
                )


def _label(program: Trained) -> Program:
    return program._original if isinstance(program, CompiledProgram) else program


def _held(engine: Engine | None, names: Iterable[str]) -> list[dict[str, Any]]:
    """The own values of replicas other than the first; also updates the scope's tensors."""
    if engine is None:
        return []
    replicas = engine.replicas
    held = replicas.own_values(names)
    if engine._cluster is not None:
        for mine, found in zip(held, engine._cluster.variables.with_offsets(names), strict=True):
            mine.update(found)
    held[0].clear()
    return held


# ---- values as arrays of a file


def _declared(var: Variable) -> str:
    """A variable's declared type and shape."""
    if var.type == VarType.LOD_RANK_TABLE:
        return "LOD_RANK_TABLE"
    kind = "" if var.type == VarType.LOD_TENSOR else f"{var.type.name} of "
    return f"{kind}{to_numpy(var.dtype).name}{list(var.shape)}"


def _copied(value: Flat) -> Flat:
    return Flat(value.kind, [np.array(_host(array), order="C") for array in value.arrays])


def _entries(facts: dict[str, Any], value: Flat) -> list[tuple[dict[str, Any], Array]]:
    """The arrays of a value, with the manifest's entry for each."""
    if value.kind == "tensor":
        return [(facts, value.arrays[0])]
    parts = enumerate(value.arrays)
    return [({**facts, "kind": value.kind, "part": part}, array) for part, array in parts]


def _host(array: Any) -> Array:
    value: Array = array if isinstance(array, np.ndarray) else array.get()
    return value


def _same_bits(one: Flat, other: Flat) -> bool:
    if (one.kind, len(one.arrays)) != (other.kind, len(other.arrays)):
        return False
    return all(map(_same_array, map(_host, one.arrays), other.arrays))


def _same_array(one: Array, other: Array) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    words = f"u{one.itemsize}"  # a NaN equals itself, and zeros have signs
    return np.array_equal(one.ravel().view(words), other.ravel().view(words))
