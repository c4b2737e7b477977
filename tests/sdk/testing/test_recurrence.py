"""Rules, jitter and bounds of declared schedules, in a box and as requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import mainspring.testing
from mainspring import Mainspring
from mainspring.domain.errors import InvalidInput
from mainspring.sdk.client.job_fields import job_patch, job_request

START = "2026-01-01T00:00:00Z"
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def test_max_runs_and_end_complete_a_job_in_a_box_and_a_later_one_goes_on() -> None:
    app = Mainspring("recurrence")

    @app.task
    def tick() -> None: ...

    with mainspring.testing.run(app, start=START) as box:
        client = box.client
        limited = client.submit(task="tick", every="1h", max_runs=2).job_id
        bounded = client.submit(task="tick", every="1h", end=T0 + timedelta(hours=3)).job_id
        endless = client.submit(task="tick", every="1h").job_id
        box.advance("5h")
        assert [len(client.job_runs(job).runs) for job in (limited, bounded, endless)] == [2, 3, 5]
        assert [client.job(job).status for job in (limited, bounded)] == ["COMPLETED", "COMPLETED"]
        with pytest.raises(InvalidInput, match="made 2 run"):
            client.update_job(limited, max_runs=2, jitter="1m")
        assert client.update_job(limited, max_runs=3).runs_left == 1
        client.update_job(bounded, end=T0 + timedelta(hours=7))
        box.advance("5h")
        assert [len(client.job_runs(job).runs) for job in (limited, bounded)] == [3, 5]


def test_a_rule_and_jitter_are_declared_above_a_task() -> None:
    app = Mainspring("recurrence")

    @app.rrule("FREQ=DAILY;BYHOUR=9", timezone="Europe/Berlin", exdates=["2026-01-02T08:00:00Z"], start=START)
    @app.task
    def report() -> None: ...

    @app.cron("0 * * * *", jitter="30m", job_id="spread")
    @app.task
    def sweep() -> None: ...

    with mainspring.testing.run(app, start=START) as box:
        assert box.client.upcoming("report", 2).fires == [T0 + timedelta(hours=8), T0 + timedelta(days=2, hours=8)]
        [first] = box.client.upcoming("spread", 1).fires
        assert T0 + timedelta(hours=1) < first < T0 + timedelta(hours=1, minutes=30)


@pytest.mark.parametrize(
    ("rule", "options"),
    [("FREQ=SECONDLY", {}), ("FREQ=DAILY", {"jitter": "25h"}), ("FREQ=DAILY", {"max_runs": 0})],
)
def test_a_bad_declaration_fails_at_import_and_names_itself(rule: str, options: dict[str, object]) -> None:
    app = Mainspring("recurrence")

    @app.task
    def tick() -> None: ...

    with pytest.raises(ValueError, match=r"@app.rrule\('FREQ="):
        app.rrule(rule, **options)(tick)  # type: ignore[arg-type]


def test_an_application_whose_schedule_has_ended_still_starts() -> None:
    app = Mainspring("recurrence")

    @app.every("1h", end="2020-01-01T00:00:00Z")
    @app.task
    def old() -> None: ...

    assert [schedule.job_id for schedule in app.schedules] == ["old"]


def test_keywords_become_members_of_the_schedule() -> None:
    assert job_request({"cron": "@daily", "timezone": "UTC", "jitter": timedelta(seconds=60), "end": T0}) == {
        "schedule": {"cron": "@daily", "timezone": "UTC", "jitter": 60.0, "end": "2026-01-01T00:00:00Z"},
    }  # fmt: skip
    assert job_request({"rrule": "FREQ=DAILY", "exdates": [T0]})["schedule"] == {
        "rrule": "FREQ=DAILY", "exdates": ["2026-01-01T00:00:00Z"],
    }  # fmt: skip
    assert job_patch({"max_runs": 3, "jitter": None}) == {"schedule": {"max_runs": 3, "jitter": None}}
