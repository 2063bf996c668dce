"""Translates expressions of float32 numbers from Python to CUDA.

Names get a trailing ``_``, since some, such as ``new``, are C++ keywords.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

import numpy as np

__all__ = ["PREAMBLE", "Untranslatable", "expression", "statements"]

PREAMBLE = """\
__device__ inline float dp_max(float a, float b) { return a > b || a != a ? a : b; }
__device__ inline float dp_min(float a, float b) { return a < b || a != a ? a : b; }
__device__ inline float dp_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float dp_against(float x) { return dp_sigmoid(-x); }
__device__ inline float dp_normal(float x) { return 0.5f * erfcf(x * -0.70710678f); }
__device__ inline float dp_bell(float x) { return expf(-0.5f * x * x); }
__device__ inline float dp_steepness(float x) {
  float e = expf(-2.0f * fabsf(x));
  return 4.0f * e / ((1.0f + e) * (1.0f + e));
}
__device__ inline float dp_tanh_shrink(float x) {
  if (fabsf(x) >= 0.625f) return x - tanhf(x);
  float z = x * x;
  float y = (((2.5052108e-7f * z + 2.2045855e-5f) * z + 1.1904762e-3f) * z + 0.033333333f) * z;
  return (y + 0.33333333f) * z * x / coshf(x);
}
"""
"""Functions that translated expressions call; like NumPy's, they propagate NaN."""

_CONSTANTS = {"zero": "0.0f", "one": "1.0f", "two": "2.0f", "half": "0.5f"}
_FUNCTIONS = {
    "abs": "fabsf",
    "against": "dp_against",
    "bell": "dp_bell",
    "ceil": "ceilf",
    "cos": "cosf",
    "exp": "expf",
    "exp_bounded": "expf",
    "expm1": "expm1f",
    "floor": "floorf",
    "log": "logf",
    "log1p": "log1pf",
    "log1p_of_any": "log1pf",
    "max": "dp_max",
    "min": "dp_min",
    "normal": "dp_normal",
    "rint": "rintf",
    "sigmoid": "dp_sigmoid",
    "sin": "sinf",
    "sqrt": "sqrtf",
    "steepness": "dp_steepness",
    "tanh": "tanhf",
    "tanh_shrink": "dp_tanh_shrink",
}
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.USub: "-",
    ast.And: "&&",
    ast.Or: "||",
    ast.Not: "!",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


class Untranslatable(ValueError):
    """An expression cannot be translated to CUDA, or its translation is not implemented."""


def expression(text: str) -> str:
    """An expression in CUDA.

    Args:
        text: a Python expression of :mod:`dpexec.engine.kernels.generate`.

    Raises:
        Untranslatable: a part of it is not supported.
    """
    return _translated(ast.parse(text, mode="eval").body)


def statements(text: str, known: Collection[str] = ()) -> list[str]:
    """Assignments in CUDA, which declare names that are new.

    Args:
        text: ``name = expression``, with semicolons between them.
        known: names that are declared already.

    Raises:
        Untranslatable: a part of it is not supported.
    """
    lines, declared = [], set(known)
    for statement in ast.parse(text).body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            raise Untranslatable(ast.unparse(statement))
        name = statement.targets[0].id
        kind = "" if name in declared else "float "
        lines.append(f"{kind}{name}_ = {_translated(statement.value)};")
        declared.add(name)
    return lines


def _translated(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return _CONSTANTS.get(name, f"{name}_")
        case ast.Constant(value=int() | float() as value):
            return _literal(value)
        case ast.UnaryOp(op=op, operand=operand):
            return f"({_operator(op)}{_translated(operand)})"
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return f"powf({_translated(left)}, {_translated(right)})"
        case ast.BinOp(left=left, op=op, right=right):
            return f"({_translated(left)} {_operator(op)} {_translated(right)})"
        case ast.BoolOp(op=op, values=values):
            return "(" + f" {_operator(op)} ".join(map(_translated, values)) + ")"
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return f"({_translated(left)} {_operator(op)} {_translated(right)})"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"({_translated(test)} ? {_translated(body)} : {_translated(orelse)})"
        case ast.Call(func=ast.Name(id="F"), args=[argument]):
            return _literal(ast.literal_eval(argument))
        case ast.Call(
            func=ast.Name(id=name) | ast.Attribute(value=ast.Name(id="np"), attr=name),
            args=arguments,
        ) if name in _FUNCTIONS:
            return f"{_FUNCTIONS[name]}({', '.join(map(_translated, arguments))})"
    raise Untranslatable(ast.unparse(node))


def _operator(op: ast.AST) -> str:
    if type(op) not in _OPERATORS:
        raise Untranslatable(ast.dump(op))
    return _OPERATORS[type(op)]


def _literal(value: float) -> str:
    single = float(np.float32(value))
    if not np.isfinite(single):
        raise Untranslatable(str(value))
    return f"{single!r}f" if single >= 0 else f"({single!r}f)"
