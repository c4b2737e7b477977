"""Options that a task declares: how they are read, and how a server that does not know them handles them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput, MainspringError
from mainspring.domain.intake.declaration import read_declaration, read_options
from mainspring.domain.intake.signature import read_signature
from mainspring.domain.intake.task_options import fill
from mainspring.wire.jobs import JobRequest
from mainspring.wire.tasks import DeclaredOptions

SCHEMA = {"type": "object", "properties": {"account": {"type": "string"}}, "required": ["account"]}


def test_they_are_read_as_those_of_a_job_and_reading_them_again_changes_nothing() -> None:
    said: dict[str, Any] = {
        "priority": 2, "timeout": "1h30m", "delivery": "AT_LEAST_ONCE", "limits": {"memory": "1GiB", "cpu": "2m"},
        "retry": {"backoff": "Linear", "rules": [{"exit_code": 3, "then": "RETRY", "after": "5s"}]},
        "required_labels": {"b": "1", "a": "2"},
    }  # fmt: skip
    options = read_options(said)
    assert isinstance(options, DeclaredOptions)
    assert (options.priority, options.timeout, options.delivery) == ("high", 5400.0, "at_least_once")
    assert options.limits is not None and (options.limits.memory, options.limits.cpu) == (2**30, 120.0)
    assert options.retry is not None and options.retry.rules is not None
    assert (options.retry.backoff, options.retry.base, options.retry.max_attempts) == ("linear", None, None)
    assert (options.retry.rules[0].exit_code, options.retry.rules[0].after) == ([3], 5.0)
    assert read_options(msgspec.json.decode(msgspec.json.encode(options))) == options


@pytest.mark.parametrize("nothing", [None, {}, {"retry": {}, "limits": {}, "env": {}}, {"colour": "red"}])
def test_nothing_said_is_no_options(nothing: Any) -> None:
    assert read_options(nothing) is None


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"timeout": "soon"}, "timeout"),
        ({"retry": {"max_attempts": 0}}, "retry.max_attempts"),
        ({"delivery": "at_most_once", "retry": {"max_attempts": 2}}, "retry.max_attempts"),
        ({"limits": {"memory": "much"}}, "limits.memory"),
        ({"queue": "a\tb"}, "queue"),
    ],
)
def test_what_no_job_could_have_is_refused_by_field(options: Any, field: str) -> None:
    with pytest.raises(MainspringError) as refused:
        read_options(options)
    assert refused.value.field == field


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(anything | st.dictionaries(st.sampled_from(DeclaredOptions.__struct_fields__), anything))
def test_whatever_comes_is_read_or_refused(whatever: Any) -> None:
    with suppress(MainspringError):
        options = read_options(whatever)
        assert options is None or read_options(msgspec.to_builtins(options)) == options


def test_a_server_that_does_not_know_of_options_checks_payloads_all_the_same() -> None:
    both = {**SCHEMA, "x-mainspring-options": {"queue": "heavy"}}
    for check in (read_signature("t", both), read_signature("t", SCHEMA), read_declaration("t", both)):
        assert check is not None
        check.check('{"account": "a"}')
        with pytest.raises(InvalidInput):
            check.check('{"account": 1}')
    alone = read_signature("t", {"x-mainspring-options": {"queue": "heavy"}})
    assert alone is not None
    alone.check('{"any": 1}')


def test_a_request_that_says_all_is_left_as_it_is() -> None:
    options = read_options({"queue": "heavy", "priority": 3, "timeout": 5, "delivery": "at_least_once"})
    assert options is not None
    request = JobRequest(task="t", queue="q", priority="low", timeout="1m", delivery="at_most_once")
    assert fill(request, options) == request
