"""Programs, the default programs, and the guards that switch them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dpexec.engine.core import hooks
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.callsite import current_device, current_name_scope
from dpexec.engine.ir.prune import Prunable
from dpexec.engine.ir.undo import note, note_attributes
from dpexec.engine.ir.variable import Parameter, Variable

if TYPE_CHECKING:
    from dpexec.engine.ir.desc import ProgramDesc

__all__ = [
    "Program",
    "default_main_program",
    "default_startup_program",
    "program_guard",
    "replace_defaults",
]


class Program(Prunable):
    """What the user's layer and optimizer calls describe: blocks of operators on variables.

    See Also:
        :func:`~dpexec.default_main_program`: the program of layers.
        :func:`~dpexec.default_startup_program`: the program of initial values.
        :func:`~dpexec.program_guard`: other programs instead.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     y = fluid.data("x", [None, 2]) * 2.0
        >>> [op.type for op in main.global_block().ops], main.num_blocks
        (['scale'], 1)
    """

    def __init__(self) -> None:
        self.blocks = [Block(self, 0)]
        self.current_block_idx = 0
        self._seed = 0
        self._version = 0
        self._op_role = roles.FORWARD
        self._op_role_var: list[str] = []
        self._is_test = False
        self._predictor_threads = 0  # of the predictor that alone has its parameters; 0: none
        self._appending_grad_times = 0
        self._loaders: list[Any] = []  # data loaders, which feed it in place of the user
        self._delayed: list[Any] = []  # the latest runs in dask graphs that are not computed yet
        self._trainers_endpoints: list[str] = []  # addresses of all trainers of a job
        self._trainer_id: int | None = None  # this trainer's index, if Executor.run trains it

    # ---- content

    def global_block(self) -> Block:
        """The outermost block."""
        return self.blocks[0]

    def block(self, index: int) -> Block:
        """Block number ``index``."""
        return self.blocks[index]

    def current_block(self) -> Block:
        """The block that layers append to."""
        return self.blocks[self.current_block_idx]

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    def list_vars(self) -> Iterator[Variable]:
        """All variables of all blocks."""
        for block in self.blocks:
            yield from block.vars.values()

    def all_parameters(self) -> list[Parameter]:
        """All parameters in the order of their creation."""
        return [param for block in self.blocks for param in block.iter_parameters()]

    @property
    def random_seed(self) -> int:
        """Seed of the random operators built from now on; 0 draws differently at every run.

        Raises:
            ValueError: set to something that is not an integer.
        """
        return self._seed

    @random_seed.setter
    def random_seed(self, seed: int) -> None:
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise ValueError(f"Program.random_seed must be an integer, but received {seed!r}")
        self._seed = seed

    def global_seed(self, seed: int = 0) -> None:
        """Set the seed of random operators."""
        self.random_seed = seed

    def _changed(self) -> None:
        self._version += 1

    def _create_block(self, parent_idx: int | None = None) -> Block:
        parent = self.current_block_idx if parent_idx is None else parent_idx
        note_attributes(self, "current_block_idx")
        note(self.blocks.pop)
        self.blocks.append(Block(self, len(self.blocks), parent))
        self.current_block_idx = len(self.blocks) - 1
        self._changed()
        return self.current_block()

    def _gradient_block(self) -> Block:
        """The block that takes the gradients of the current block.

        It is the current block itself, except in a branch, whose gradients get a block of their
        own. The code that appends the branch's operator also appends one that runs this block.
        """
        current = self.current_block()
        if not current.idx or current.forward_block_idx >= 0:
            return current
        if current.backward_block_idx < 0:
            made = self._create_block(current.parent_idx)
            made.forward_block_idx = current.idx
            self.current_block_idx = current.idx
        return self.block(current.backward_block_idx)

    @contextlib.contextmanager
    def _gradient_block_guard(self) -> Iterator[None]:
        """Append the layers inside to the block for gradients of the current block."""
        before = self.current_block_idx
        self.current_block_idx = self._gradient_block().idx
        try:
            yield
        finally:
            self.current_block_idx = before

    def _rollback(self) -> None:
        note_attributes(self, "current_block_idx")
        self.current_block_idx = self.current_block().parent_idx

    def _drop_unused_blocks(self) -> None:
        """Remove blocks whose operator was removed, and renumber the remaining ones."""
        used = {0, self.current_block_idx}
        waiting = sorted(used)
        while waiting:
            block = self.blocks[waiting.pop()]
            around = [i for i in (block.parent_idx, block.forward_block_idx) if i >= 0]
            found = {*around, *(body.idx for op in block.ops for body in op.bodies)} - used
            used |= found
            waiting += found
        number = {old: new for new, old in enumerate(sorted(used))}
        self.blocks = [self.blocks[old] for old in sorted(used)]
        for new, block in enumerate(self.blocks):
            block.idx, block.parent_idx = new, number.get(block.parent_idx, -1)
            block.forward_block_idx = number.get(block.forward_block_idx, -1)
        self.current_block_idx = number[self.current_block_idx]

    # ---- roles of the operators that are being built

    def _op_attrs(self) -> dict[str, Any]:
        attrs: dict[str, Any] = {
            roles.ROLE: self._op_role,
            roles.NAME_SCOPE: current_name_scope(),
            roles.DEVICE: current_device(),
        }
        if self._op_role_var:
            attrs[roles.ROLE_VAR] = list(self._op_role_var)
        return attrs

    @contextlib.contextmanager
    def _role_guard(self, role: int, role_var: list[Any] | None = None) -> Iterator[None]:
        old = self._op_role, self._op_role_var
        self._op_role = role
        self._op_role_var = [v if isinstance(v, str) else v.name for v in role_var or []]
        try:
            yield
        finally:
            self._op_role, self._op_role_var = old

    def _optimized_guard(self, param_and_grads: list[Any]) -> Any:
        """Operators built inside update (or clip, or regularise) this (param, grad) pair."""
        return self._role_guard(roles.OPTIMIZE, param_and_grads)

    def _backward_role_guard(self) -> Any:
        return self._role_guard(roles.BACKWARD)

    def _lr_schedule_guard(self, is_with_opt: bool = False) -> Any:
        role = roles.LR_SCHED | (roles.OPTIMIZE if is_with_opt else 0)
        return self._role_guard(role)

    # ---- copies

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaders": [], "_delayed": []}  # threads stay where they are

    def clone(self, for_test: bool = False) -> Program:
        """A copy that shares no objects; values live in the scope under the same names.

        Args:
            for_test: set ``is_test`` and leave out the operators of training: the backward pass,
                optimizers and learning rate schedules. A program without a loss or an optimizer
                keeps all its operators, such as those that ``fluid.gradients`` added.
        """
        forward_alone = for_test and self._trains()
        made = Program()
        made._seed, made._is_test = self._seed, self._is_test or for_test
        made._predictor_threads = self._predictor_threads
        made._appending_grad_times = self._appending_grad_times
        made._loaders = list(self._loaders)
        made._trainers_endpoints = list(self._trainers_endpoints)
        made._trainer_id = None if for_test else self._trainer_id
        made.current_block_idx = self.current_block_idx
        made.blocks = [Block(made, block.idx, block.parent_idx) for block in self.blocks]
        for block, twin in zip(self.blocks, made.blocks, strict=True):
            _copy_block(block, twin, forward_alone)
        if forward_alone:
            made._drop_unused_blocks()
            for block in made.blocks:
                _drop_unused_vars(block)
        for op in (op for block in made.blocks for op in block.ops if for_test):
            if "is_test" in op.attrs:
                op.attrs["is_test"] = True
        return made

    def _trains(self) -> bool:
        """Whether it has the gradient of a loss, or updates."""
        found = (op.role for block in self.blocks for op in block.ops)
        return any(role == roles.BACKWARD | roles.LOSS or role & roles.OPTIMIZE for role in found)

    # ---- Paddle's own format

    @property
    def desc(self) -> ProgramDesc:
        """The program in Paddle 1.x's format: ``program.desc.serialize_to_string()``."""
        from dpexec.engine.ir.desc import ProgramDesc

        return ProgramDesc(self)

    @staticmethod
    def parse_from_string(binary_str: bytes) -> Program:
        """The program in bytes that ``desc.serialize_to_string`` wrote, here or in Paddle 1.x.

        Args:
            binary_str: a ``ProgramDesc`` message.

        Attributes that no operator has are ignored, and warned of.

        Raises:
            EnforceNotMet: the bytes are damaged, or an operator in them is unknown.
        """
        from dpexec.engine.ir.attributes import warn_of_unknown_attributes
        from dpexec.engine.ir.desc import parse

        program = parse(binary_str)
        warn_of_unknown_attributes(program, "these bytes")
        return program

    def to_string(self, throw_on_error: bool = True, with_details: bool = False) -> str:
        """The program in protobuf text form.

        Args:
            throw_on_error: no effect, accepted for fluid's sake.
            with_details: add what fluid keeps outside the protobuf (stop_gradient, trainable ...).

        Raises:
            AssertionError: an argument is no bool.
        """
        from dpexec.engine.ir.printer import program_text

        for name, value in (("throw_on_error", throw_on_error), ("with_details", with_details)):
            if not isinstance(value, bool):
                raise AssertionError(f"{name} must be a bool, but is {type(value)}")

        return program_text(self, with_details)

    def __str__(self) -> str:
        return self.to_string()

    __repr__ = __str__
    __hash__ = object.__hash__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        shown = hooks.picture(self) if self.global_block().ops else {}
        return {**shown, "text/plain": str(self)}


