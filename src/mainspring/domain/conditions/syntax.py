"""Reads a condition: text to tokens, and tokens to a tree. Its size and depth are bounded.

Nodes are tuples with their kind first: ("literal", value), ("name", text), ("select", node, field), ("call", name,
target or None, arguments), ("unary", operator, node), ("binary", operator, left, right), ("choice", node, yes, no),
("list", nodes), ("map", pairs).
"""

from __future__ import annotations

import re
from typing import Any

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown
from mainspring.wire.events import LONGEST_CONDITION

Node = tuple[Any, ...]

_DEEPEST = 40
_MOST_NODES = 500
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>(?:0x[0-9a-fA-F]+|\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+)(?![\w.]))
    |(?P<text>r?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "`": "`", "?": "?"}
# By how tightly they bind, the loosest first.
_LEVELS = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
_WORDS = {"true": True, "false": False, "null": None}


def bad_condition(why: str, field: str, hint: str | None = None) -> InvalidInput:
    return InvalidInput(why, code="invalid_condition", field=field, hint=hint)


def parse(text: str, field: str) -> Node:
    """Raises InvalidInput, which names the place."""
    if len(text) > LONGEST_CONDITION:
        raise bad_condition(f"the condition has {len(text)} characters", field, f"write at most {LONGEST_CONDITION}")
    return _Parser(text, field).whole()


class _Parser:
    def __init__(self, text: str, field: str) -> None:
        self._field = field
        self._tokens = self._split(text)
        self._place = self._depth = self._nodes = 0

    def whole(self) -> Node:
        found = self._choice()
        if self._token[0] != "end":
            raise self._unexpected()
        return found

    def _split(self, text: str) -> list[tuple[str, str, int]]:
        tokens, place = [], 0
        while text[place:].strip():
            found = _TOKEN.match(text, place)
            if found is None:
                start = place + len(text[place:]) - len(text[place:].lstrip())
                raise bad_condition(
                    f"{shown(text[start : start + 10])} at character {start + 1} of the condition means nothing",
                    self._field, "operators are && || ! == != < <= > >= in + - * / % and ? :",
                )  # fmt: skip
            kind = found.lastgroup or ""
            tokens.append((kind, found.group(kind), found.start(kind) + 1))
            place = found.end()
        return [*tokens, ("end", "", len(text) + 1)]

    @property
    def _token(self) -> tuple[str, str, int]:
        return self._tokens[self._place]

    def _unexpected(self) -> InvalidInput:
        kind, text, place = self._token
        if kind == "end":
            return bad_condition("the condition ends too early", self._field, "such as payload.total > 100")
        hint = "equality is ==" if text == "=" else None
        return bad_condition(f"{shown(text)} at character {place} of the condition is not expected", self._field, hint)

    def _take(self, *signs: str) -> str | None:
        kind, text, _ = self._token
        if text in signs and (kind == "sign" or text == "in"):
            self._place += 1
            return text
        return None

    def _need(self, sign: str) -> None:
        if self._take(sign) is None:
            raise self._unexpected()

    def _name(self) -> str:
        kind, text, _ = self._token
        if kind != "name":
            raise self._unexpected()
        self._place += 1
        return text

    def _made(self, *node: Any) -> Node:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise bad_condition(f"the condition has more than {_MOST_NODES} parts", self._field, "write a shorter one")
        return node

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise bad_condition(f"the condition is nested more than {_DEEPEST} deep", self._field)
        found = self._binary(0)
        if self._take("?"):
            yes = self._choice()
            self._need(":")
            found = self._made("choice", found, yes, self._choice())
        self._depth -= 1
        return found

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        found = self._binary(level + 1)
        while (sign := self._take(*_LEVELS[level])) is not None:
            found = self._made("binary", sign, found, self._binary(level + 1))
        return found

    def _unary(self) -> Node:
        signs = []
        while (sign := self._take("!", "-")) is not None:
            signs.append(sign)
        found = self._member()
        for sign in reversed(signs):
            found = self._made("unary", sign, found)
        return found

    def _member(self) -> Node:
        found = self._primary()
        while True:
            if self._take("."):
                name = self._name()
                if self._take("("):
                    found = self._made("call", name, found, self._items(")"))
                else:
                    found = self._made("select", found, name)
            elif self._take("["):
                found = self._made("binary", "[]", found, self._choice())
                self._need("]")
            else:
                return found

    def _items(self, end: str) -> tuple[Node, ...]:
        items: list[Node] = []
        while self._take(end) is None:
            if items:
                self._need(",")
            items.append(self._choice())
        return tuple(items)

    def _primary(self) -> Node:
        kind, text, _ = self._token
        if kind == "number":
            self._place += 1
            whole = text.isdigit() or text.startswith("0x")
            return self._made("literal", int(text, 0 if text.startswith("0x") else 10) if whole else float(text))
        if kind == "text":
            self._place += 1
            return self._made("literal", self._unquoted(text))
        if kind == "name" and text != "in":
            self._place += 1
            if text in _WORDS:
                return self._made("literal", _WORDS[text])
            return self._made("call", text, None, self._items(")")) if self._take("(") else self._made("name", text)
        if self._take("("):
            found = self._choice()
            self._need(")")
            return found
        if self._take("["):
            return self._made("list", self._items("]"))
        if self._take("{"):
            pairs: list[tuple[Node, Node]] = []
            while self._take("}") is None:
                if pairs:
                    self._need(",")
                name = self._choice()
                self._need(":")
                pairs.append((name, self._choice()))
            return self._made("map", tuple(pairs))
        raise self._unexpected()

    def _unquoted(self, text: str) -> str:
        if text[0] == "r":
            return text[2:-1]
        return _ESCAPE.sub(self._escaped, text[1:-1])

    def _escaped(self, found: re.Match[str]) -> str:
        what = found.group(1)
        if len(what) > 1:
            return chr(int(what[1:], 16))
        if what not in _ESCAPES:
            raise bad_condition(
                f"the escape \\{what} is not known", self._field, 'write \\\\ for a backslash, or r"..."'
            )
        return _ESCAPES[what]
