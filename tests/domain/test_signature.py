"""Payloads are checked against the schema that a task declares, never more strictly than the task checks them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Meta

from mainspring import BadPayload, Mainspring, Task
from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.signature import Signature, read_signature


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Lenient(Enum):
    KNOWN = "known"

    @classmethod
    def _missing_(cls, value: object) -> Lenient:
        return cls.KNOWN


class Card(msgspec.Struct, tag="card"):
    number: str
    cents: int = 0


class Cash(msgspec.Struct, tag="cash", forbid_unknown_fields=True):
    coins: list[int]


class Tree(msgspec.Struct):
    name: str
    children: list[Tree] = []


class Pair(NamedTuple):
    left: int
    right: int = 0


class Row(msgspec.Struct, array_like=True):
    left: int
    right: str = ""


class Options(TypedDict, total=False):
    deep: bool


@dataclasses.dataclass
class Item:
    id: UUID
    count: int = 1


# Types that the schema describes completely: the check and the task must agree on every payload.
EXACT: list[Any] = [
    int, float, str, bool, None, date, UUID, Colour, Item, Options, Tree, Literal["a", 1, None], int | None,
    list[int], dict[str, int], tuple[int, str], list[Item], Card | Cash, Card | Cash | None, str | int,
    list[dict[str, int | None]], Decimal, timedelta, datetime, bytes, Any, dict[str, list[Colour]],
    Annotated[int, Meta(ge=1, lt=5)], Annotated[str, Meta(min_length=2, max_length=3)], Annotated[float, Meta(gt=0)],
    Annotated[list[int], Meta(min_length=1, max_length=2)], Annotated[int, Meta(multiple_of=3)],
]  # fmt: skip
# Types that it describes partly: the check may accept more than the task.
PARTLY: list[Any] = [
    set[str], Annotated[set[int], Meta(max_length=1)], Lenient, Pair, Row, dict[int, str], Card, tuple[int, ...],
    Annotated[str, Meta(pattern="^a+$")], list[datetime], frozenset[int], Annotated[datetime, Meta(tz=True)],
    dict[Annotated[str, Meta(min_length=2)], int], Annotated[dict[str, int], Meta(max_length=1)],
]  # fmt: skip

LEAVES: list[Any] = [
    None, True, 0, 1, 2, 3, 4, 6, -1, 1.5, 3.0, 2**70, "", "a", "ab", "aaa", "abcd", "red", "known", "none of them",
    "1", "1.50", "2026-01-02", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05", "P1D", "YWJj", [], {}, [1, "x"], [1, 1],
    ["a", "a"], [1], [1, 2, 3], {"a": 1}, {"ab": 1, "c": 2}, {"1": "x"}, {"deep": True}, {"deep": 1},
    "00000000-0000-0000-0000-000000000001", {"id": "00000000-0000-0000-0000-000000000001"}, {"id": "no"},
    {"type": "card", "number": "4"}, {"number": "4"}, {"type": "cash", "coins": [1]}, {"type": "cash", "coin": [1]},
    {"type": "cash", "coins": [1], "note": 1}, {"type": "cheque"}, {"name": "root", "children": [{"name": "leaf"}]},
    {"name": "root", "children": [{"children": []}]}, {"name": "r", "children": [{"name": "l", "children": [1]}]},
]  # fmt: skip
values = st.sampled_from(LEAVES) | st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


def task_taking(takes: dict[str, tuple[Any, bool]], anything_else: bool = False) -> Task[..., Any]:
    """A task with these parameters: name, type, and whether it has a default."""
    parameters = [f"{name}=None" if optional else name for name, (_, optional) in takes.items()]
    space: dict[str, Callable[..., Any]] = {}
    exec(f"def pay(*, {', '.join([*parameters, *(['**more'] if anything_else else [])])}): ...", space)
    space["pay"].__annotations__ = {name: kind for name, (kind, _) in takes.items()}
    return Mainspring().task("pay")(space["pay"])


def signature_of(task: Task[..., Any]) -> Signature | None:
    """The signature as the server reads it."""
    return read_signature(task.name, msgspec.json.decode(msgspec.json.encode(task.payload_schema)))


def accepts(task: Task[..., Any], payload: str) -> bool:
    try:
        task.bind_json(payload.encode())
    except BadPayload:
        return False
    return True


def lets_through(signature: Signature | None, payload: str) -> bool:
    try:
        if signature is not None:
            signature.check(payload)
    except InvalidInput:
        return False
    return True


@st.composite
def calls(draw: st.DrawFn, kinds: list[Any]) -> tuple[Task[..., Any], dict[str, Any]]:
    names = draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, unique=True))
    takes = {name: (draw(st.sampled_from(kinds)), draw(st.booleans())) for name in names}
    given_names = draw(st.lists(st.sampled_from(["a", "b", "c", "other"]), unique=True))
    task = task_taking(takes, anything_else=draw(st.booleans()))
    return task, {name: draw(values) for name in given_names}


@given(calls(EXACT))
@example((task_taking({"a": (Card | Cash, False)}), {"a": {"type": "cash", "coins": [1], "note": 1}}))
def test_a_payload_is_let_through_exactly_when_the_task_takes_it(call: tuple[Task[..., Any], dict[str, Any]]) -> None:
    task, given_values = call
    payload = msgspec.json.encode(given_values).decode()
    assert lets_through(signature_of(task), payload) == accepts(task, payload) or deep(given_values)


def deep(given_values: dict[str, Any]) -> bool:
    """A recursive type, which is checked to its first level."""
    return "children" in str(given_values)


@given(calls([*EXACT, *PARTLY]))
@example((task_taking({"a": (Annotated[set[int], Meta(max_length=1)], False)}), {"a": [1, 1]}))
@example((task_taking({"a": (Lenient, False)}), {"a": "none of them"}))
@example((task_taking({"a": (Card, False)}), {"a": {"number": "4"}}))
def test_what_the_task_takes_is_never_refused(call: tuple[Task[..., Any], dict[str, Any]]) -> None:
    task, given_values = call
    payload = msgspec.json.encode(given_values).decode()
    assert lets_through(signature_of(task), payload) or not accepts(task, payload)


@pytest.mark.parametrize("kind", EXACT, ids=str)
def test_each_kind_of_parameter_is_checked_value_by_value(kind: Any) -> None:
    task = task_taking({"a": (kind, False)})
    signature = signature_of(task)
    for value in LEAVES:
        payload = msgspec.json.encode({"a": value}).decode()
        assert lets_through(signature, payload) == accepts(task, payload) or deep({"a": value}), value


def test_a_task_that_takes_anything_declares_nothing() -> None:
    def anything(**_payload: Any) -> None: ...

    assert Mainspring().task(anything).payload_schema is None


def test_a_task_without_parameters_takes_none() -> None:
    def nothing() -> None: ...

    task = Mainspring().task(nothing)
    signature = signature_of(task)
    assert signature is not None
    signature.check(None)
    with pytest.raises(InvalidInput, match="nothing has no parameter x") as refused:
        signature.check('{"x": 1}')
    assert refused.value.hint == "the task nothing takes no parameters"


def report(account: str, limit: int = 10, item: Item | None = None) -> None: ...


@pytest.mark.parametrize(
    ("payload", "field", "detail", "expected", "hint"),
    [
        (None, "payload.account", "report.generate needs the parameter account", None,
         "the task report.generate takes account and the optional limit, item"),
        ('{"acount": "a"}', "payload.acount", "report.generate has no parameter acount", None,
         "did you mean account?"),
        ('{"account": 5}', "payload.account",
         "the parameter account does not fit report.generate: expected str, got int", "str",
         "the task report.generate takes account and the optional limit, item"),
        ('{"account": "a", "item": {}}', "payload.item.id", "report.generate needs the parameter item.id", None,
         "the task report.generate takes account and the optional limit, item"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_parameter_and_what_the_task_takes(
    payload: str | None, field: str, detail: str, expected: str | None, hint: str
) -> None:
    signature = signature_of(Mainspring().task("report.generate")(report))
    assert signature is not None
    with pytest.raises(InvalidInput) as refused:
        signature.check(payload)
    error = refused.value
    assert (error.code, error.field, error.detail) == ("bad_payload", field, detail)
    assert (error.expected, error.hint) == (expected, hint)


@pytest.mark.parametrize(
    "schema",
    [
        {}, {"type": "tuple"}, {"type": 7}, {"type": "object", "properties": 5}, {"$ref": "#/$defs/Gone"},
        {"$ref": "https://elsewhere.example/schema"}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"anyOf": []}, {"anyOf": [1]}, {"allOf": [{"type": "string"}]}, {"not": {}}, {"enum": [1.5]}, {"enum": "x"},
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": "x"}}},
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "exclusiveMinimum": 0}}},
        {"type": "object", "additionalProperties": False, "patternProperties": {"^a$": {}}},
        {"anyOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object", "required": ["b"]}]},
        {"anyOf": [{"type": "object"}], "discriminator": {"propertyName": "kind"}},
        {"type": ["object", "null"], "properties": {"a": {"type": ["integer", "string", "array"]}}},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_understood_is_let_through(schema: dict[str, Any]) -> None:
    signature = read_signature("odd", schema)
    assert lets_through(signature, '{"a": 1}')


@pytest.mark.parametrize("schema", [None, 5, "text", [1]])
def test_what_is_no_schema_is_no_signature(schema: object) -> None:
    assert read_signature("odd", schema) is None


def test_a_refusal_names_the_choices() -> None:
    signature = read_signature(
        "paint", {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
    )
    assert signature is not None
    with pytest.raises(InvalidInput) as refused:
        signature.check('{"colour": "green"}')
    assert (refused.value.field, refused.value.expected) == ("payload.colour", "red or blue")


def test_patterns_are_left_to_the_worker() -> None:
    """A pattern that backtracks would block the submissions of all others."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(x+)+y$"}}}
    signature = read_signature("slow", schema)
    assert signature is not None
    signature.check(msgspec.json.encode({"a": "x" * 64}).decode())