def _copy_block(block: Block, made: Block, forward_alone: bool) -> None:
    made.forward_block_idx = block.forward_block_idx
    for name, var in block.vars.items():
        twin = copy.copy(var)
        twin.block, twin.op = made, None
        made.vars[name] = twin
    for op in block.ops:
        if forward_alone and op.role & ~roles.LOSS != roles.FORWARD:
            continue
        twin_op = op.twin(made)
        made.ops.append(twin_op)
        for name in op.output_arg_names:
            if name in made.vars:
                made.vars[name].op = twin_op


def _drop_unused_vars(block: Block) -> None:
    used = {name for op in block.ops for name in (*op.needs, *op.writes)}
    for name, var in list(block.vars.items()):
        if name not in used and not isinstance(var, Parameter) and not var.is_data:
            del block.vars[name]


_main, _startup = Program(), Program()


def default_main_program() -> Program:
    """The program that layers append to.

    Returns:
        The program of the innermost :func:`program_guard`, else a global one.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     y = fluid.layers.fc(fluid.data("x", [None, 2]), size=1)
        ...     [op.type for op in fluid.default_main_program().global_block().ops]
        ['mul', 'elementwise_add']
    """
    return _main


def default_startup_program() -> Program:
    """The program that initialisers append to.

    Returns:
        The program of the innermost :func:`program_guard`, else a global one.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     y = fluid.layers.fc(fluid.data("x", [None, 2]), size=1)
        ...     [op.type for op in fluid.default_startup_program().global_block().ops]
        ['fill_constant', 'uniform_random']
    """
    return _startup


