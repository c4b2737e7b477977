"""Conditions: evaluate a tree with the values of an event, in a bounded number of steps.

The language is a part of CEL (https://cel.dev): no protocol messages, timestamps, bytes and regular expressions, of
which the last can take very long. Numbers of JSON are compared and added whatever they are, and `&&` and `||` ignore an
error of one side if the other side decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from mainspring.domain.conditions.syntax import Node, bad_condition, parse
from mainspring.domain.texts import meant, shown

MOST_STEPS = 5_000
VARIABLES = ("payload", "name", "key", "id")

_LARGEST = 2**63
_LONGEST_TEXT = 256 * 1024
_CHARACTERS = 64  # of a text that count as a step
_MACROS = ("all", "exists", "exists_one", "filter", "map")
_METHODS = ("contains", "startsWith", "endsWith", "size")
_FUNCTIONS = ("size", "has", "string", "int", "double", "bool")


class NoAnswer(Exception):
    """The condition has no answer for these values: a field is missing, or values do not go together."""


class _Scope:
    __slots__ = ("left", "values")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)
        self.left = MOST_STEPS

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise _TooLong(f"it takes more than {MOST_STEPS} steps")


class _TooLong(NoAnswer):
    """No other part can make up for it."""


class Condition:
    """A condition that was read. `matches` raises NoAnswer."""

    def __init__(self, text: str, field: str = "schedule.if") -> None:
        self._tree = parse(text, field)
        _check(self._tree, frozenset(VARIABLES), field)

    def matches(self, values: Mapping[str, Any]) -> bool:
        found = _value(self._tree, _Scope(values))
        if not isinstance(found, bool):
            raise NoAnswer(f"it is {_kind(found)}, and not true or false")
        return found


@lru_cache(maxsize=4096)
def condition(text: str, field: str = "schedule.if") -> Condition:
    """Raises InvalidInput, which says what is wrong with the text."""
    return Condition(text, field)


def _check(node: Node, known: frozenset[str], field: str) -> None:
    """Raise InvalidInput if the tree names what there is not."""
    match node:
        case ("name", name) if name not in known:
            raise bad_condition(
                f"the condition names {shown(name)}, which is not known", field,
                meant(name, sorted(known), "known are payload, name, key and id of the event, such as payload.total"),
            )  # fmt: skip
        case ("call", name, target, arguments):
            _check_call(name, target, arguments, known, field)
        case ("list", items):
            for item in items:
                _check(item, known, field)
        case ("map", pairs):
            for pair in pairs:
                for part in pair:
                    _check(part, known, field)
        case _:
            for part in node[1:]:
                if isinstance(part, tuple):
                    _check(part, known, field)


def _check_call(name: str, target: Node | None, arguments: tuple[Node, ...], known: frozenset[str], field: str) -> None:
    if target is None:
        if name not in _FUNCTIONS:
            raise bad_condition(
                f"there is no function {shown(name)}", field, meant(name, _FUNCTIONS, f"known are {_list(_FUNCTIONS)}")
            )
        if len(arguments) != 1 or (name == "has" and arguments[0][0] != "select"):
            raise bad_condition(
                f"{name}() takes one {'field' if name == 'has' else 'value'}", field,
                "such as has(payload.country)" if name == "has" else None,
            )  # fmt: skip
    elif name in _MACROS:
        if len(arguments) != 2 or arguments[0][0] != "name":
            raise bad_condition(
                f".{name}() takes a name and a condition", field, "such as payload.items.exists(i, i > 1)"
            )
        _check(target, known, field)
        _check(arguments[1], known | {arguments[0][1]}, field)
        return
    elif name not in _METHODS:
        known_names = (*_METHODS, *_MACROS)
        raise bad_condition(
            f"there is no function .{name}()", field,
            "regular expressions are not supported" if name == "matches"
            else meant(name, known_names, f"known are {_list(known_names)}"),
        )  # fmt: skip
    elif len(arguments) != (name != "size"):
        raise bad_condition(f".{name}() takes {'one value' if name != 'size' else 'nothing'}", field)
    for part in (*arguments, *(() if target is None else (target,))):
        _check(part, known, field)


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _value(node: Node, scope: _Scope) -> Any:
    scope.spend()
    match node[0]:
        case "literal":
            return node[1]
        case "name":
            return scope.values[node[1]]
        case "select":
            return _field(_value(node[1], scope), node[2])
        case "binary":
            return _binary(node[1], node[2], node[3], scope)
        case "unary":
            return _unary(node[1], _value(node[2], scope))
        case "choice":
            return _value(node[2] if _truth(_value(node[1], scope), "?") else node[3], scope)
        case "list":
            return [_value(item, scope) for item in node[1]]
        case "map":
            return {_text(_value(name, scope)): _value(value, scope) for name, value in node[1]}
    return _call(node[1], node[2], node[3], scope)


def _binary(sign: str, left: Node, right: Node, scope: _Scope) -> Any:
    if sign in ("&&", "||"):
        return _either(sign, left, right, scope)
    one, other = _value(left, scope), _value(right, scope)
    match sign:
        case "==":
            return _equal(one, other, scope)
        case "!=":
            return not _equal(one, other, scope)
        case "in":
            if isinstance(other, dict):
                return isinstance(one, str) and one in other
            if not isinstance(other, list):
                raise NoAnswer(f"in needs a list or a map, and not {_kind(other)}")
            return any(_equal(one, item, scope) for item in other)
        case "[]":
            return _item(one, other)
        case "<" | "<=" | ">" | ">=":
            return _ordered(sign, one, other, scope)
    return _sum(sign, one, other, scope)


def _either(sign: str, left: Node, right: Node, scope: _Scope) -> bool:
    """Both sides may decide, whatever the other one is."""
    decides = sign == "||"
    problem: NoAnswer | None = None
    for side in (left, right):
        try:
            if _truth(_value(side, scope), sign) is decides:
                return decides
        except _TooLong:
            raise
        except NoAnswer as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return not decides


def _unary(sign: str, value: Any) -> Any:
    if sign == "!":
        return not _truth(value, sign)
    if not _is_number(value):
        raise NoAnswer(f"- needs a number, and not {_kind(value)}")
    return _bounded(-value)


def _call(name: str, target: Node | None, arguments: tuple[Node, ...], scope: _Scope) -> Any:
    if target is None and name == "has":
        select = arguments[0]
        parent = _value(select[1], scope)
        return isinstance(parent, dict) and select[2] in parent
    if name in _MACROS and target is not None:
        return _macro(name, _value(target, scope), arguments[0][1], arguments[1], scope)
    value = _value(arguments[0] if target is None else target, scope)
    if name == "size":
        if not isinstance(value, str | list | dict):
            raise NoAnswer(f"size needs a text, a list or a map, and not {_kind(value)}")
        return len(value)
    if target is None:
        return _converted(name, value)
    part = _value(arguments[0], scope)
    if not isinstance(value, str) or not isinstance(part, str):
        raise NoAnswer(f"{name} needs two texts, and not {_kind(value)} and {_kind(part)}")
    scope.spend((len(value) + len(part)) // _CHARACTERS)
    match name:
        case "contains":
            return part in value
        case "startsWith":
            return value.startswith(part)
    return value.endswith(part)


def _macro(name: str, values: Any, variable: str, body: Node, scope: _Scope) -> Any:
    if not isinstance(values, list | dict):
        raise NoAnswer(f"{name} needs a list or a map, and not {_kind(values)}")
    before = scope.values
    found: list[Any] = []
    problem: NoAnswer | None = None
    for value in values:
        scope.values = {**before, variable: value}
        try:
            result = _value(body, scope)
            if name == "map":
                found.append(result)
                continue
            if _truth(result, name):
                found.append(value)
                if name == "exists":
                    return True
            elif name == "all":
                return False
        except _TooLong:
            raise
        except NoAnswer as error:
            if name not in ("all", "exists"):
                raise
            problem = problem or error
        finally:
            scope.values = before
    if problem is not None:
        raise problem
    if name in ("map", "filter"):
        return found
    return len(found) == 1 if name == "exists_one" else name == "all"


def _converted(name: str, value: Any) -> Any:
    try:
        match name:
            case "string":
                if isinstance(value, bool):
                    return "true" if value else "false"
                if isinstance(value, str) or _is_number(value):
                    return str(value)
            case "int":
                if _is_number(value) or (isinstance(value, str) and len(value) <= 20):
                    return _bounded(int(value))
            case "double":
                if _is_number(value) or (isinstance(value, str) and len(value) <= 100):
                    return float(value)
            case "bool":
                if isinstance(value, bool) or value in ("true", "false"):
                    return value is True or value == "true"
    except (ValueError, OverflowError):
        pass
    raise NoAnswer(f"{name}() cannot be made of {_kind(value)}")


def _field(value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        raise NoAnswer(f".{name} needs a map, and not {_kind(value)}")
    if name not in value:
        raise NoAnswer(f"there is no {name}")
    return value[name]


def _item(value: Any, place: Any) -> Any:
    if isinstance(value, dict) and isinstance(place, str):
        return _field(value, place)
    if isinstance(value, list) and isinstance(place, int) and not isinstance(place, bool):
        if not 0 <= place < len(value):
            raise NoAnswer(f"the list has no item {place}")
        return value[place]
    raise NoAnswer(f"{_kind(value)} has no item {_kind(place)}")


def _equal(one: Any, other: Any, scope: _Scope) -> bool:
    scope.spend()
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_equal(a, b, scope) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(value, other[name], scope) for name, value in one.items())
    if isinstance(one, str) and isinstance(other, str):
        scope.spend(min(len(one), len(other)) // _CHARACTERS)
    return bool(one == other)


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def _ordered(sign: str, one: Any, other: Any, scope: _Scope) -> bool:
    if not (_is_number(one) and _is_number(other)) and not (isinstance(one, str) and isinstance(other, str)):
        raise NoAnswer(f"{_kind(one)} {sign} {_kind(other)} has no answer")
    if isinstance(one, str):
        scope.spend(min(len(one), len(other)) // _CHARACTERS)
    return _ORDERS[sign](one, other)


def _sum(sign: str, one: Any, other: Any, scope: _Scope) -> Any:
    if _is_number(one) and _is_number(other):
        return _bounded(_arithmetic(sign, one, other))
    joins = (isinstance(one, str) and isinstance(other, str)) or (isinstance(one, list) and isinstance(other, list))
    if sign == "+" and joins:
        size = len(one) + len(other)
        scope.spend(size if isinstance(one, list) else size // _CHARACTERS)
        if size > _LONGEST_TEXT:
            raise _TooLong(f"a value is longer than {_LONGEST_TEXT}")
        return one + other
    raise NoAnswer(f"{_kind(one)} {sign} {_kind(other)} has no answer")


def _arithmetic(sign: str, one: Any, other: Any) -> Any:
    try:
        match sign:
            case "+":
                return one + other
            case "-":
                return one - other
            case "*":
                return one * other
        if isinstance(one, float) or isinstance(other, float):
            if sign == "%":
                raise NoAnswer("% needs whole numbers")
            return one / other
        share = abs(one) // abs(other)
        share = share if (one < 0) is (other < 0) else -share
        return share if sign == "/" else one - share * other
    except (ZeroDivisionError, OverflowError):
        raise NoAnswer(f"{one} {sign} {other} has no answer") from None


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise NoAnswer("a whole number is larger than 64 bits")
    return value


def _truth(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise NoAnswer(f"{what} needs true or false, and not {_kind(value)}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise NoAnswer(f"a name in a map is a text, and not {_kind(value)}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, int | float):
        return "a number"
    return "a text" if isinstance(value, str) else "a list" if isinstance(value, list) else "a map"
