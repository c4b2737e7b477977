"""References in payloads: which objects they are, and what they become."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput
from mainspring.domain.workflows.definition import FromStep, StepMap
from mainspring.domain.workflows.references import (
    DEEPEST,
    Unresolved,
    Values,
    collect,
    is_deeper,
    mapped_list,
    may_refer,
    resolve,
    resolved_payload,
)

EXTRACTED = StepMap(source=FromStep("extract"))
RESULTS = {"extract": {"rows": [{"id": 7}], "none": None}, "empty": None}


def result(step: str) -> Any:
    if step not in RESULTS:
        raise Unresolved(f"{step} has no result")
    return RESULTS[step]


VALUES = Values(result, {"region": "eu"}, item={"name": "a"}, index=3, total=10)

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab.x", max_size=3), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=30)
@given(plain)
def test_what_has_no_reference_stays_as_it_is_and_so_does_a_literal(value: Any) -> None:
    assert collect(value) == []
    assert resolve(value, VALUES) == value
    tricky = {"$from": value, "$x": 1}
    assert resolve({"a": [{"$literal": tricky}]}, VALUES) == {"a": [tricky]}


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ({"$from": "extract", "path": "rows.0.id"}, 7),
        ({"$from": "extract", "path": "none"}, None),
        ({"$from": "empty"}, None),
        ({"$parameter": "region"}, "eu"),
        ({"$item": ""}, {"name": "a"}),
        ({"$item": "name"}, "a"),
        ({"$index": True}, 3),
        ({"$total": True}, 10),
    ],
)
def test_a_reference_becomes_its_value(given: dict[str, Any], becomes: Any) -> None:
    assert resolve({"x": [given]}, VALUES) == {"x": [becomes]}
    assert [reference.where for reference in collect({"x": [given]})] == ["payload.x[0]"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"$from": "extract", "path": "rows.1"}, '{"$from":"extract","path":"rows.1"}'),
        ({"$from": "extract", "path": "rows.id"}, "rows.id"),
        ({"$from": "empty", "path": "a"}, '"path":"a"'),
        ({"$from": "other"}, "other has no result"),
        ({"$parameter": "zone"}, '{"$parameter":"zone"}'),
        ({"$item": "size"}, '{"$item":"size"}'),
    ],
)
def test_a_value_that_is_missing_is_named(given: dict[str, Any], says: str) -> None:
    with pytest.raises(Unresolved) as caught:
        resolve({"x": given}, VALUES)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"$form": "extract"}, "payload.x"),
        ({"$from": "a", "$item": "b"}, "payload.x"),
        ({"$from": "a", "paths": "b"}, "payload.x.paths"),
        ({"$from": ""}, "payload.x.$from"),
        ({"$from": 1}, "payload.x.$from"),
        ({"$from": "a", "path": "b..c"}, "payload.x.path"),
        ({"$item": 1}, "payload.x.$item"),
        ({"$index": 0}, "payload.x.$index"),
    ],
)
def test_an_object_that_is_no_reference_is_refused_by_its_place(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        collect({"x": given})
    assert (caught.value.code, caught.value.field) == ("invalid_reference", field)


def test_a_payload_that_grows_too_large_or_is_no_object_is_not_passed_on() -> None:
    large = Values(lambda _: "x" * 300_000)
    with pytest.raises(Unresolved, match="at most 262144"):
        resolved_payload('{"x": {"$from": "a"}}', large)
    with pytest.raises(Unresolved, match="not an object"):
        resolved_payload('{"$from": "a"}', large)
    assert msgspec.json.decode(resolved_payload('{"$from": "extract"}', VALUES)) == RESULTS["extract"]


def nested(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def test_values_that_are_nested_too_deeply_end_the_step_and_nothing_else() -> None:
    def deep(_: str) -> Any:
        return msgspec.json.decode("[" * 5000 + "]" * 5000)

    with pytest.raises(Unresolved, match="nested too deeply"):
        resolved_payload('{"x": {"$from": "extract"}}', Values(deep))
    with pytest.raises(Unresolved, match="nested too deeply"):
        mapped_list(EXTRACTED, Values(deep))
    with pytest.raises(Unresolved, match="nested too deeply"):
        mapped_list(EXTRACTED, Values(lambda _: nested(1, DEEPEST + 1)))
    assert mapped_list(EXTRACTED, Values(lambda _: nested(1, DEEPEST))) == nested(1, DEEPEST)
    assert not is_deeper(nested({}, DEEPEST - 1)) and is_deeper(nested({}, DEEPEST))
    with pytest.raises(InvalidInput, match="nested too deeply"):
        collect({"x": {"$literal": nested(1, DEEPEST)}})


def test_a_reference_may_be_written_with_an_escape() -> None:
    assert may_refer('{"x": {"\\u0024from": "extract"}}') and not may_refer('{"x": "cost: 5 $"}')
