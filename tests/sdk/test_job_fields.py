"""Python values for times and durations are converted to the request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from mainspring.domain.errors import InvalidInput
from mainspring.sdk.client import calls
from mainspring.sdk.client.job_fields import job_patch, job_request


def test_at_every_and_cron_become_the_schedule() -> None:
    berlin = timezone(timedelta(hours=1))
    assert job_request({"at": datetime(2026, 1, 1, 9, tzinfo=berlin)}) == {"schedule": {"at": "2026-01-01T08:00:00Z"}}
    assert job_request({"every": timedelta(minutes=10)}) == {"schedule": {"every": 600.0}}
    assert job_request({"cron": "@daily", "timezone": "Europe/Berlin", "queue": None}) == {
        "schedule": {"cron": "@daily", "timezone": "Europe/Berlin"}
    }


def test_a_delay_may_be_given_as_the_time() -> None:
    for fields in ({"delay": "5m"}, {"at": "5m"}):
        assert job_request({"task": "t", **fields}) == {"task": "t", "delay": "5m"}
    for fields in ({"delay": timedelta(minutes=5)}, {"at": timedelta(minutes=5)}):
        assert job_request({"task": "t", **fields}) == {"task": "t", "delay": 300.0}
    assert job_request({"task": "t", "at": "2026-12-31T00:00:00Z"})["schedule"] == {"at": "2026-12-31T00:00:00Z"}


def test_a_delay_is_taken_by_add_job_and_in_batches() -> None:
    for delay in ("5m", timedelta(minutes=5)):
        sent = [calls.add_job("t", delay).body, calls.submit_batch([{"task": "t", "at": delay}]).body]
        single, batch = (json.loads(body or b"") for body in sent)
        assert {single["delay"], batch["jobs"][0]["delay"]} <= {"5m", 300.0}


def test_two_ways_to_say_when_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at and cron both say when"):
        job_request({"at": "2026-01-01T00:00:00Z", "cron": "@daily"})


def test_a_time_without_a_zone_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidInput) as caught:
        job_request({"at": datetime(2026, 1, 1)})
    assert (caught.value.code, caught.value.field) == ("missing_timezone", "at")


def test_durations_inside_objects_are_written_as_seconds() -> None:
    assert job_request({"retry": {"base": timedelta(seconds=2)}, "timeout": timedelta(minutes=1)}) == {
        "retry": {"base": 2.0},
        "timeout": 60.0,
    }


def test_a_change_to_none_takes_a_field_back_to_its_default() -> None:
    assert job_patch({"owner": None, "cron": None, "priority": "high"}) == {"owner": None, "priority": "high"}


def test_a_payload_may_hold_dataclasses_datetimes_uuids_and_sets() -> None:
    @dataclass
    class Order:
        id: UUID
        placed: datetime
        tags: set[str]

    order = Order(UUID(int=1), datetime(2026, 1, 1, tzinfo=UTC), {"a"})
    body = json.loads(calls.submit(task="t", payload={"order": order}).body or b"")
    assert body["payload"] == {
        "order": {"id": "00000000-0000-0000-0000-000000000001", "placed": "2026-01-01T00:00:00Z", "tags": ["a"]}
    }


def test_each_submission_gets_a_key_of_its_own_unless_one_is_given() -> None:
    keys = {json.loads(calls.submit(task="t").body or b"")["idempotency_key"] for _ in range(3)}
    assert len(keys) == 3
    assert json.loads(calls.submit(task="t", idempotency_key="k").body or b"")["idempotency_key"] == "k"


def test_add_job_is_a_task_a_time_and_a_payload() -> None:
    body = json.loads(calls.add_job("mail", "2026-12-31T23:59:59Z", {"to": 1}).body or b"")
    del body["idempotency_key"]
    assert body == {"task": "mail", "schedule": {"at": "2026-12-31T23:59:59Z"}, "payload": {"to": 1}}
