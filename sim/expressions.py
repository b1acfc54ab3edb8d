"""Golden expressions as text, such as ``"a * b + 0.5"``: parsed by rules of our own into functions, never eval'ed."""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Collection
from typing import NoReturn

import torch

__all__ = ["Expression"]

_BINARY: dict[type[ast.operator], Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_LONGEST, _DEEPEST, _LARGEST_EXPONENT = 1000, 200, 64
_ALLOWED = (
    "there may be names of operands, numbers, + - * /, - of one operand, ** with a whole exponent, and parentheses"
)
# What the operations of units are called: expressions of this form have the stimulus that was made for these.
_NAMES = {"x + y": "add", "x - y": "sub", "x * y": "mul", "x / y": "div", "x ** 2": "square", "x * x": "square"}


class Expression:
    """A function of LNSTensors, written as in Python.

    There are names of operands, finite numbers, which become words of the operands' format where they meet one, ``+``,
    ``-``, ``*``, ``/``, ``-x``, ``x ** n`` with a whole number n from -64 to 64, and parentheses; nothing else, so a
    text can do nothing but arithmetic. Each operation is one of the arithmetic, with its rounding and its flags.

    Parameters
    ----------
    text : str
    operands : collection of str, optional
        The names that there may be; by default any.

    Attributes
    ----------
    names : tuple of str
        The operands, in the order in which they appear: that of the function's arguments.
    operation : str
        What a unit calls the operation if it is a single one that units have, as "mul"; otherwise the text.

    Raises
    ------
    ValueError
        Anything else; the message says where, and what is allowed.

    Examples
    --------
    >>> from xlnstorch import lns16, lnstensor
    >>> expression = Expression("(a - b) * 2")
    >>> expression.names, expression.operation
    (('a', 'b'), '(a - b) * 2')
    >>> expression(lnstensor([8.0], format=lns16), lnstensor([4.0], format=lns16)).tolist()
    [8.0]
    """

    def __init__(self, text: str, operands: Collection[str] | None = None):
        self.text = text = text.strip()
        self._operands = operands
        self._names: dict[str, None] = {}
        tree = _parsed(text)
        self._function = self._compiled(tree, 0)
        if not callable(self._function):
            raise ValueError(f"the expression {text!r} has no operand")
        self.names = tuple(self._names)
        stand_ins = dict(zip(self.names, "xyz", strict=False))
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = stand_ins.get(node.id, "more")
        self.operation = _NAMES.get(ast.unparse(tree), text)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __call__(self, *operands: torch.Tensor) -> torch.Tensor:
        """Return the value for operands in the order of `names`."""
        if len(operands) != len(self.names):
            raise TypeError(f"the operands must be {', '.join(self.names)}, not {len(operands)} tensors")
        return self._function(dict(zip(self.names, operands, strict=True)))

    def _compiled(self, node: ast.expr, depth: int) -> Callable[[dict], torch.Tensor] | float:
        """Return a function of the operands by name, or a number."""
        if depth > _DEEPEST:
            raise ValueError(f"the expression is nested more than {_DEEPEST} deep; compute a part of it elsewhere")
        match node:
            case ast.Name(id=name):
                if self._operands is not None and name not in self._operands:
                    self._refuse(node, f"{name!r} is none of the operands {', '.join(self._operands)}")
                self._names[name] = None
                return operator.itemgetter(name)
            case ast.Constant():
                return self._number(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                x = self._compiled(operand, depth + 1)
                return (lambda values: -x(values)) if callable(x) else -x
            case ast.BinOp(op=ast.Pow()):
                base, exponent = self._compiled(node.left, depth + 1), self._exponent(node.right)
                if not callable(base):
                    self._refuse(node, "a power of a number is a number: write this")
                return lambda values: base(values) ** exponent
            case ast.BinOp(op=kind) if type(kind) in _BINARY:
                left, right = self._compiled(node.left, depth + 1), self._compiled(node.right, depth + 1)
                if not callable(left) and not callable(right):
                    self._refuse(node, "an operation of two numbers is a number: write this")
                return _applied(_BINARY[type(kind)], left, right)
        self._refuse(node, f"{_what(node)} is not allowed: {_ALLOWED}")

    def _number(self, node: ast.Constant) -> float:
        if type(node.value) not in (int, float):
            self._refuse(node, f"{node.value!r} is not allowed: {_ALLOWED}")
        try:
            number = float(node.value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self._refuse(node, "the number is too large for a float64")
        return number

    def _exponent(self, node: ast.expr) -> int:
        negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        number = node.operand if negative else node
        if not isinstance(number, ast.Constant) or type(number.value) is not int or number.value > _LARGEST_EXPONENT:
            self._refuse(node, f"an exponent must be a whole number from -{_LARGEST_EXPONENT} to {_LARGEST_EXPONENT}")
        return -number.value if negative else number.value

    def _refuse(self, node: ast.expr, why: str) -> NoReturn:
        raise ValueError(f"the expression {self.text!r} at column {node.col_offset + 1}: {why}")


def _applied(function: Callable, left: Callable | float, right: Callable | float) -> Callable[[dict], torch.Tensor]:
    """Return the function of what the two sides give; one of them may be a number."""
    if not callable(left):
        return lambda values: function(left, right(values))
    if not callable(right):
        return lambda values: function(left(values), right)
    return lambda values: function(left(values), right(values))


def _what(node: ast.expr) -> str:
    if isinstance(node, ast.BinOp | ast.UnaryOp):
        return f"the operator {type(node.op).__name__}"
    names = {ast.Call: "a call", ast.Attribute: "an attribute", ast.Compare: "a comparison", ast.Subscript: "an index"}
    return names.get(type(node), f"what Python calls {type(node).__name__}")


def _parsed(text: str) -> ast.expr:
    """Return the syntax tree of a text, which parsing does not run."""
    if len(text) > _LONGEST:
        raise ValueError(f"an expression must have at most {_LONGEST} characters, not {len(text)}")
    if not text.isascii() or not text.isprintable():
        raise ValueError(f"an expression must be one line of ASCII, not {text!r}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(
            f"the expression {text!r} at column {error.offset or len(text) + 1}: {error.msg}; {_ALLOWED}"
        ) from None
    except (RecursionError, MemoryError):
        raise ValueError(f"the expression {text[:40]!r}… is nested too deeply") from None
