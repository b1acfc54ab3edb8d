import ast
import operator
import re

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.expressions import Expression
from xlnstorch import LNSTensor, from_words, lns16

WORDS = from_words(torch.tensor([0x4000, 0xC123, 0, 0x8000, 0x7FFF, 1, 0x3F77]), lns16)
A, B, C = WORDS, WORDS.flip(0), WORDS.roll(2)


@pytest.mark.parametrize(
    ("text", "operands", "value"),
    [
        ("a + b", "ab", lambda a, b: a + b),
        ("a-b", "ab", lambda a, b: a - b),
        ("b / a", "ba", lambda b, a: b / a),
        ("(a + b) * c", "abc", lambda a, b, c: (a + b) * c),
        ("a + b * c", "abc", lambda a, b, c: a + b * c),
        ("c - a - b", "cab", lambda c, a, b: (c - a) - b),
        ("-a ** 2", "a", lambda a: -(a**2)),
        ("(-a) ** -3", "a", lambda a: (-a) ** -3),
        ("2 * a - 0.75", "a", lambda a: 2 * a - 0.75),
        ("-1.5 / a", "a", lambda a: -1.5 / a),
        (" a ", "a", lambda a: a),
        ("a * a + a", "a", lambda a: a * a + a),
    ],
)
def test_it_computes_what_python_would_of_tensors(text, operands, value):
    expression = Expression(text)
    assert expression.names == tuple(operands)
    given = [{"a": A, "b": B, "c": C}[name] for name in operands]
    found = expression(*given)
    assert isinstance(found, LNSTensor)
    assert torch.equal(found.words, value(*given).words)


@pytest.mark.parametrize(
    ("text", "operation"),
    [
        ("x + y", "add"),
        ("(q)-r", "sub"),
        ("b*a", "mul"),
        ("y * x", "mul"),
        ("n / d", "div"),
        ("a*a", "square"),
        ("a ** 2", "square"),
        ("a / a", "a / a"),
        ("a ** 3", "a ** 3"),
        ("a * b * c", "a * b * c"),
        ("a + 1", "a + 1"),
    ],
)
def test_a_single_operation_is_called_as_units_call_it(text, operation):
    assert Expression(text).operation == operation


ALLOWED = (
    "there may be names of operands, numbers, + - * /, - of one operand, ** with a whole exponent, and parentheses"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a * f(b)", f"the expression 'a * f(b)' at column 5: a call is not allowed: {ALLOWED}"),
        ("a.data", f"the expression 'a.data' at column 1: an attribute is not allowed: {ALLOWED}"),
        ("a[0]", f"the expression 'a[0]' at column 1: an index is not allowed: {ALLOWED}"),
        ("a < b", f"the expression 'a < b' at column 1: a comparison is not allowed: {ALLOWED}"),
        ("a // b", f"the expression 'a // b' at column 1: the operator FloorDiv is not allowed: {ALLOWED}"),
        ("~a", f"the expression '~a' at column 1: the operator Invert is not allowed: {ALLOWED}"),
        ("a * True", f"the expression 'a * True' at column 5: True is not allowed: {ALLOWED}"),
        ("a * 'b'", f"the expression \"a * 'b'\" at column 5: 'b' is not allowed: {ALLOWED}"),
        ("a * 2j", f"the expression 'a * 2j' at column 5: 2j is not allowed: {ALLOWED}"),
        ("a * 1e999", "the expression 'a * 1e999' at column 5: the number is too large for a float64"),
        (f"a * {10**400}", f"the expression 'a * {10**400}' at column 5: the number is too large for a float64"),
        ("a * c", "the expression 'a * c' at column 5: 'c' is none of the operands a, b"),
        ("2 * 3 * a", "the expression '2 * 3 * a' at column 1: an operation of two numbers is a number: write this"),
        ("2 ** 3 * a", "the expression '2 ** 3 * a' at column 1: a power of a number is a number: write this"),
        ("a ** b", "the expression 'a ** b' at column 6: an exponent must be a whole number from -64 to 64"),
        ("a ** 0.5", "the expression 'a ** 0.5' at column 6: an exponent must be a whole number from -64 to 64"),
        ("a ** -65", "the expression 'a ** -65' at column 6: an exponent must be a whole number from -64 to 64"),
        ("7", "the expression '7' has no operand"),
        ("a *", f"the expression 'a *' at column 4: invalid syntax; {ALLOWED}"),
        ("", f"the expression '' at column 1: invalid syntax; {ALLOWED}"),
        ("a = b", None),
        ("lambda: a", None),
        ("a; b", None),
        ("a\nb", "an expression must be one line of ASCII, not 'a\\nb'"),
        ("ä", "an expression must be one line of ASCII, not 'ä'"),
        ("a" * 1001, "an expression must have at most 1000 characters, not 1001"),
        ("-" * 300 + "a", "the expression is nested more than 200 deep; compute a part of it elsewhere"),
        ("(" * 300 + "a" + ")" * 300, None),
    ],
)
def test_nothing_else_is_taken(text, message):
    with pytest.raises(ValueError, match=rf"^{re.escape(message)}$" if message else "^the expression"):
        Expression(text, ["a", "b"])


def test_the_number_of_operands_must_be_right():
    with pytest.raises(TypeError, match=r"^the operands must be a, b, not 1 tensors$"):
        Expression("a * b")(A)


PIECES = st.sampled_from(
    [*"ab +-*/()**1.e,[]{}:='\"@~<", "__import__", "('os')", ".system", "exec", "lambda", "if", "0x"]
)


@settings(deadline=None, derandomize=True, database=None)  # other tests run on the same cores
@given(st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=15).map("".join)))
@example("__import__('os').system('true')")
@example("(lambda: a)()")
@example("[a for a in b]")
@example("f'{a!r}'")
@example("a if b else a")
@example("1is a")
@example("\ud800")
@example("\0")
def test_any_text_is_a_function_or_a_value_error(text):
    """What is taken is names, numbers and arithmetic, and the function that Python makes of it."""
    try:
        expression = Expression(text, ["a", "b"])
    except ValueError:
        return
    tree = ast.parse(text.strip(), mode="eval")
    kinds = (ast.Expression, ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.USub)
    assert all(isinstance(node, kinds) for node in ast.walk(tree))
    assert {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} == set(expression.names) <= {"a", "b"}
    values = {"a": A, "b": B}
    known = operator.itemgetter(*expression.names)(values)
    found = expression(*(known if len(expression.names) > 1 else [known]))
    assert torch.equal(found.words, eval(compile(tree, "", "eval"), {"__builtins__": {}}, values).words)