def test_definitions_that_refer_to_each_other_many_times_over_are_read_once() -> None:
    """Ten levels of ten references are translated as ten definitions, not as 10**10."""
    levels = {
        f"d{level}": {"type": "object", "properties": {f"p{n}": {"$ref": f"#/$defs/d{level + 1}"} for n in range(10)}}
        for level in range(10)
    }
    schema = {"$ref": "#/$defs/d0", "$defs": {**levels, "d10": {"type": "integer"}}}
    assert lets_through(read_signature("wide", schema), '{"p0": {"p0": {"p9": {}}}}')
    assert not lets_through(read_signature("wide", schema), '{"p0": {"p0": 5}}')


def test_the_words_are_those_of_the_decoder() -> None:
    """The field of an error is parsed from msgspec's message, which must not change."""
    with pytest.raises(msgspec.ValidationError, match=re.escape("Object missing required field `number`")):
        msgspec.json.decode(b"{}", type=Card)


WORDS = [
    "type", "properties", "required", "enum", "const", "anyOf", "oneOf", "$ref", "$defs", "items", "prefixItems",
    "minItems", "maxItems", "uniqueItems", "additionalProperties", "discriminator", "propertyName", "minimum",
    "multipleOf", "minLength", "format", "a", "f0", "__class__", "string", "integer", "object", "array", "number",
    "null", "boolean", "#/$defs/a", "date-time", "",
]  # fmt: skip
odd_schemas = st.recursive(
    st.sampled_from([None, True, False, 0, 1, -1, 1.5, 2**80, *WORDS]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(WORDS), odd_schemas, max_size=6))
def test_no_schema_whatever_it_says_upsets_the_server(schema: dict[str, Any]) -> None:
    lets_through(read_signature("odd", {"type": "object", **schema}), '{"a": 1}')
