"""Length expressions: ``limit * 1.03``, ``midpoint(limit, reach)``, ``first_known(pool, 2 * context)``.

Parsed by Python's own grammar and evaluated over a short list of node types; nothing is ever executed.
A name whose value is not known makes the expression unknown, unless ``first_known`` has another choice.
"""

import ast
import difflib
import math
import operator
from collections.abc import Callable, Mapping, Sequence

from kvcanary.errors import ConfigError

Value = float | None
Variables = Mapping[str, Value]

MAX_SHOWN = 200
"""Characters of an expression that an error repeats."""

NAMES = (
    "context",
    "page",
    "limit",
    "reach",
    "output",
    "window",
    "pool",
    "prefill.pool",
    "decode.pool",
)
"""What an expression may speak of, all in tokens. ``limit``: the longest prompt that every worker accepts;
``reach``: the longest that the context leaves room for, output included; ``window``: 1 when prompts longer
than ``limit`` are within ``reach``, else 0."""

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def _midpoint(values: Sequence[Value]) -> Value:
    known = [v for v in values if v is not None]
    return sum(known) / 2 if len(known) == 2 else None


def _all_known(function: Callable[[list[float]], float]) -> Callable[[Sequence[Value]], Value]:
    def apply(values: Sequence[Value]) -> Value:
        known = [v for v in values if v is not None]
        return function(known) if known and len(known) == len(values) else None

    return apply


_FUNCTIONS: dict[str, Callable[[Sequence[Value]], Value]] = {
    "min": _all_known(min),
    "max": _all_known(max),
    "midpoint": _midpoint,
    "first_known": lambda values: next((v for v in values if v is not None), None),
}


def evaluate(expression: str, variables: Variables) -> Value:
    """The value in tokens, or None when it depends on something unknown.

    Raises ConfigError naming the nearest valid word when the expression is not one of these.
    """
    try:
        tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ConfigError(f"`{_shown(expression)}` is not a length expression.") from None
    try:
        value = _value(tree, variables, expression)
    except (ZeroDivisionError, OverflowError, RecursionError):
        raise ConfigError(f"`{_shown(expression)}` has no value.") from None
    if value is not None and not math.isfinite(value):
        raise ConfigError(f"`{_shown(expression)}` has no value.")
    return value


def _shown(expression: str) -> str:
    return expression if len(expression) <= MAX_SHOWN else expression[:MAX_SHOWN] + "..."


def _value(node: ast.expr, variables: Variables, expression: str) -> Value:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.BinOp(left, op, right) if type(op) in _BINARY:
            one, two = _value(left, variables, expression), _value(right, variables, expression)
            return None if one is None or two is None else _BINARY[type(op)](one, two)
        case ast.UnaryOp(ast.Not(), operand):
            inner = _value(operand, variables, expression)
            return None if inner is None else float(not inner)
        case ast.Call(ast.Name(name), arguments, []) if name in _FUNCTIONS:
            if not arguments or (name == "midpoint" and len(arguments) != 2):
                takes = "two values" if name == "midpoint" else "one value or more"
                raise ConfigError(f"`{_shown(expression)}`: `{name}` takes {takes}.")
            return _FUNCTIONS[name]([_value(a, variables, expression) for a in arguments])
        case ast.Name() | ast.Attribute(ast.Name()):
            return _variable(ast.unparse(node), variables, expression)
        case ast.Call(ast.Name(name)) if name not in _FUNCTIONS:
            raise ConfigError(_unknown("function", name, _FUNCTIONS, expression))
    raise ConfigError(
        f"`{_shown(expression)}`: `{_shown(ast.unparse(node))}` is not allowed in a length expression "
        "(numbers, + - * / //, not, min, max, midpoint, first_known)."
    )


def _variable(name: str, variables: Variables, expression: str) -> Value:
    if name not in NAMES:
        raise ConfigError(_unknown("name", name, NAMES, expression))
    return variables.get(name)


def _unknown(kind: str, name: str, valid: Mapping[str, object] | Sequence[str], where: str) -> str:
    nearest = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.0)[0]
    return f"`{_shown(where)}`: there is no {kind} `{_shown(name)}`; did you mean `{nearest}`?"
