"""Program that tells whether two expressions are equal: run as a process, since one was written by a model.

Arguments: the right expression and the model's. Prints `ready` once the first is read, then `same` or `different`;
it fails where the model's is beyond what can be computed. Only numbers, symbols, arithmetic and the functions below
are read: nothing is evaluated as Python.
"""

import ast
import re
import resource
import sys
from typing import Any

CPU_SECONDS = 10
MEMORY_BYTES = 1 << 30
FUNCTIONS = ("sqrt", "log", "sin", "cos", "tan", "asin", "acos", "atan", "tanh", "Abs", "Rational")
GROWING = ("exp", "sinh", "cosh", "factorial", "binomial", "gamma", "zeta")
CONSTANTS = {
    "pi": "pi",
    "E": "E",
    "e": "E",
    "I": "I",
    "EulerGamma": "EulerGamma",
    "GoldenRatio": "GoldenRatio",
}
OTHER_NAMES = {"ln": "log", "abs": "Abs", "arcsin": "asin", "arccos": "acos", "arctan": "atan"}
THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
MOST_DIGITS = 1_000
LARGEST = 5_000
"""Largest number that is an exponent, or the argument of a growing function."""
DIGITS = 40
"""Digits to which numbers are compared."""


class Unreadable(Exception):
    """No expression of the kind that is read."""


def expression(text: str) -> Any:
    """The expression that `text` is, which may be a number with commas between its thousands."""
    if THOUSANDS.fullmatch(text.strip()):
        text = text.replace(",", "")
    try:
        return _of(ast.parse(text.replace("^", "**").strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, TypeError, OverflowError) as error:
        raise Unreadable(str(error)) from error


def _of(node: ast.expr) -> Any:
    import sympy

    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            text = ast.unparse(node)
            if len(text) > MOST_DIGITS:
                raise Unreadable("a long number")
            return sympy.Rational(text) if isinstance(value, int) else sympy.Float(text)
        case ast.Name(id=name):
            return getattr(sympy, CONSTANTS[name]) if name in CONSTANTS else sympy.Symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_of(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _of(operand)
        case ast.BinOp(left=left, op=operator, right=right):
            return _combined(operator, _of(left), _of(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            name = OTHER_NAMES.get(name, name)
            if name not in (*FUNCTIONS, *GROWING):
                raise Unreadable(f"the function {name}")
            given = [_of(argument) for argument in arguments]
            return getattr(sympy, name)(*(map(_small, given) if name in GROWING else given))
    raise Unreadable(type(node).__name__)


def _small(value: Any) -> Any:
    """The value, unless it is a number with which a power or a factorial takes forever."""
    if value.is_number and not value.free_symbols and abs(value.evalf(5)) > LARGEST:
        raise Unreadable("a large number")
    return value


def _combined(operator: ast.operator, left: Any, right: Any) -> Any:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case ast.Pow():
            return left ** _small(right)
    raise Unreadable(type(operator).__name__)


def equal(one: Any, other: Any) -> bool:
    import sympy

    difference = one - other
    if difference.has(sympy.nan, sympy.zoo, sympy.oo):
        return False
    if not difference.free_symbols:
        scale = max(abs(other.evalf(DIGITS)), 1)
        return bool(abs(difference.evalf(DIGITS, maxn=1_000)) < scale * sympy.Float(10) ** (-DIGITS + 10))
    return bool(sympy.simplify(difference) == 0)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, 2 * CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    right = expression(sys.argv[1])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    try:
        same = equal(expression(sys.argv[2]), right)
    except Unreadable:
        same = False
    sys.stdout.write("same\n" if same else "different\n")


if __name__ == "__main__":
    main()