def replace_defaults(
    main: Program | None, startup: Program | None
) -> tuple[Program | None, Program | None]:
    """Make other programs the default ones; None keeps one. Returns the programs replaced."""
    global _main, _startup
    old = None if main is None else _main, None if startup is None else _startup
    _main, _startup = main or _main, startup or _startup
    return old


@contextlib.contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None) -> Iterator[None]:
    """Build into these programs inside the ``with`` block.

    Args:
        main_program: takes the layers.
        startup_program: takes the initialisers; None keeps the current one.

    Returns:
        A context manager; at the end of the block the previous programs are the default ones
        again.

    Raises:
        TypeError: not programs.

    See Also:
        :func:`~dpexec.name_scope`: names of operators in pictures.
        :func:`~dpexec.scope_guard`: where values lie.
        :func:`~dpexec.device_guard`: where operators run.
        :class:`~dpexec.Program`: what runs.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     y = fluid.layers.fc(fluid.data("x", [None, 2]), size=1)
        >>> len(main.global_block().ops), len(startup.global_block().ops)
        (2, 2)
    """
    for program in (main_program, startup_program):
        if not isinstance(program, Program) and (program is not None or main_program is None):
            raise TypeError(f"program_guard takes Programs, but received {type(program)}")
    old = replace_defaults(main_program, startup_program)
    try:
        yield
    finally:
        replace_defaults(*old)
