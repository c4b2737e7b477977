"""Conditions on events: a bounded part of CEL."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.domain.conditions.condition import Condition, NoAnswer
from mainspring.domain.errors import InvalidInput

PAYLOAD = {
    "total": 120, "country": "DE", "ratio": 0.5, "items": [{"n": 1}, {"n": 7}], "none": None, "vip": True, "in": 1,
    "tags": ["a", "b"], "deep": {"a": {"b": "c"}},
}  # fmt: skip
EVENT = {"payload": PAYLOAD, "name": "order.paid", "key": "42", "id": "evt-1"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("payload.total > 100 && payload.country in ['DE', 'FR']", True),
        ("payload.total == 120.0 && payload.total != 121", True),
        ("!(payload.total < 100) || false", True),
        ("payload.missing > 1 || true", True),
        ("true || payload.missing > 1", True),
        ("false && payload.missing > 1", False),
        ("has(payload.country) && !has(payload.missing)", True),
        ("payload.none == null && payload.vip", True),
        ("payload.items.exists(i, i.n > 5) && payload.items.all(i, i.n > 0)", True),
        ("payload.items.exists_one(i, i.n > 5) && payload.items.filter(i, i.n > 5).size() == 1", True),
        ("payload.items.map(i, i.n * 2) == [2, 14]", True),
        ("payload['deep']['a'].b == 'c' && payload.items[1].n == 7", True),
        ("'deep' in payload && size(payload.tags) == 2", True),
        ("payload.country.startsWith('D') && payload.country.endsWith('E') && 'order.paid'.contains('.')", True),
        ("key == '42' && name == \"order.paid\" && id.startsWith('evt')", True),
        ("-7 / 2 == -3 && -7 % 2 == -1 && 7 - 2 * 3 == 1", True),
        ("payload.total > 100 ? payload.vip : false", True),
        ("string(payload.total) + 'x' == '120x' && int('7') == 7 && double(1) / 2 == 0.5", True),
        (r"'a\'b\u0041' == \"a'bA\" && r'\n' == '\\n'", True),
        ("{'a': 1}.a == 1 && 1 == 1.0 && true != 1", True),
    ],
)  # fmt: skip
def test_conditions_have_the_answers_of_cel(text: str, expected: bool) -> None:
    assert Condition(text.replace('\\"', '"')).matches(EVENT) is expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("payload.missing > 1", "there is no missing"),
        ("payload.country > 1", "a text > a number"),
        ("payload.total", "a number, and not true or false"),
        ("payload.items[9].n == 1", "no item 9"),
        ("1 / 0 == 1", "no answer"),
        ("9223372036854775807 + 1 > 0", "64 bits"),
        ("payload.total.x == 1", ".x needs a map"),
        ("payload.tags.all(a, payload.tags.all(b, " * 12 + "true" + "))" * 12, "steps"),
    ],
)
def test_what_has_no_answer_says_why(text: str, why: str) -> None:
    with pytest.raises(NoAnswer, match=why):
        Condition(text).matches(EVENT)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "ends too early"),
        ("payload.total >", "ends too early"),
        ("payload.total = 1", "means nothing"),
        ("payload.total > 1)", "not expected"),
        ("total > 1", "names 'total'"),
        ("payload.name.matches('a+')", "no function .matches"),
        ("open('x')", "no function 'open'"),
        ("has(payload)", "has.. takes one field"),
        ("payload.all(1, true)", "takes a name and a condition"),
        ("'a\\q' == ''", "the escape"),
        ("(" * 100 + "true" + ")" * 100, "nested more than"),
        ("true" + " && true" * 240 + " && " + "1 + 1 == 2 && " * 100 + "true", "characters|parts"),
        ("x" * 2001, "2001 characters"),
        ("__import__('os')", "no function"),
    ],
)  # fmt: skip
def test_what_is_no_condition_is_refused_with_the_place(text: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as refused:
        Condition(text)
    assert refused.value.field == "schedule.if" and refused.value.code == "invalid_condition"


def test_a_large_list_ends_with_the_steps_and_not_with_the_time() -> None:
    large: dict[str, Any] = {**EVENT, "payload": {"xs": list(range(5000))}}
    with pytest.raises(NoAnswer, match="steps"):
        Condition("payload.xs.all(a, payload.xs.all(b, a + b >= 0))").matches(large)
    with pytest.raises(NoAnswer, match=r"steps|longer"):
        Condition("payload.xs.map(a, payload.xs).size() + payload.xs.map(a, 'x' + string(a)).size() > 0").matches(large)
