"""The inside of $((...)): integers, variables and the four operations, evaluated without a shell."""

import ast
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

Lookup: TypeAlias = Callable[[str], int | None]

_LONGEST: Final = 200
_LARGEST: Final = 2**63
_LARGEST_EXPONENT: Final = 62
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class _UnknownError(Exception):
    """The value is not known."""


def evaluate(text: str, lookup: Lookup) -> int | None:
    """The value of an expression, None if it is not known.

    Args:
        text: the expression inside the brackets, such as "$A * B".
        lookup: the number that a variable holds.
    """
    plain = _VARIABLE.sub(lambda match: f" {match[1] or match[2]} ", text).strip()
    if len(plain) > _LONGEST:
        return None
    try:
        return _value(ast.parse(" ".join(plain.split()), mode="eval").body, lookup)
    except (SyntaxError, ValueError, RecursionError, MemoryError, ZeroDivisionError, _UnknownError):
        return None


def _value(node: ast.expr, lookup: Lookup) -> int:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            number: int | None = value
        case ast.Name(id=name):
            number = lookup(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = -_value(operand, lookup)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            number = _value(operand, lookup)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATIONS:
            number = _OPERATIONS[type(operator)](_value(left, lookup), _value(right, lookup))
        case _:
            raise _UnknownError
    if number is None or abs(number) > _LARGEST:
        raise _UnknownError
    return number


def _power(base: int, exponent: int) -> int:
    if not 0 <= exponent <= _LARGEST_EXPONENT:
        raise _UnknownError
    return int(base**exponent)


def _quotient(left: int, right: int) -> int:
    """The integer quotient, rounded towards zero as in a shell."""
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


def _rest(left: int, right: int) -> int:
    return left - right * _quotient(left, right)


_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: _quotient,
    ast.Mod: _rest,
    ast.Pow: _power,
}
