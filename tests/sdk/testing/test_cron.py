"""Cron of an application, on the clock of a box: `H` and what happens when clocks are moved."""

from __future__ import annotations

import pytest

import mainspring.testing
from mainspring import Context, InvalidInput, Mainspring
from mainspring.sdk.client.job_fields import job_patch, job_request


def wall_times(start: str, cron: str, **options: object) -> list[str]:
    """When a job runs within two days, as UTC times."""
    app, moments = Mainspring(), list[str]()

    @app.cron(cron, timezone="Europe/Berlin", **options)  # type: ignore[arg-type]
    @app.task
    def note(ctx: Context) -> None:
        moments.append(f"{ctx.scheduled_for:%dT%H:%M}")

    with mainspring.testing.run(app, start=start) as box:
        box.advance("30h")
    return moments


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["29T01:00"]),
        ({"dst": {"gap": "shift"}}, ["29T01:00"]),
        ({"dst": {"gap": "skip"}}, []),
    ],
)
def test_a_skipped_time_runs_right_after_the_gap_or_not_at_all(options: dict[str, object], expected: list[str]) -> None:
    assert wall_times("2026-03-28T12:00:00Z", "30 2 * * *", **options) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["25T00:30"]),
        ({"dst": {"overlap": "first"}}, ["25T00:30"]),
        ({"dst": {"overlap": "last"}}, ["25T01:30"]),
        ({"dst": {"overlap": "both"}}, ["25T00:30", "25T01:30"]),
    ],
)
def test_of_a_repeated_time_the_first_the_last_or_both_run(options: dict[str, object], expected: list[str]) -> None:
    assert wall_times("2026-10-24T12:00:00Z", "30 2 * * *", **options) == expected


def test_h_gives_jobs_of_one_line_times_of_their_own() -> None:
    app = Mainspring()
    times: dict[str, set[int]] = {}
    for name in ("a", "b", "c", "d"):

        @app.cron("H * * * *", job_id=name)
        @app.task(name)
        def note(ctx: Context) -> None:
            times.setdefault(ctx.job_id, set()).add(ctx.scheduled_for.minute)

    with mainspring.testing.run(app, start="2026-01-01T00:00:00Z") as box:
        box.advance("5h")
    assert all(len(minutes) == 1 for minutes in times.values()), "the same minute of every hour"
    assert len(set.union(*times.values())) > 1


def test_a_mistake_in_dst_fails_at_import() -> None:
    app = Mainspring()
    with pytest.raises(ValueError, match=r"@app.cron\('@daily', dst=\{'gap': 'skip'\}\) over .*has no effect in UTC"):
        app.cron("@daily", dst={"gap": "skip"})(app.task("x")(nothing))


def nothing() -> None:
    pass


def test_dst_becomes_part_of_the_schedule() -> None:
    dst = {"gap": "skip"}
    assert job_request({"task": "a", "cron": "0 2 * * *", "timezone": "Europe/Berlin", "dst": dst})["schedule"] == {
        "cron": "0 2 * * *",
        "timezone": "Europe/Berlin",
        "dst": dst,
    }
    assert job_request({"schedule": "0 2 * * *", "dst": dst})["schedule"] == {"cron": "0 2 * * *", "dst": dst}
    assert job_request({"cron_expression": "0 2 * * *", "dst": dst}) == {"schedule": {"cron": "0 2 * * *", "dst": dst}}
    assert job_patch({"priority": "high", "dst": None}) == {"priority": "high", "schedule": {"dst": None}}
    assert job_patch({"dst": {"gap": "skip"}, "jitter": "1m"}) == {"schedule": {"dst": {"gap": "skip"}, "jitter": "1m"}}
    assert job_patch({"cron": "0 9 * * *", "dst": None, "jitter": None}) == {"schedule": {"cron": "0 9 * * *"}}
    for fields in ({"dst": dst}, {"schedule": "manual", "dst": dst}):
        with pytest.raises(InvalidInput, match="dst needs cron"):
            job_request(fields)
