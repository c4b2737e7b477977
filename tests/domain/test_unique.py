"""Intake of unique jobs: what is refused, the key of a job, and what a merge does to a definition."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.domain.intake.unique import check_time, pushed, unique_key, with_work_of
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind

from .requests_as_sent import defined

SCALARS = (
    st.none() | st.booleans() | st.text(max_size=5) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)


def job(payload: Any = None, **rule: Any) -> dict[str, Any]:
    return {"task": "t", "payload": payload, "unique": {"by": ["payload.a"], **rule}}


def key(payload: Any, by: list[str] | None = None) -> bytes:
    return unique_key(defined(job(payload, by=by or ["payload.a"])))


def key_of_text(payload: str) -> bytes:
    return unique_key(defined(f'{{"task": "t", "unique": {{"by": ["payload.a"]}}, "payload": {payload}}}'))


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({"by": []}, "unique.by"),
        ({"by": ["task"] * 17}, "unique.by"),
        ({"by": ["task", "task"]}, "unique.by[1]"),
        ({"by": ["priority"]}, "unique.by[0]"),
        ({"by": ["task", "Payload.a"]}, "unique.by[1]"),
        ({"by": ["payload"]}, "unique.by[0]"),
        ({"by": ["payload."]}, "unique.by[0]"),
        ({"by": ["payload.a..b"]}, "unique.by[0]"),
        ({"by": ["labels"]}, "unique.by[0]"),
        ({"by": ["labels."]}, "unique.by[0]"),
        ({"by": ["$.payload.a"]}, "unique.by[0]"),
        ({"by": ["payload." + "a" * 200]}, "unique.by[0]"),
        ({"by": ["payload.\x00"]}, "unique.by[0]"),
        ({"for": 0}, "unique.for"),
        ({"for": "-1s"}, "unique.for"),
        ({"for": "367d"}, "unique.for"),
        ({"for": "2 fortnights"}, "unique.for"),
        ({"while": []}, "unique.while"),
        ({"while": ["queued", "done"]}, "unique.while[1]"),
        ({"while": ["paused"]}, "unique.while[0]"),
        ({"else": "drop"}, "unique.else"),
        ({"else": "replace", "while": ["queued", "running"]}, "unique.while"),
        ({"else": "later", "while": ["running"]}, "unique.while"),
    ],
)
def test_what_is_refused_names_the_field_and_the_fix(rule: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        defined(job({"a": 1}, **rule))
    assert refused.value.field == field
    assert refused.value.expected or refused.value.hint


@pytest.mark.parametrize("schedule", [{"every": "1h"}, {"cron": "@daily"}, "manual"])
def test_only_a_job_that_runs_once_is_unique(schedule: Any) -> None:
    with pytest.raises(InvalidInput, match="runs once") as refused:
        defined(job({"a": 1}) | {"schedule": schedule})
    assert refused.value.field == "unique"


@pytest.mark.parametrize("payload", [{"a": {}}, {"a": []}, {"a": [1]}, {"a": {"b": 1}}])
def test_an_object_or_an_array_is_no_part_of_a_key(payload: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        defined(job(payload))
    assert refused.value.field == "payload.a" and refused.value.hint


def test_a_path_does_not_lead_through_an_array() -> None:
    with pytest.raises(InvalidInput, match="meets an array") as refused:
        defined(job({"a": [{"b": 1}]}, by=["payload.a.b"]))
    assert "outside of arrays" in str(refused.value.hint)


def test_later_needs_a_time() -> None:
    for more in ({}, {"schedule": "now"}):
        with pytest.raises(InvalidInput, match="goes with a time") as refused:
            check_time(defined(job({"a": 1}, **{"else": "later"}) | more))
        assert refused.value.field == "unique.else" and "delay" in (refused.value.hint or "")
    for more in ({"delay": "1s"}, {"schedule": {"at": "2030-01-01T00:00:00Z"}}):
        check_time(defined(job({"a": 1}, **{"else": "later"}) | more))


def test_words_may_be_in_upper_case_and_states_are_stored_in_order() -> None:
    rule = defined(job({"a": 1}, **{"while": ["RUNNING", "Queued"], "else": "KEEP"})).spec.unique
    assert rule is not None and (rule.while_, rule.else_) == (["queued", "running"], "keep")


@given(SCALARS, SCALARS)
def test_two_values_have_one_key_if_they_are_equal_json(one: Any, other: Any) -> None:
    same = type(one) is type(other) and one == other
    if {type(one), type(other)} == {int, float}:
        same = one == other
    assert (key({"a": one}) == key({"a": other})) == same


@given(st.integers().filter(bool), st.integers(0, 20))
def test_a_number_has_one_key_however_it_is_written(digits: int, places: int) -> None:
    plain = f"{Decimal(digits).scaleb(-places, Context(prec=1000)):f}"
    texts = [plain, f"{digits}e-{places}", f"{digits}0E-{places + 1}", f"{digits}.00e-0{places}"]
    assert len({key_of_text(f'{{"a": {text}}}') for text in texts}) == 1


def test_no_digit_of_a_number_is_lost() -> None:
    texts = [
        "123456789012345678901234567890", "123456789012345678901234567891", "0.1", "0.10000000000000000001", "1e999",
        "2e999", "1e99999999999999999999",
    ]  # fmt: skip
    assert len({key_of_text(f'{{"a": {text}}}') for text in texts}) == len(texts)


def test_what_is_absent_is_null() -> None:
    absent = [None, {}, {"a": None}, {"b": 1}]
    assert len({key(payload) for payload in absent}) == 1
    deep = [{}, {"a": 1}, {"a": "x"}, {"a": {}}, {"a": {"b": None}}]
    assert len({key(payload, ["payload.a.b"]) for payload in deep}) == 1


def test_the_order_of_the_fields_does_not_matter_and_the_fields_do() -> None:
    payload = {"a": 1, "b": 1}
    assert key(payload, ["payload.a", "task"]) == key(payload, ["task", "payload.a"])
    several = [["payload.a"], ["payload.b"], ["payload.a", "payload.b"], ["payload.a", "task"], ["payload.a", "name"]]
    assert len({key(payload, by) for by in several}) == len(several)
    # The last of several members with one name counts, as for the task.
    assert key_of_text('{"a": 1, "a": 2}') == key({"a": 2})


@given(
    st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=6)
)
def test_whatever_the_payload_has_there_is_a_key_or_a_refusal_that_names_the_path(value: Any) -> None:
    text = json.dumps({"a": value})
    try:
        assert len(key_of_text(text)) == 32
    except InvalidInput as refused:
        assert refused.field == "payload.a" and isinstance(value, list | dict)


def test_another_task_is_not_given_the_payload() -> None:
    with pytest.raises(Conflict) as refused:
        with_work_of(defined({"task": "a"}), defined({"task": "b"}), "job")
    assert refused.value.code == "unique_other_task"


MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))


@given(MOMENTS, st.lists(MOMENTS, max_size=10), MOMENTS)
def test_a_time_is_pushed_only_later_and_never_beyond_the_window(
    first: datetime, pushes: list[datetime], until: datetime
) -> None:
    current = first
    for wanted in pushes:
        before, current = current, pushed(current, Schedule(kind=ScheduleKind.AT, at=wanted), until)
        assert before <= current <= max(before, until)
        assert current >= min(wanted, until)
    assert current <= max(first, until)
