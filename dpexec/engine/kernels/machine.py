"""Kernels in machine code, and how they get their arguments.

In machine code every kernel has the same signature: it takes the address of its arguments, an array
of 64-bit words (integers, addresses of arrays, bits of float64 numbers), and returns 0, or another
number if it rejects the values. So a sequence of calls is a table
(:mod:`dpexec.engine.kernels.tables`).

In Python a kernel is a function with typed arguments; the code that unpacks the words is generated
from its signature::

    @kernel
    def scale(n: Count, factor: Number, x: Floats, out: Floats) -> int:
        for i in range(n):
            out[i] = x[i] * factor
        return 0

numba is optional: import this module only if :func:`dpexec.engine.kernels.available` is true.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, cast, overload

from dpexec.engine.graph.listings import source_of
from dpexec.engine.kernels.compiling import Lazily, Loads, address_of, apart, inspected, intrinsic

ir, types = Lazily("llvmlite.ir"), Lazily("numba.types")

__all__ = [
    "Count",
    "Doubles",
    "Floats",
    "Integers",
    "Kernel",
    "Number",
    "Octets",
    "Rest",
    "Words",
    "as_word",
    "at_address",
    "call",
    "count",
    "doubles",
    "floats",
    "integers",
    "intrinsic",
    "kernel",
    "number",
    "octets",
    "own_words",
    "prefetch",
    "words",
]


Count = Annotated[int, "count"]
"""Types an argument of a kernel: an integer."""
Number = Annotated[Any, "number"]
"""A float32."""
Floats = Annotated[Any, "floats"]
"""The address of float32 numbers."""
Doubles = Annotated[Any, "doubles"]
"""The address of float64 numbers."""
Octets = Annotated[Any, "octets"]
"""The address of uint8 numbers."""
Words = Annotated[Any, "words"]
"""The address of int32 numbers."""
Integers = Annotated[Any, "integers"]
"""The address of int64 numbers."""
Rest = Annotated[int, "rest"]
"""The address of all arguments that follow, as many as a call has: read with :func:`count`,
:func:`floats` and so on. Only the last one can be of this type."""


def _pointer(element: str) -> Callable[..., Any]:
    """A function that reads argument ``index`` of a kernel as a pointer."""

    @intrinsic
    def load(typing_context: Any, arguments: Any, index: Any) -> Any:
        signature = types.CPointer(getattr(types, element))(types.int64, types.int64)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            target = context.get_value_type(signature.return_type)
            return builder.inttoptr(_word(builder, *args), target)

        return signature, generate

    function: Callable[..., Any] = load
    return function


def _word(builder: Any, arguments: Any, index: Any) -> Any:
    words = builder.inttoptr(arguments, ir.IntType(64).as_pointer())
    return builder.load(builder.gep(words, [index]))


floats = _pointer("float32")
"""``floats(arguments, i)``: argument ``i`` as a pointer to float32 numbers."""
doubles = _pointer("float64")
"""``doubles(arguments, i)``: argument ``i`` as a pointer to float64 numbers."""
octets = _pointer("uint8")
"""``octets(arguments, i)``: argument ``i`` as a pointer to uint8 numbers."""
words = _pointer("int32")
"""``words(arguments, i)``: argument ``i`` as a pointer to int32 numbers."""
integers = _pointer("int64")
"""``integers(arguments, i)``: argument ``i`` as a pointer to int64 numbers."""


@intrinsic
def count(typing_context: Any, arguments: Any, index: Any) -> Any:
    """``count(arguments, i)``: argument ``i`` as an integer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _word(builder, *args)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def number(typing_context: Any, arguments: Any, index: Any) -> Any:
    """``number(arguments, i)``: argument ``i`` as a float32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        double = builder.bitcast(_word(builder, *args), ir.DoubleType())
        return builder.fptrunc(double, ir.FloatType())

    return types.float32(types.int64, types.int64), generate


@intrinsic
def as_word(typing_context: Any, pointer: Any) -> Any:
    """``as_word(x)``: the address that a pointer has."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(args[0], ir.IntType(64))

    return types.int64(pointer), generate


