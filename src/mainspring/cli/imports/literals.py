"""Values in the syntax tree of a Python file. The file is not executed: what is not a literal is refused."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_LARGEST = 10**12


class NotLiteral(ValueError):
    """The value is known only when the file runs."""


class Literals:
    """calls: what the calls of functions with these names mean. names: values of module variables."""

    def __init__(self, calls: Mapping[str, Callable[..., Any]]) -> None:
        self._calls = {"timedelta": timedelta, **calls}
        self.names: dict[str, Any] = {}

    def learn(self, tree: ast.Module) -> None:
        """Learn the variables of the module that are literals."""
        for node in tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                try:
                    self.names[node.targets[0].id] = self.value(node.value)
                except NotLiteral:
                    self.names.pop(node.targets[0].id, None)

    def value(self, node: ast.expr) -> Any:
        """Raises NotLiteral."""
        match node:
            case ast.Constant():
                return node.value
            case ast.List() | ast.Tuple() | ast.Set():
                return [self.value(one) for one in node.elts]
            case ast.Dict():
                return {
                    self.value(key): self.value(value)
                    for key, value in zip(node.keys, node.values, strict=True)
                    if key is not None
                }
            case ast.Name() if node.id in self.names:
                return self.names[node.id]
            case ast.UnaryOp(op=ast.USub()):
                return -self._number(node.operand)
            case ast.BinOp() if type(node.op) in _OPERATORS:
                return self._bounded(_OPERATORS[type(node.op)](self._number(node.left), self._number(node.right)))
            case ast.Call():
                return self._call(node)
        raise NotLiteral(ast.unparse(node))

    def _call(self, node: ast.Call) -> Any:
        called = self._calls.get(name_of(node.func))
        if called is None or any(keyword.arg is None for keyword in node.keywords):
            raise NotLiteral(ast.unparse(node))
        given = {keyword.arg or "": self.value(keyword.value) for keyword in node.keywords}
        try:
            return called(*(self.value(one) for one in node.args), **given)
        except (TypeError, ValueError, OverflowError):
            raise NotLiteral(ast.unparse(node)) from None

    def _number(self, node: ast.expr) -> Any:
        found = self.value(node)
        if not isinstance(found, int | float | timedelta):
            raise NotLiteral(ast.unparse(node))
        return found

    def _bounded(self, found: Any) -> Any:
        if isinstance(found, int | float) and abs(found) > _LARGEST:
            raise NotLiteral("a large number")
        return found


def name_of(node: ast.expr) -> str:
    """The last name of `a.b.c`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
