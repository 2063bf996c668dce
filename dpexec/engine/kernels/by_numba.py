"""Makes machine code with numba, for a family of processors.

The code calls nothing but kernels, helpers and the C library: numba's runtime and Python itself are
not needed where it runs. Compiler contexts of its own make it, so other code in this process can
use numba with its usual settings.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir as llvm_ir
from numba.core import externals, ir, types, typing
from numba.core.codegen import AOTCodeLibrary, JITCPUCodegen
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.cpu import CPUContext
from numba.core.dispatcher import (  # type: ignore[attr-defined]
    Dispatcher,
    _FunctionCompiler,
)
from numba.core.errors import NumbaError
from numba.core.ir_utils import build_definitions
from numba.core.registry import CPUDispatcher, CPUTarget, cpu_target
from numba.core.target_extension import (
    CPU,
    dispatcher_registry,
    jit_registry,
    target_override,
    target_registry,
)
from numba.core.typing.templates import AbstractTemplate
from numba.core.untyped_passes import TranslateByteCode
from numba.core.utils import threadsafe_cached_property

from dpexec.engine.core.memory import no_cycles_sought
from dpexec.engine.kernels.compiling import Helper, Intrinsic, Loads
from dpexec.engine.kernels.loading import Family, family, machine

__all__ = ["compiled"]

_NAME = "dpexec"
"""Of the target, among numba's."""
_OPTIONS = {
    "nopython": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
}


class _Library(AOTCodeLibrary):
    """Machine code that counts no references, whose removal numba prepares by passes of its own."""

    symbol = ""
    """What others call of it; none: it is put into what calls it."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if not function.is_declaration:  # of which there are more
                manager, builder = self._codegen._function_pass_manager()
                manager.run(function, builder)

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if self.symbol and not function.is_declaration and function.name != self.symbol:
                function.linkage = "internal"  # what is in the place of its calls is left out
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)


class _Codegen(JITCPUCodegen):
    """Makes code for a family of processors."""

    _library_class: Any = _Library

    def __init__(self, wanted: Family) -> None:
        self._wanted = wanted
        super().__init__("dpexec")

    def _customize_tm_options(self, options: dict[str, Any]) -> None:
        options.update(machine(self._wanted))

    def _customize_tm_features(self) -> str:
        return self._wanted.features

    def _add_module(self, module: Any) -> None:
        """What is made here runs elsewhere."""


class _Typing(typing.Context):
    """Knows the types of helpers and intrinsics."""

    def resolve_value_type(self, val: Any) -> Any:
        if isinstance(val, Intrinsic):
            return _type_of(val)
        if isinstance(val, Helper | CPUDispatcher):
            val = _dispatcher(val)
        return super().resolve_value_type(val)


@functools.cache
def _type_of(intrinsic: Intrinsic) -> Any:
    about = {"key": intrinsic, "define": staticmethod(intrinsic.define), "made": {}}
    return types.Function(type("_Template", (_Template,), about))


class _Template(AbstractTemplate):
    """The types of an intrinsic; whoever types it tells the context how it is lowered."""

    define: Any
    made: dict[Any, Any]

    def generic(self, args: Any, kws: Any) -> Any:
        if args not in self.made:
            signature, generate = self.define(self.context, *args, **kws)
            parameters = list(inspect.signature(self.define).parameters.values())[1:]
            signature = signature.replace(pysig=inspect.Signature(parameters))
            _target().target_context.insert_func_defn([(generate, generate, signature.args)])
            self.made[args] = self.made[signature.args] = signature, generate
        return self.made[args][0]

    def get_impl_key(self, sig: Any) -> Any:
        return self.made[sig.args][1]


class _Context(CPUContext):
    """Lowers functions to LLVM IR for a family of processors."""

    symbol = ""

    def init(self) -> None:
        self.is32bit = False
        self._internal_codegen = _Codegen(family())
        externals.c_math_functions.install(self)

    def load_additional_registries(self) -> None:
        for name in _REGISTERING:
            importlib.import_module(name)
        from numba.cpython import mathimpl
        from numba.np import npyimpl

        self.install_registry(mathimpl.registry)
        self.install_registry(npyimpl.registry)

    def post_lowering(self, module: Any, library: Any) -> None:
        if self.fastmath:
            from numba.core import fastmathpass

            fastmathpass.rewrite_module(module, self.fastmath)

    def create_cfunc_wrapper(self, library: Any, fndesc: Any, env: Any, call_helper: Any) -> None:
        """What callers in C get, under a name that says what it is; nothing in it can raise."""
        module = self.create_module("export")
        inner = llvm_ir.Function(
            module,
            self.call_conv.get_function_type(fndesc.restype, fndesc.argtypes),
            fndesc.llvm_func_name,
        )
        given = [self.get_value_type(kind) for kind in fndesc.argtypes]
        kind = llvm_ir.FunctionType(self.get_value_type(fndesc.restype), given)
        made = llvm_ir.Function(module, kind, self.symbol)
        builder = llvm_ir.IRBuilder(made.append_basic_block("entry"))
        status, out = self.call_conv.call_function(
            builder, inner, fndesc.restype, fndesc.argtypes, made.args
        )
        builder.ret(builder.select(status.is_error, llvm_ir.Constant(out.type, -1), out))
        library.add_ir_module(module)


_REGISTERING = ["numba.cpython.builtins", "numba.cpython.numbers", "numba.cpython.rangeobj"]
_REGISTERING += ["numba.cpython.tupleobj", "numba.cpython.slicing", "numba.cpython.iterators"]
_REGISTERING += ["numba.core.optional", "numba.np.arrayobj"]


class _Target(CPUTarget):
    """Typing and lowering for a family."""

    @threadsafe_cached_property
    def _toplevel_typing_context(self) -> Any:
        return _Typing()

    @threadsafe_cached_property
    def _toplevel_target_context(self) -> Any:
        return _Context(self.typing_context, "dpexec")


@functools.cache
def _target() -> _Target:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    made = _Dispatcher.targetdescr = _Target("dpexec")
    return made


@functools.cache
def _dispatcher(wanted: Any) -> Any:
    """What compiles a helper, or a function that people gave to numba.njit, for its callers."""
    if isinstance(wanted, Helper):
        function, options = wanted.function, wanted.options
    else:
        function, options = wanted.py_func, dict(wanted.targetoptions)
        options.pop("boundscheck", None)
    return _made(function, options)


def _made(function: Any, options: dict[str, Any]) -> Any:
    options = dict(options)
    pipeline = _Apart if options.pop("apart", False) else Compiler
    if isinstance(options.get("fastmath"), tuple):
        options["fastmath"] = set(options["fastmath"])
    options = _OPTIONS | options
    made: Any = _Dispatcher(function, {}, options, pipeline)
    made._compiler = _Uncalled(function, _target(), options, {}, pipeline)
    _helpers.append(made)
    return made


_helpers: list[Any] = []


class _Dispatcher(Dispatcher):
    """Compiles a helper for types; Python does not call what it makes."""

    targetdescr: Any = None

    def add_overload(self, cres: Any) -> None:
        self.overloads[tuple(cres.signature.args)] = cres
        self.targetctx.insert_user_function(cres.entry_point, cres.fndesc, [cres.library])


class _Key:
    """Stands for a function that Python cannot call."""


class _Uncalled(_FunctionCompiler):
    def _customize_flags(self, flags: Any) -> Any:
        flags.no_compile = True
        return flags

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        return super()._compile_core(args, return_type)._replace(entry_point=_Key())


class _Apart(Compiler):
    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()


@register_pass(mutates_CFG=True, analysis_only=False)
class _Unpack(FunctionPass):
    """What reads the arguments of a function takes the place of its arguments."""

    _name = "unpack"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        found = state.func_ir
        first = found.blocks[min(found.blocks)]
        scope, loc = first.scope, first.loc
        given = ir.Arg("$arguments", 0, loc)
        address = scope.define(given.name, loc)
        body = [ir.Assign(given, address, loc)]
        for statement in first.body:
            if isinstance(getattr(statement, "value", None), ir.Arg):
                name, load, where = state.pipeline.loads[statement.value.index]
                called, at = (scope.redefine("$load", loc) for _ in range(2))
                body.append(ir.Assign(ir.Global(name, load, loc), called, loc))
                body.append(ir.Assign(ir.Const(where, loc), at, loc))
                statement.value = ir.Expr.call(called, [address, at], (), loc)
            body.append(statement)
        first.body = body
        found.arg_names, found.arg_count = (given.name,), 1
        found._definitions = build_definitions(found.blocks)
        return True


class _Unpacking(Compiler):
    def __init__(self, loads: Loads, *more: Any) -> None:
        super().__init__(*more)
        self.loads = loads

    def define_pipelines(self) -> Any:
        (passes,) = super().define_pipelines()
        passes.add_pass_after(_Unpack, TranslateByteCode)
        passes.finalize()
        return [passes]


class _Processor(CPU):
    """The target of these contexts, to which numba's own library of functions is compiled, too."""


