"""A patch changes only the fields that it contains. null resets a field. The checks are those of a new job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput, MainspringError
from mainspring.domain.job import Delivery, JobDefinition, Overlap, Priority
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedules.misfire import MisfirePolicy
from mainspring.domain.schedules.schedule import MANUAL, Schedule, ScheduleKind
from tests.domain.requests_as_sent import NOW, amended, defined

ANCHOR = datetime(2026, 1, 1, tzinfo=UTC)
BERLIN = {"schedule": {"cron": "0 9 * * *", "timezone": "Europe/Berlin"}}
FULL = {
    "job_id": "report",
    "name": "Daily report",
    "task": "report.generate",
    "payload": {"region": "eu"},
    **BERLIN,
    "queue": "heavy",
    "priority": "high",
    "timeout": "15m",
    "retry": {"max_attempts": 6, "backoff": "linear", "base": "5s", "cap": "1m", "jitter": 0.2},
    "misfire": {"policy": "all", "grace": "1h", "cap": 7},
    "overlap": "allow",
    "idempotency_key": "key",
    "owner": "bi",
    "description": "...",
    "labels": {"team": "bi"},
}


def flat(definition: JobDefinition) -> dict[str, Any]:
    fields = msgspec.structs.asdict(definition)
    spec = fields.pop("spec")
    return fields | {f"spec.{name}": value for name, value in msgspec.structs.asdict(spec).items()}


def changes(before: JobDefinition, after: JobDefinition) -> dict[str, Any]:
    old, new = flat(before), flat(after)
    return {name: value for name, value in new.items() if value != old[name]}


whats: list[dict[str, Any]] = [
    {"task": "noop"},
    {"job_id": "job-1"},
    {"job_id": "job-1", "name": "A job", "command": "echo"},
    {"command": ["echo", "hi"], "payload": {"command": 5}},
    {"task": "shell", "payload": {"command": "echo hi"}},
    {"task": "shell", "payload": {"argv": ["echo"]}},
]
whens: list[dict[str, Any]] = [
    BERLIN,
    {"cron_expression": "*/5 * * * * *"},
    {"schedule": {"every": "90s", "anchor": ANCHOR.isoformat()}},
    {"schedule_time": "2026-12-31T23:59:59Z"},
    {"schedule": "manual"},
]
hows: list[dict[str, Any]] = [
    {},
    {"retries": 0, "priority": 3, "queue": "heavy"},
    {"delivery": "at_most_once", "labels": {"a": "b"}, "overlap": "allow"},
    {"retry": {"base": "1h"}, "timeout": 5, "misfire": {"policy": "skip"}},
    {"retry": {"base": "1h", "cap": "5m", "jitter": 0}, "owner": "me", "idempotency_key": "k"},
    {"max_retries": 3, "misfire": {"grace": "1m", "cap": 3}, "description": "two\nlines"},
]
definitions = st.builds(
    lambda what, when, how: defined({**what, **when, **how}),
    st.sampled_from(whats),
    st.sampled_from(whens),
    st.sampled_from(hows),
)


def same_again(stored: JobDefinition) -> dict[str, Any]:
    """A patch with all fields of `stored`."""
    spec, schedule = stored.spec, stored.schedule
    ways: dict[ScheduleKind, dict[str, Any]] = {
        ScheduleKind.CRON: {"cron_expression": schedule.cron, "timezone": schedule.timezone},
        ScheduleKind.EVERY: {"schedule": {"every": schedule.every}},
        ScheduleKind.AT: {"schedule_time": schedule.at.isoformat() if schedule.at else None},
        ScheduleKind.MANUAL: {"schedule": "manual"},
    }
    return ways[schedule.kind] | {
        "schedule_type": schedule.kind.value,
        "name": stored.name,
        "task": stored.task,
        "payload": None if stored.payload is None else msgspec.Raw(stored.payload.encode()),
        "queue": stored.queue,
        "priority": int(stored.priority),
        "timeout": spec.timeout,
        "retry": msgspec.structs.asdict(spec.retry),
        "misfire": msgspec.structs.asdict(spec.misfire),
        "overlap": stored.overlap.word,
        "delivery": spec.delivery.value,
        "owner": spec.owner,
        "description": spec.description,
        "labels": spec.labels,
    }


@given(definitions, st.data())
def test_saying_the_same_again_changes_nothing(stored: JobDefinition, data: st.DataObject) -> None:
    patch = same_again(stored)
    names = data.draw(st.sets(st.sampled_from(sorted(patch)), min_size=1))
    assert amended(stored, {name: patch[name] for name in names}) == stored


@given(definitions)
def test_saying_all_of_it_again_changes_nothing(stored: JobDefinition) -> None:
    assert amended(stored, same_again(stored)) == stored


@pytest.mark.parametrize(
    ("patch", "changed"),
    [
        ({"name": "Weekly"}, {"name": "Weekly"}),
        ({"task": "other"}, {"task": "other"}),
        ({"job_type": "other"}, {"task": "other"}),
        ({"command": "echo"}, {"task": "shell", "spec.command": "echo"}),
        ({"payload": {"a": 1}}, {"payload": '{"a":1}'}),
        ({"queue": "light"}, {"queue": "light"}),
        ({"priority": "low"}, {"priority": Priority.LOW}),
        ({"timeout": "1h"}, {"spec.timeout": 3600.0}),
        ({"retries": 1}, {"spec.retry": RetryPolicy(2, "linear", 5.0, 60.0, 0.2)}),
        ({"max_retries": 0}, {"spec.retry": RetryPolicy(1, "linear", 5.0, 60.0, 0.2)}),
        ({"retry": {"max_attempts": 2}}, {"spec.retry": RetryPolicy(2, "linear", 5.0, 60.0, 0.2)}),
        ({"retry": {"backoff": "constant"}}, {"spec.retry": RetryPolicy(6, "constant", 5.0, 60.0, 0.2)}),
        ({"retry": {"base": "1s"}, "retries": 2}, {"spec.retry": RetryPolicy(3, "linear", 1.0, 60.0, 0.2)}),
        ({"misfire": {"policy": "skip"}}, {"spec.misfire": MisfirePolicy("skip", 3600.0, 7)}),
        ({"misfire": {"grace": "1m"}}, {"spec.misfire": MisfirePolicy("all", 60.0, 7)}),
        ({"overlap": "skip"}, {"overlap": Overlap.SKIP}),
        ({"owner": "me"}, {"spec.owner": "me"}),
        ({"description": "new"}, {"spec.description": "new"}),
        ({"labels": {"team": "ops"}}, {"spec.labels": {"team": "ops"}}),
        (
            {"cron_expression": "0 10 * * *"},
            {"schedule": Schedule(kind=ScheduleKind.CRON, cron="0 10 * * *", timezone="Europe/Berlin")},
        ),
        (
            {"cron": "0 10 * * *", "cron_expression": None, "schedule_time": None},
            {"schedule": Schedule(kind=ScheduleKind.CRON, cron="0 10 * * *", timezone="Europe/Berlin")},
        ),
        ({"schedule": "now"}, {"schedule": Schedule(kind=ScheduleKind.AT, at=NOW)}),
        ({"schedule_type": "IMMEDIATE", "cron_expression": None}, {"schedule": Schedule(kind=ScheduleKind.AT, at=NOW)}),
        ({"delay": "5m"}, {"schedule": Schedule(kind=ScheduleKind.AT, at=NOW + timedelta(minutes=5))}),
        ({"retry_policy": {"max_attempts": 2}}, {"spec.retry": RetryPolicy(2, "linear", 5.0, 60.0, 0.2)}),
        ({"retry_policy": None}, {"spec.retry": RetryPolicy()}),
        (
            {"schedule": "@hourly"},
            {"schedule": Schedule(kind=ScheduleKind.CRON, cron="0 * * * *", timezone="Europe/Berlin")},
        ),
        (
            {"timezone": "Asia/Tokyo"},
            {"schedule": Schedule(kind=ScheduleKind.CRON, cron="0 9 * * *", timezone="Asia/Tokyo")},
        ),
        ({"schedule": {"cron": "@hourly"}}, {"schedule": Schedule(kind=ScheduleKind.CRON, cron="0 * * * *")}),
        ({"schedule": "manual"}, {"schedule": MANUAL}),
        ({"schedule_type": "MANUAL"}, {"schedule": MANUAL}),
        ({"schedule": {"every": "1h"}}, {"schedule": Schedule(kind=ScheduleKind.EVERY, every=3600.0)}),
        (
            {"schedule_time": "2026-12-31T00:00:00Z"},
            {"schedule": Schedule(kind=ScheduleKind.AT, at=datetime(2026, 12, 31, tzinfo=UTC))},
        ),
        # null resets a field to its default
        ({"name": None}, {"name": "report"}),
        ({"payload": None}, {"payload": None}),
        ({"queue": None}, {"queue": "default"}),
        ({"priority": None}, {"priority": Priority.NORMAL}),
        ({"timeout": None}, {"spec.timeout": 3600.0}),
        ({"retry": None}, {"spec.retry": RetryPolicy()}),
        ({"retry": None, "retries": 1}, {"spec.retry": RetryPolicy(max_attempts=2)}),
        ({"misfire": None}, {"spec.misfire": MisfirePolicy()}),
        ({"overlap": None}, {"overlap": Overlap.SKIP}),
        ({"owner": None}, {"spec.owner": None}),
        ({"description": None}, {"spec.description": None}),
        ({"labels": None}, {"spec.labels": None}),
    ],
    ids=str,
)
def test_each_field_changes_alone(patch: dict[str, Any], changed: dict[str, Any]) -> None:
    stored = defined(FULL)
    assert changes(stored, amended(stored, patch)) == changed


def test_a_job_without_a_name_gets_none_by_another_change() -> None:
    stored = msgspec.structs.replace(defined({"task": "noop", **BERLIN}), job_id="0190f5b2-0000-7000-8000-000000000000")
    assert amended(stored, {"queue": "light"}).name is None


def test_attempts_that_nobody_chose_follow_the_delivery() -> None:
    stored = defined({"task": "noop", **BERLIN})
    careful = amended(stored, {"delivery": "at_most_once"})
    assert (careful.spec.delivery, careful.spec.retry.max_attempts) == (Delivery.AT_MOST_ONCE, 1)
    assert amended(careful, {"delivery": None}) == stored


def test_attempts_that_somebody_chose_stand_against_at_most_once() -> None:
    with pytest.raises(InvalidInput) as refused:
        amended(defined({"task": "noop", "retries": 7, **BERLIN}), {"delivery": "at_most_once"})
    assert refused.value.field == "retry.max_attempts"


def test_a_cap_that_nobody_chose_follows_the_base() -> None:
    stored = defined({"task": "noop", "retry": {"base": "1h"}, **BERLIN})
    assert amended(stored, {"retry": {"base": "2h"}}).spec.retry.cap == 7200.0
    assert amended(stored, {"retry": {"base": "1s"}}).spec.retry.cap == 600.0


def test_the_same_interval_keeps_its_grid_and_another_begins_anew() -> None:
    stored = defined({"task": "noop", "schedule": {"every": "10m", "anchor": ANCHOR.isoformat()}})
    assert amended(stored, {"schedule": {"every": 600}}).schedule.anchor == ANCHOR
    assert amended(stored, {"schedule": {"every": "5m"}}).schedule.anchor is None
    moved = amended(stored, {"schedule": {"every": "10m", "anchor": "2026-02-01T00:00:00Z"}})
    assert moved.schedule.anchor == datetime(2026, 2, 1, tzinfo=UTC)


def test_a_command_in_the_payload_changes_with_the_payload() -> None:
    stored = defined({"task": "shell", "payload": {"command": "old"}, **BERLIN})
    assert amended(stored, {"payload": {"command": "new"}}).spec.command == "new"
    assert amended(stored, {"queue": "light"}).spec.command == "old"
    with pytest.raises(InvalidInput) as refused:
        amended(stored, {"payload": {}})
    assert refused.value.field == "command"


def test_a_command_of_its_own_stays_when_the_payload_changes() -> None:
    stored = defined({"command": "old", "payload": {"a": 1}, **BERLIN})
    assert changes(stored, amended(stored, {"payload": {"a": 2}})) == {"payload": '{"a":2}'}
    assert changes(stored, amended(stored, {"task": "shell"})) == {}
    assert changes(stored, amended(stored, {"task": "other"})) == {"task": "other", "spec.command": None}


def test_a_new_zone_is_checked_against_the_old_expression() -> None:
    stored = defined({"task": "noop", "cron_expression": "*/30 2 * 3 7L"})
    with pytest.raises(InvalidInput) as refused:
        amended(stored, {"timezone": "Europe/Berlin"})
    assert refused.value.code == "cron_never_fires"


@pytest.mark.parametrize(
    ("patch", "code", "field"),
    [
        ({}, "invalid_input", "$"),
        ({"cron": "@daily", "cron_expression": "@daily"}, "invalid_input", "cron"),
        ({"delay": "5m", "timezone": "UTC"}, "invalid_input", "timezone"),
        ({"retry": {}, "retry_policy": {}}, "invalid_input", "retry_policy"),
        ({"cron_expression": None}, "invalid_input", "$"),
        ({"schedule_type": "FUTURE"}, "invalid_input", "schedule_time"),
        ({"schedule_type": "INTERVAL"}, "invalid_input", "schedule"),
        ({"timezone": "Mars"}, "unknown_timezone", "timezone"),
        ({"schedule": "manual", "timezone": "UTC"}, "invalid_input", "timezone"),
        ({"cron_expression": "0 0 30 2 *"}, "cron_never_fires", "cron_expression"),
        ({"schedule": "@daily", "cron_expression": "@daily"}, "invalid_input", "cron_expression"),
        ({"retries": 1, "retry": {"max_attempts": 2}}, "invalid_input", "retry.max_attempts"),
        ({"retries": -1}, "invalid_input", "retries"),
        ({"task": "a", "command": "echo"}, "invalid_input", "command"),
        ({"command": ""}, "invalid_input", "command"),
        ({"task": "shell"}, "invalid_input", "command"),
        ({"payload": [1]}, "invalid_input", "payload"),
        ({"payload": {"a": "x" * 262_144}}, "payload_too_large", "payload"),
        ({"name": "a\x00"}, "invalid_input", "name"),
        ({"queue": "a\n"}, "invalid_input", "queue"),
        ({"overlap": "wait"}, "invalid_input", "overlap"),
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_change_is_refused_like_a_bad_creation(patch: dict[str, Any], code: str, field: str) -> None:
    with pytest.raises(MainspringError) as refused:
        amended(defined(FULL), patch)
    assert (refused.value.code, refused.value.field) == (code, field)


@pytest.mark.parametrize(
    "when", [{"schedule": "manual"}, {"schedule": {"every": 60}}, {"schedule_time": "2027-01-01T00:00Z"}]
)
def test_a_zone_alone_goes_with_cron_only(when: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        amended(defined({"task": "noop", **when}), {"timezone": "Asia/Tokyo"})
    assert refused.value.field == "timezone"


@pytest.mark.parametrize("field", ["job_id", "idempotency_key", "status", "prioritty"])
def test_what_cannot_be_changed_is_refused_by_the_wire(field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        amended(defined(FULL), {field: "x"})