@intrinsic
def _rest(typing_context: Any, arguments: Any, offset: Any) -> Any:
    """``_rest(arguments, offset)``: the address ``offset`` bytes later."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.add(*args)

    return types.int64(types.int64, types.int64), generate


_LOADERS: dict[str, Callable[..., Any]] = {
    "count": count,
    "number": number,
    "floats": floats,
    "doubles": doubles,
    "octets": octets,
    "words": words,
    "integers": integers,
    "rest": _rest,
}
_C_TYPES = {
    "count": "int64 ",
    "number": "float32 ",
    "floats": "float32 *",
    "doubles": "float64 *",
    "octets": "uint8 *",
    "words": "int32 *",
    "integers": "int64 *",
    "rest": "int64 ...",
}
_WORD = 8

at_address: dict[int, Kernel] = {}
"""Compiled kernels by the address of their machine code, which is never freed."""


class Kernel:
    """A kernel, compiled when its address is first asked for.

    Args:
        function: its arguments have the types above; it returns a status, 0 if all is well.
        apart: its pointer arguments never alias, and it returns nothing.
        source: its source text, if it is not in a file.
        each: names of float32 arrays that it reads element by element; their length is its first
            argument, and all other arguments are the same for all elements.
        rows: names of tables of which it changes only the rows listed in the argument ``rows``,
            whose number is in ``held``.
        parts: how threads may divide its work, ways of it separated by ``;``. Each is the argument
            that is divided, a colon, and arrays, each with the arguments whose product is the
            number of its elements that belong to one: ``rows: x*n out*n means``. Of arrays with
            ``@``, each thread has so many elements. The first array has as many as there is work.
            ``rows%few`` keeps as many rows together as argument ``few`` says.
            A way is taken if the numbers of those before it are 1.

    Attributes:
        each, rows: as given, by position.
        parts: the ways.

    Raises:
        TypeError: an argument has another type, or follows an argument of the type ``Rest``.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        apart: bool = False,
        source: str | None = None,
        each: str = "",
        rows: str = "",
        parts: str = "",
    ) -> None:
        self.function, self.apart = function, apart
        self._source = source
        self.__doc__ = function.__doc__
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        self._kinds = {name: self._kind(function.__annotations__.get(name)) for name in names}
        for position, (name, kind) in enumerate(self._kinds.items(), 1):
            if kind not in _LOADERS or (kind == "rest" and position < len(names)):
                raise TypeError(f"argument {name} of kernel {self} has no type that kernels take")
        self.each = tuple(names.index(name) for name in each.split())
        self.rows = tuple(names.index(name) for name in rows.split())
        self.parts = tuple(way for way in parts.split(";") if way)
        self._open = "rest" in self._kinds.values()
        self._least = len(names) - self._open

    def _kind(self, hint: Any) -> str:
        known = self.function.__globals__.get(hint) if isinstance(hint, str) else hint
        kind: str = getattr(known, "__metadata__", ("none",))[0]
        return kind

    def __str__(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @functools.cached_property
    def source(self) -> str:
        """Its Python source; "" if it is not available."""
        return source_of(self.function) if self._source is None else self._source

    @functools.cached_property
    def takes(self) -> str:
        """The types in machine code for which it was specialised."""
        typed = (f"{_C_TYPES[kind]}{name}" for name, kind in self._kinds.items())
        return f"{self.function.__name__}({', '.join(typed)}) -> int64"

    def position(self, name: str) -> int:
        """The position of an argument."""
        return [*self._kinds].index(name)

    def kind(self, name: str) -> str:
        """The type of an argument, such as ``floats``."""
        return self._kinds[name]

    def check(self, arguments: Sequence[Any]) -> None:
        """Check the number of arguments, and that none is None.

        Args:
            arguments: the arguments of a call.

        Raises:
            TypeError: the arguments are wrong; the message names the kernel and its arguments.
        """
        names, given = [*self._kinds], len(arguments)
        if given != self._least and not (self._open and given > self._least):
            takes = f"{self._least}{' or more' * self._open} arguments ({', '.join(names)})"
            raise TypeError(f"kernel {self} takes {takes}, not {given}")
        for position, argument in enumerate(arguments):
            if argument is None:
                name = names[min(position, len(names) - 1)]
                raise TypeError(f"argument {name} of kernel {self} is missing")

    @functools.cached_property
    def address(self) -> int:
        """The address of its machine code, which is cached on disk between processes."""
        address = address_of(self.machine_function, self.loads())
        at_address[address] = self
        return address

    @functools.cached_property
    def inspected(self) -> tuple[str, str]:
        """Its LLVM IR and its assembly, of a new compilation: code from disk does not have them."""
        return inspected(self.machine_function, self.loads())

    def loads(self) -> Loads:
        """For each argument, its name, the intrinsic that reads it, and the number for that."""
        kinds = enumerate(self._kinds.values())
        return [(kind, _LOADERS[kind], at * _WORD if kind == "rest" else at) for at, kind in kinds]

    @functools.cached_property
    def machine_function(self) -> Callable[..., int]:
        """The function that is compiled: if pointers never alias, one that calls the kernel's.

        Only arguments of functions can be ``noalias``.
        """
        function = self.function
        if not self.apart:
            return function
        names = {"body": apart(function), "__name__": function.__module__}
        arguments = ", ".join(f"{name}={name}" for name in self._kinds)  # by position: 30 at most
        exec(f"def call({', '.join(self._kinds)}):\n body({arguments})\n return 0", names)
        made: Any = names["call"]
        made.__name__, made.__qualname__ = function.__name__, function.__qualname__
        return cast("Callable[..., int]", made)


@overload
def kernel(function: Callable[..., int]) -> Kernel: ...
@overload
def kernel(*, apart: Literal[True]) -> Callable[[Callable[..., None]], Kernel]: ...
@overload
def kernel(
    *, each: str = "", rows: str = "", parts: str = ""
) -> Callable[[Callable[..., int]], Kernel]: ...
def kernel(function: Any = None, **about: Any) -> Any:
    """Make the decorated function a kernel, which numba compiles when it is first needed.

    Args:
        function: each argument has one of the types ``Count``, ``Floats``, ``Integers``,
            ``Number`` of :mod:`dpexec.extend`; it returns a status, 0 if all is well.
        about: further properties: the arguments of :class:`Kernel`.

    Returns:
        A :class:`Kernel`, which a :func:`lowering` emits; without ``function`` a decorator.

    Raises:
        TypeError: an argument has another type.

    Example:
        >>> from dpexec.extend import Count, Floats, kernel
        >>> @kernel
        ... def doubled(n: Count, x: Floats, out: Floats) -> int:
        ...     for i in range(n):
        ...         out[i] = 2 * x[i]
        ...     return 0
    """
    return Kernel(function) if function else functools.partial(Kernel, **about)


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """``prefetch(array, i)``: begin to load element ``i`` from memory while other work goes on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
        place = builder.bitcast(builder.gep(args[0], [args[1]]), byte)
        read, keep, data = (ir.Constant(word, number) for number in (0, 3, 1))
        builder.call(function, [place, read, keep, data])
        return context.get_dummy_value()

    return types.void(types.CPointer(types.float32), types.int64), generate


@intrinsic
def call(typing_context: Any, address: Any, arguments: Any) -> Any:
    """``call(address, arguments)``: call the kernel at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        target = builder.inttoptr(args[0], ir.FunctionType(word, [word]).as_pointer())
        return builder.call(target, [args[1]])

    return types.int64(types.int64, types.int64), generate


@intrinsic
def own_words(typing_context: Any, arguments: Any) -> Any:
    """``own_words(arguments)``: the arguments of a kernel as a pointer to integers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(64).as_pointer())

    return types.CPointer(types.int64)(types.int64), generate