target_registry[_NAME] = _Processor
dispatcher_registry[_Processor] = _Dispatcher
jit_registry[_Processor] = lambda **options: functools.partial(_made, options=options)


def compiled(function: Callable[..., Any], loads: Loads | None, symbol: str) -> Any:
    """Compile a function.

    Args:
        function: takes and returns integers, but for ``loads``.
        loads: how its arguments are read from an address, the only argument of what is compiled;
            else it is compiled as it is.
        symbol: its name in the object.

    Returns:
        The library of it, as numba has it: ``emit_native_object()`` gives the object.
    """
    try:
        return _compiled(function, loads, symbol)
    except NumbaError:
        if _all_functions.cache_info().currsize:
            raise
        _all_functions()
        return _compiled(function, loads, symbol)


@functools.cache
def _all_functions() -> None:
    """Import what numba has for functions that kernels rarely call, and SciPy with it.

    It takes longer than ten kernels do.
    """
    cpu_target.target_context.refresh()
    for helper in _helpers:
        helper._compiler._failed_cache.clear()


def _compiled(function: Callable[..., Any], loads: Loads | None, symbol: str) -> Any:
    # Without the override, numba would set up its own target, too.
    with target_override(_NAME), no_cycles_sought():
        return _library_of(function, loads, symbol)


def _library_of(function: Callable[..., Any], loads: Loads | None, symbol: str) -> Any:
    target = _target()
    arity = 1 if loads is not None else function.__code__.co_argcount
    pipeline: Any = Compiler if loads is None else functools.partial(_Unpacking, loads)
    options = {**_OPTIONS, "no_cfunc_wrapper": False}
    compiler = _Uncalled(function, target, options, {}, pipeline)
    with global_compiler_lock:
        target.target_context.symbol = symbol
        made = compiler.compile((types.int64,) * arity, types.int64).library
        made.symbol = symbol
        made.finalize()
    return made
