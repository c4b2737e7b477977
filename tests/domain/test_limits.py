"""Limits: how they are read, which lines runs stand in, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.declaration import plain_options, read_options
from mainspring.domain.job import line_of
from mainspring.domain.limits import SHOWN_KEY, Slot, key_id, key_text, read_name
from mainspring.wire.jobs import JobRequest
from mainspring.wire.limits import ConcurrencyIn

from .requests_as_sent import amended, defined

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=300)


def slots(body: dict[str, Any], job_id: str = "nightly") -> list[Slot]:
    return line_of(defined({"task": "charge", **body}), job_id)


GENERATED = "01890000-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    ("body", "job_id", "expected"),
    [
        ({"concurrency": 3}, GENERATED, [Slot("task:charge", "", 3)]),
        ({"concurrency": 3}, "nightly", [Slot("job:nightly", "", 3)]),
        ({"concurrency": 3, "schedule": {"every": "1h"}}, GENERATED, [Slot(f"job:{GENERATED}", "", 3)]),
        ({"concurrency": {"limit": 3, "per": "task"}}, "nightly", [Slot("task:charge", "", 3)]),
        ({"concurrency": {"limit": 3, "per": "job"}}, GENERATED, [Slot(f"job:{GENERATED}", "", 3)]),
        (
            {"concurrency": {"limit": 1, "key": "payload.account"}, "payload": {"account": "a1"}}, "nightly",
            [Slot("task:charge:payload.account", '"a1"', 1)],
        ),
        (
            {"concurrency": {"limit": 1, "key": "payload.account", "order": "strict", "per": "job"}}, "nightly",
            [Slot("job:nightly:payload.account", "null", 1, True)],
        ),
        (
            {"concurrency": {"limit": 1, "key": "labels.app.team"}, "labels": {"app.team": "bi"}}, "nightly",
            [Slot("task:charge:labels.app.team", '"bi"', 1)],
        ),
        ({"overlap": "queue"}, "nightly", [Slot("overlap:nightly", "", 1, True)]),
        ({"overlap": "cancel_previous", "concurrency": 2}, "nightly",
         [Slot("job:nightly", "", 2), Slot("overlap:nightly", "", 1)]),
        ({"overlap": "allow"}, "nightly", []),
    ],
)  # fmt: skip
def test_the_slots_that_a_run_needs(body: dict[str, Any], job_id: str, expected: list[Slot]) -> None:
    assert slots(body, job_id) == expected


@pytest.mark.parametrize(
    ("concurrency", "field", "fix"),
    [
        (0, "concurrency", "pause"),
        (-1, "concurrency", "1 to 1,000,000"),
        (1_000_001, "concurrency", "1 to 1,000,000"),
        ([], "concurrency", "false"),
        (True, "concurrency", "false"),
        ({"limit": 0}, "concurrency.limit", "pause"),
        ([{"limit": 1}, {"limit": 0, "key": "payload.a"}], "concurrency[1].limit", "pause"),
        ({"limit": 1, "key": "account"}, "concurrency.key", "payload.account"),
        ({"limit": 1, "key": "payload"}, "concurrency.key", "payload.account"),
        ({"limit": 1, "key": "payload..a"}, "concurrency.key", "payload.account"),
        ({"limit": 1, "key": "payload." + "a" * 300}, "concurrency.key", "payload.account"),
        ({"limit": 1, "key": "payload.object"}, "concurrency.key", "inside it"),
        ({"limit": 1, "key": "payload.list"}, "concurrency.key", "outside of lists"),
        ({"limit": 1, "key": "payload.list.a"}, "concurrency.key", "outside of lists"),
        ([{"limit": 1, "key": "payload.li"}, {"limit": 1, "key": "payload.list"}], "concurrency[1].key", "outside"),
        ({"limit": 1, "per": "queue"}, "concurrency.per", "job or task"),
        ({"limit": 1, "order": "fifo"}, "concurrency.order", "priority or strict"),
        ({"limit": 2, "order": "strict"}, "concurrency.order", "set the limit to 1"),
        ([{"limit": 1, "order": "strict"}, {"limit": 2, "key": "payload.a"}], "concurrency", "leave the other"),
        ([{"limit": 1}, {"limit": 2}], "concurrency", "leave one of them out"),
        ([{"limit": n, "key": f"payload.{n}"} for n in range(1, 6)], "concurrency", "1 to 4"),
    ],
)  # fmt: skip
def test_a_bad_limit_is_refused_with_the_field_and_the_fix(concurrency: Any, field: str, fix: str) -> None:
    body = {"task": "charge", "payload": {"object": {"a": 1}, "list": [1]}}
    for give in (
        lambda: defined(body | {"concurrency": concurrency}),
        lambda: amended(defined(body), {"concurrency": concurrency}),
    ):
        with pytest.raises(InvalidInput) as refused:
            give()
        assert refused.value.field == field
        assert fix in f"{refused.value.expected} {refused.value.hint}"


def test_strict_order_does_not_go_with_overlap_queue() -> None:
    with pytest.raises(InvalidInput) as refused:
        defined({"task": "a", "concurrency": {"limit": 1, "order": "strict"}, "overlap": "queue"})
    assert refused.value.field == "concurrency.order"


def test_a_change_keeps_clears_and_replaces_the_limits() -> None:
    job = defined({"task": "a", "schedule": "manual", "concurrency": [{"limit": 1, "key": "payload.a"}, {"limit": 9}]})
    assert amended(job, {"owner": "me"}).spec.concurrency == job.spec.concurrency
    assert amended(job, {"concurrency": None}).spec.concurrency is None
    assert amended(job, {"concurrency": 2}) == defined({"task": "a", "schedule": "manual", "concurrency": 2})


def test_a_change_of_the_payload_that_does_not_fit_the_key_is_refused() -> None:
    job = defined({"task": "a", "schedule": "manual", "concurrency": {"limit": 1, "key": "payload.a"}})
    with pytest.raises(InvalidInput) as refused:
        amended(job, {"payload": {"a": {}}})
    assert refused.value.field == "concurrency.key"


@pytest.mark.parametrize("given", [3, {"limit": 3}, [{"limit": 3, "per": "TASK"}]])
def test_the_limit_of_a_task_counts_the_runs_of_the_task(given: Any) -> None:
    options = read_options({"concurrency": given})
    assert options is not None
    assert options.concurrency == [ConcurrencyIn(3, per="task")]


def test_a_task_does_not_limit_a_single_job() -> None:
    with pytest.raises(InvalidInput) as refused:
        plain_options(msgspec.convert({"concurrency": {"limit": 3, "per": "job"}}, JobRequest))
    assert (refused.value.field, refused.value.expected) == ("concurrency.per", "task")


@given(SCALARS, SCALARS)
def test_each_value_has_a_line_of_its_own(one: Any, other: Any) -> None:
    same = type(one) is type(other) and one == other
    assert (key_text(one) == key_text(other)) == same
    assert len(key_text(one)) <= SHOWN_KEY


@given(st.integers(-(2**53) + 1, 2**53 - 1))
def test_a_whole_number_is_the_same_key_however_it_is_written(number: int) -> None:
    assert key_text(number) == key_text(float(number))


@given(st.integers(0, 2**31 - 1), st.text(max_size=50), st.text(max_size=50))
def test_the_id_of_a_line_is_no_gate(tenant: int, name: str, key: str) -> None:
    number = key_id(tenant, Slot(name, key))
    assert -(2**63) <= number < 2**63
    assert not 0 <= number < 2**32


@given(st.text("ab:%.3A5payload", max_size=30), st.none() | st.sampled_from(["payload.a", "payload.a:b", "labels.x"]))
def test_two_limits_never_have_the_same_name(task: str, key: str | None) -> None:
    """A task may have a colon in its name, and a path too."""
    if not task:
        return
    limit = {"limit": 1, "per": "task"} | ({} if key is None else {"key": key})
    [slot] = line_of(defined({"task": task, "concurrency": limit}), "x")
    found = read_name(slot.name)
    assert (found.kind, found.of, found.key) == ("task", task, key)
