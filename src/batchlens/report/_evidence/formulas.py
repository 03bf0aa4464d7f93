"""The formulas that claims are written in, evaluated for many resamples at once.

A formula is a small part of Python: numbers, names, calls of known functions, arithmetic, comparisons, `and`, and one
function of `... for b in (...)`. Its names stand for arrays with an entry per resample.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_OPERATIONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.LtE: operator.le,
    ast.Lt: operator.lt,
    ast.GtE: operator.ge,
    ast.Gt: operator.gt,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {"log": np.log, "abs": np.abs, "max": np.maximum.reduce}


def evaluate(formula: str, names: Mapping[str, Any]) -> Any:
    """What a formula comes to.

    >>> saved = np.array([0.05, 0.3])
    >>> evaluate("saved <= 0.10 and log(saved) < 0", {"saved": saved, **FUNCTIONS}).tolist()
    [True, False]
    >>> evaluate("max(2 * b for b in (smallest, 3))", {"smallest": 1, **FUNCTIONS})
    np.int64(6)
    >>> evaluate("__import__('os')", FUNCTIONS)
    Traceback (most recent call last):
    ...
    ValueError: a formula cannot hold `__import__('os')`
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return _value(ast.parse(formula, mode="eval").body, names)


def names_in(formula: str) -> set[str]:
    """What a formula speaks of.

    >>> sorted(names_in("slope(rate, o, every) / 2"))
    ['every', 'o', 'rate', 'slope']
    """
    return {node.id for node in ast.walk(ast.parse(formula, mode="eval")) if isinstance(node, ast.Name)}


def _value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Tuple(elts=parts):
            return [_value(part, names) for part in parts]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](_value(left, names), _value(right, names))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](_value(left, names), _value(right, names))
        case ast.BoolOp(op=ast.And(), values=parts):
            return np.logical_and.reduce([_value(part, names) for part in parts])
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if callable(names.get(name)):
            return names[name](*(_value(argument, names) for argument in arguments))
        case ast.GeneratorExp(elt=element, generators=[ast.comprehension(target=ast.Name(id=name), iter=over, ifs=[])]):
            return [_value(element, {**names, name: entry}) for entry in _value(over, names)]
    raise ValueError(f"a formula cannot hold `{ast.unparse(node)}`")
