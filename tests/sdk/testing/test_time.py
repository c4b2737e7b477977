"""The clock of a box: schedules fire at their exact times."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

import mainspring.testing
from mainspring import Conflict, Context, InvalidInput, Mainspring
from mainspring.sdk.testing import engine
from mainspring.testing import Box

START = "2026-01-01T00:00:00Z"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def noted(app: Mainspring, name: str = "note") -> list[datetime]:
    """Register a task that records its scheduled times."""
    moments: list[datetime] = []

    @app.task(name)
    def note(ctx: Context) -> None:
        moments.append(ctx.scheduled_for)

    return moments


def test_a_year_of_an_hourly_cron_takes_about_a_second() -> None:
    app = Mainspring()
    moments = noted(app)
    app.cron("@hourly")(app.tasks["note"])
    began = time.process_time()
    with mainspring.testing.run(app, start=START) as box:
        ended = box.advance("365d")
    taken = time.process_time() - began
    assert moments == [BEGIN + timedelta(hours=hour) for hour in range(1, 8761)]
    assert [run.scheduled_for for run in ended] == moments
    assert {str(run.status) for run in box.runs} == {"SUCCESS"}
    assert taken < 10  # 0.5 s on an idle machine


def test_a_cron_keeps_to_the_wall_clock_of_its_zone() -> None:
    app = Mainspring()
    moments = noted(app)
    app.cron("0 9 * * *", timezone="Europe/Berlin")(app.tasks["note"])
    with mainspring.testing.run(app, start="2026-03-27T12:00:00Z") as box:  # summer time begins on the 29th
        box.advance("3d")
    assert [moment.hour for moment in moments] == [8, 7, 7]


def test_an_interval_begins_with_the_box() -> None:
    app = Mainspring()
    moments = noted(app)
    app.every("90s")(app.tasks["note"])
    with mainspring.testing.run(app, start=START) as box:
        box.advance(timedelta(minutes=5))
    assert moments == [BEGIN + timedelta(seconds=90 * n) for n in (1, 2, 3)]


def test_schedules_of_the_application_belong_to_it_as_at_a_server() -> None:
    app = Mainspring("billing")

    @app.cron("@daily")
    @app.task
    def report() -> None: ...

    with mainspring.testing.run(app, start=START) as box:
        box.client.submit(task="report", cron="@daily", job_id="by-hand")
        assert [job.job_id for job in box.client.jobs(declared_by="billing").jobs] == ["report"]
        box.client.update_job("report", priority="high")
        assert box.client.job("report").declared_by == "billing"
        assert box.client.job("by-hand").declared_by is None
        with pytest.raises(InvalidInput, match="a job that runs once"):
            box.client.submit(task="report", declared_by="billing")


def test_two_schedules_take_turns_in_the_order_of_time() -> None:
    app = Mainspring()
    told: list[str] = []

    @app.every("20m")
    @app.task
    def fast(ctx: Context) -> None:
        told.append(f"fast {ctx.scheduled_for:%H:%M}")

    @app.every("30m")
    @app.task
    def slow(ctx: Context) -> None:
        told.append(f"slow {ctx.scheduled_for:%H:%M}")

    with mainspring.testing.run(app, start=START) as box:
        box.advance("1h")
    assert told == ["fast 00:20", "slow 00:30", "fast 00:40", "fast 01:00", "slow 01:00"]


def test_nothing_happens_before_its_time() -> None:
    app = Mainspring()
    moments = noted(app)
    with mainspring.testing.run(app, start=START) as box:
        handle = app.tasks["note"].submit(at=BEGIN + timedelta(days=1))
        assert (handle.status(), box.runs) == ("SCHEDULED", [])
        box.advance("23h59m59s")
        assert moments == []
        [run] = box.advance(1)
        assert (run.scheduled_for, run.started_at, box.now) == (BEGIN + timedelta(days=1),) * 3
        assert handle.status() == "SUCCESS"


def test_a_time_that_has_passed_is_made_up_for_at_once() -> None:
    app = Mainspring()
    moments = noted(app)
    with mainspring.testing.run(app, start=START) as box:
        app.tasks["note"].submit(at="2025-12-31T12:00:00Z")
        box.run_pending()
        assert box.now == BEGIN
    assert moments == [BEGIN - timedelta(hours=12)]


def test_advance_to_goes_to_that_moment_and_not_back() -> None:
    with mainspring.testing.run(Mainspring(), start=START) as box:
        box.advance_to("2026-02-01T00:00:00+01:00")
        assert box.now == datetime(2026, 1, 31, 23, tzinfo=UTC)
        with pytest.raises(InvalidInput, match="is before"):
            box.advance_to(BEGIN)
        with pytest.raises(InvalidInput, match="no time zone"):
            box.advance_to(datetime(2026, 3, 1))


def test_a_box_without_a_start_begins_at_the_real_time() -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    assert before <= Box(Mainspring()).now <= datetime.now(UTC)


def test_a_paused_job_fires_no_more_and_its_fires_are_recorded_as_missed() -> None:
    app = Mainspring()
    moments = noted(app)
    app.cron("@hourly")(app.tasks["note"])
    with mainspring.testing.run(app, start=START) as box:
        box.advance("2h")
        assert box.client.pause("note").status == "PAUSED"
        assert box.advance("5h30m") == []
        assert box.client.upcoming("note", n=1).fires == [BEGIN + timedelta(hours=8)]
        box.client.resume("note")
        box.advance("1h")
        [gap] = box.client.missed("note")
    assert [moment.hour for moment in moments] == [1, 2, 8]
    assert (gap.first.hour, gap.last.hour, gap.count, gap.reason) == (3, 7, 5, "paused")


def test_a_changed_schedule_counts_from_now_on() -> None:
    app = Mainspring()
    moments = noted(app)
    app.cron("@hourly")(app.tasks["note"])
    with mainspring.testing.run(app, start=START) as box:
        box.advance("1h")
        box.client.update_job("note", cron="30 * * * *")
        box.advance("2h")
        assert box.client.job("note").cron_expression == "30 * * * *"
    assert [(moment.hour, moment.minute) for moment in moments] == [(1, 0), (1, 30), (2, 30)]


def test_a_task_that_submits_itself_for_ever_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MOST_AT_ONCE", 500)
    app = Mainspring()

    @app.task
    def again() -> None:
        again.submit()

    with mainspring.testing.run(app, start=START) as box:
        again.submit()
        with pytest.raises(RuntimeError, match="does a task submit itself"):
            box.run_pending()


def test_a_change_to_a_time_that_has_passed_fires_once_for_the_time_of_the_change() -> None:
    app = Mainspring()

    @app.cron("0 0 * * *", name="report")
    def report() -> None: ...

    with mainspring.testing.run(app, start=START) as box:
        changed = box.client.update_job("report", at="2020-01-01T00:00:00Z")
        assert isinstance(changed.warnings, list) and "recurring" in changed.warnings[0]
        assert changed.schedule_time == datetime(2020, 1, 1, tzinfo=UTC) and changed.next_fire_at == box.now
        assert box.client.update_job("report", at="2020-01-01T00:00:00Z").version == changed.version
        moment = box.now
        box.run_pending()
        [run] = box.runs
        assert run.scheduled_for == moment == box.client.run(run.run_id).lag_from
        assert box.client.job("report").schedule_time == datetime(2020, 1, 1, tzinfo=UTC)
        box.client.update_job("report", at="2020-01-01T00:00:00Z")
        with pytest.raises(Conflict, match="has fired"):
            box.client.update_job("report", at="2019-01-01T00:00:00Z")
        box.run_pending()
        assert len(box.runs) == 1
