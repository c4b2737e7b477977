"""Calendars in a box: schedules of the application fire within them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import mainspring.testing
from mainspring import Mainspring
from mainspring.domain.errors import Conflict, InvalidInput, VersionMismatch

FRIDAY = "2026-03-20T00:00:00Z"
WEEKDAYS = {"weekdays": ["MON", "TUE", "WED", "THU", "FRI"]}


def an_app() -> Mainspring:
    app = Mainspring("calendars")

    @app.cron("0 9 * * *", calendar="business")
    @app.task
    def report() -> None: ...

    @app.cron("0 9 * * SAT", calendar="business", outside="next")
    @app.task
    def moved() -> None: ...

    @app.every("12h", calendar="business", timezone="Asia/Tokyo")
    @app.task
    def often() -> None: ...

    return app


def test_schedules_fire_within_their_calendar() -> None:
    with mainspring.testing.run(an_app(), start=FRIDAY, calendars={"business": WEEKDAYS}) as box:
        box.advance("4d")
        assert [run.scheduled_for for run in box.runs_of("report")] == [
            datetime(2026, 3, 20, 9, tzinfo=UTC),
            datetime(2026, 3, 23, 9, tzinfo=UTC),
        ]
        assert [run.scheduled_for for run in box.runs_of("moved")] == [datetime(2026, 3, 23, 9, tzinfo=UTC)]
        assert [run.scheduled_for for run in box.runs_of("often")] == [
            datetime(2026, 3, 20, 12, tzinfo=UTC),
            datetime(2026, 3, 23, 0, tzinfo=UTC),
            datetime(2026, 3, 23, 12, tzinfo=UTC),
            datetime(2026, 3, 24, 0, tzinfo=UTC),
        ]


def test_jobs_follow_a_change_and_keep_their_calendar() -> None:
    with mainspring.testing.run(an_app(), start=FRIDAY, calendars={"business": WEEKDAYS}) as box:
        view = box.calendar("business", WEEKDAYS, dates=["2026-03-20"])
        assert (view.version, view.jobs, view.pending, view.recomputed) == (2, 3, 0, 3)
        assert box.client.job("report").next_fire_at == datetime(2026, 3, 23, 9, tzinfo=UTC)
        assert box.calendar("business", WEEKDAYS, dates=["2026-03-20"]).version == 2
        with pytest.raises(Conflict, match="3 jobs use"):
            box.client.delete_calendar("business")
        with pytest.raises(VersionMismatch):
            box.client.set_calendar("business", if_version=1)
        box.client.update_job("report", schedule="0 10 * * *")
        assert box.client.job("report").calendar == "business"
        assert [one.name for one in box.client.calendars().calendars] == ["business"]


def test_a_box_without_the_calendar_says_so() -> None:
    with pytest.raises(InvalidInput, match="there is no calendar 'business'"):
        mainspring.testing.run(an_app(), start=FRIDAY)


def test_a_calendar_needs_a_schedule_that_recurs() -> None:
    with mainspring.testing.run(Mainspring("empty"), start=FRIDAY) as box:
        with pytest.raises(InvalidInput, match="calendar"):
            box.client.submit(task="x", calendar="business")
        with pytest.raises(InvalidInput, match="calendar"):
            box.client.submit(task="x", at="2026-04-01T00:00:00Z", calendar="business")


def test_a_job_without_a_fire_is_completed_until_the_calendar_allows_one() -> None:
    app = Mainspring("calendars")

    @app.cron("0 9 * * MON", calendar="business")
    @app.task
    def report() -> None: ...

    with mainspring.testing.run(app, start=FRIDAY, calendars={"business": WEEKDAYS}) as box:
        box.calendar("business", weekdays=["TUE"])
        view = box.client.job("report")
        assert (view.status, view.next_fire_at) == ("COMPLETED", None)
        box.calendar("business", WEEKDAYS)
        view = box.client.job("report")
        assert (view.status, view.next_fire_at) == ("SCHEDULED", datetime(2026, 3, 23, 9, tzinfo=UTC))
