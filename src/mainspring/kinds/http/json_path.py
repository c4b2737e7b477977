"""Evaluates the JSONPath of a success rule within a budget. A hostile answer must not occupy the worker.

Import it only when a rule has a path: the library takes 30 ms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jsonpath_rfc9535
import msgspec
from jsonpath_rfc9535 import JSONPathError, JSONPathNode, JSONPathQuery
from jsonpath_rfc9535.filter_expressions import Expression, FilterContext, FilterExpression, FilterQuery
from jsonpath_rfc9535.selectors import FilterSelector

from mainspring.domain.texts import shown
from mainspring.kinds.http.call import SuccessRule

MOST_STEPS = 1_000_000  # 2 to 4 s of CPU
_DEPTH_OF_A_STEP = 10


class OutOfBudget(Exception):
    """The evaluation has taken too many steps, or no attempt waits for it any more."""


class Budget:
    """The steps that an evaluation may still take. Another thread may stop it."""

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self._left = steps
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._stopped or self._left < 0:
            raise OutOfBudget


def path_fault(rule: SuccessRule, value: Any, budget: Budget) -> str | None:
    """Why the value does not fulfil the rule. None if it does."""
    assert rule.json is not None
    first: Any = msgspec.UNSET
    try:
        for node in _find(rule.json, value, budget):
            if rule.equals is msgspec.UNSET or same(node.value, rule.equals):
                return None
            first = node.value if first is msgspec.UNSET else first
    except OutOfBudget:
        return f"{rule.json} was not looked up to the end: success.json takes more than {MOST_STEPS} steps in this body"
    except (JSONPathError, RecursionError) as error:
        return f"{rule.json} cannot be looked up: {error}"
    if first is msgspec.UNSET:
        return f"{rule.json} finds nothing"
    return f"{rule.json} is {_as_json(first)}, not {_as_json(rule.equals)}"


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1, and 1 is 1.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


class _Node(JSONPathNode):
    """The library makes every node from its parent, so the nodes can count. A node pays for the loop over its children,
    because a loop that finds nothing makes no node, and for its depth, because each node contains its path."""

    __slots__ = ("budget",)

    budget: Budget

    def new_child(self, value: object, key: int | str, parent: JSONPathNode | None) -> JSONPathNode:
        child = _Node(value=value, location=(*self.location, key), parent=parent, root=self.root)
        child.budget = self.budget
        size = len(value) if isinstance(value, (list, dict)) else 0
        self.budget.spend(1 + size + len(self.location) // _DEPTH_OF_A_STEP)
        return child


class _Query(JSONPathQuery):
    __slots__ = ("budget",)

    budget: Budget

    def finditer(self, value: Any) -> Iterable[JSONPathNode]:
        root = _Node(value=value, location=(), parent=None, root=value)
        root.budget = self.budget
        size = len(value) if isinstance(value, (list, dict)) else 0
        self.budget.spend(1 + size + len(self.segments))
        nodes: Iterable[JSONPathNode] = [root]
        for segment in self.segments:
            nodes = segment.resolve(nodes)
        return nodes


class _Filter(FilterExpression):
    """A filter that pays for each comparison, also if there is nothing to look up."""

    __slots__ = ("budget", "steps")

    def __init__(self, expression: FilterExpression, budget: Budget) -> None:
        super().__init__(expression.token, expression.expression)
        self.budget = budget
        self.steps = _count_in(expression, budget)

    def evaluate(self, context: FilterContext) -> bool:
        self.budget.spend(self.steps)
        return super().evaluate(context)


def _find(path: str, value: Any, budget: Budget) -> Iterable[JSONPathNode]:
    return _counted(jsonpath_rfc9535.compile(path), budget).finditer(value)


def _counted(query: JSONPathQuery, budget: Budget) -> _Query:
    """Return the query with the budget applied to it, to its filters and to the queries in them."""
    for segment in query.segments:
        for selector in segment.selectors:
            if isinstance(selector, FilterSelector):
                selector.expression = _Filter(selector.expression, budget)
    counted = _Query(env=query.env, segments=query.segments)
    counted.budget = budget
    return counted


def _count_in(expression: Expression, budget: Budget) -> int:
    """Bound the queries in the expression. Returns how many parts it has."""
    if isinstance(expression, FilterQuery):
        expression.query = _counted(expression.query, budget)
    parts = [getattr(expression, name, None) for name in ("expression", "left", "right")]
    parts += getattr(expression, "args", ())
    return 1 + sum(_count_in(part, budget) for part in parts if isinstance(part, Expression))


def _as_json(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 100 else shown(text)
