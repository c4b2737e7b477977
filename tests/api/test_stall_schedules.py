"""No schedule, calendar or backfill holds up the loop for more than 100 ms of CPU time, whatever it says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from time import process_time
from typing import Any

import pytest

from mainspring.roles.assembly import Assembly
from tests.api.slices import Slices, ask, listening, measured, request, within_budget
from tests.sizes import chosen

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

DAYS = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]
# Christmas is a holiday of the last one alone.
COUNTRIES = "IL TR CN JP DZ MA SA AE VN TH AZ TN UZ KZ IR AF BD PK NP DE".split()  # noqa: SIM905
ZONES = ["Australia/Lord_Howe", "Europe/Berlin", "Africa/Casablanca", "America/New_York"]
HOLIDAYS = {"holidays": [{"country": country} for country in COUNTRIES], "timezone": "America/New_York"}
CALENDARS: dict[str, dict[str, Any]] = {
    "holidays": HOLIDAYS,
    "halves": {
        **HOLIDAYS,
        "blackouts": [
            {"days": DAYS, "from": f"{n // 2:02}:{n % 2 * 30:02}", "to": f"{n // 2:02}:{n % 2 * 30 + 29:02}"}
            for n in range(48)
        ],
    },
    "rare": {**HOLIDAYS, "hours": {"from": "12:00", "to": "12:05"}},
    "dates": {"dates": [f"{2027 + n // 336}-{n // 28 % 12 + 1:02}-{n % 28 + 1:02}" for n in range(0, 2000, 2)]},
}
RULES: list[dict[str, Any]] = [
    {"cron": "* * * * * *", "timezone": ZONES[0]},
    {"cron": "59 59 23 29 2 *", "timezone": ZONES[1]},
    {"cron": "0 0 25 12 *"},
    {"every": "86688s"},
    {"rrule": "FREQ=MINUTELY;BYSECOND=0,1,2,3,4,5,6,7,8,9;BYSETPOS=-1,-2,3", "timezone": ZONES[0], "jitter": "1s"},
    {"rrule": "DTSTART:19000101T000000\nRRULE:FREQ=MINUTELY;COUNT=900000000", "timezone": ZONES[2]},
]
BATCHES: dict[str, Callable[[int], dict[str, Any]]] = {
    "hashes": lambda n: {"cron": f"H(0-{n % 59 + 1}) H */31 H H", "timezone": ZONES[n % 4]},
    "leap days": lambda n: {"cron": f"{n % 60} {n // 60 % 24} 29 2 {n % 7}", "timezone": ZONES[n % 4]},
    "rules": lambda n: {
        "rrule": f"FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO;BYHOUR={n % 24};BYMINUTE={n // 24}",
        "timezone": ZONES[n % 4],
    },
    "jitter": lambda n: {"rrule": f"FREQ=MONTHLY;BYDAY=-1FR;BYHOUR={n % 24};BYMINUTE={n // 24}", "jitter": "1h"},
    "hours": lambda n: {"cron": f"{n % 60} {n % 60} {n // 60} * * *", "calendar": "rare", "outside": "next"},
    "drift": lambda n: {"every": 86688 + n / 1000, "calendar": "rare"},
    "christmas": lambda n: {"cron": f"{n % 60} {n // 60} 0 25 12 *", "calendar": "halves", "outside": "next"},
}


@pytest.fixture
async def port(assembly: Assembly) -> AsyncIterator[int]:
    async with listening(assembly) as listened:
        await ask(listened, request("GET", "/v1/jobs"))
        yield listened


@pytest.fixture
def slices() -> Iterator[Slices]:
    with measured() as found:
        yield found


async def test_calendars_and_their_previews(port: int, slices: Slices) -> None:
    for name, rules in CALENDARS.items():
        assert (await _within(port, slices, "PUT", f"/v1/calendars/{name}", rules))[0] in (200, 201)
    for number, rule in enumerate(RULES):
        name, outside = list(CALENDARS)[(number + 1) % 4], ("next", "skip")[number % 2]
        body = {"schedule": {**rule, "calendar": name, "outside": outside}, "n": 1000}
        status, found = await _within(port, slices, "POST", "/v1/schedules:preview", body)
        assert status == 200 or found["code"] == "calendar_leaves_no_fire", found


@pytest.mark.parametrize("name", chosen(BATCHES, ("leap days", "rules", "christmas")))
async def test_a_batch_of_hostile_schedules(port: int, slices: Slices, name: str) -> None:
    for calendar in ("halves", "rare"):
        await _within(port, slices, "PUT", f"/v1/calendars/{calendar}", CALENDARS[calendar])
    jobs = [{"task": "x", "schedule": BATCHES[name](n)} for n in range(500)]
    status, found = await _within(port, slices, "POST", "/v1/jobs:batch", jobs)
    # Whether the slow drift meets an opening depends on the time of the test.
    assert status == 201 or (name == "drift" and status == 422), found


async def test_a_backfill_counts_or_refuses(port: int, slices: Slices) -> None:
    for name in ("halves", "dates"):
        await _within(port, slices, "PUT", f"/v1/calendars/{name}", CALENDARS[name])
    century = {"from": "1926-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}
    for number, (schedule, code) in enumerate(
        [
            ({"cron": "* * * * * *", "timezone": ZONES[0]}, "too_many_fires"),
            ({"rrule": "DTSTART:19260101T000000\nRRULE:FREQ=MINUTELY;BYSECOND=7"}, "too_many_fires"),
            ({"cron": "* * * * *", "calendar": "halves", "outside": "next"}, "invalid_range"),
            ({"cron": "* * * * *", "calendar": "dates", "outside": "next"}, "too_many_fires"),
        ]
    ):
        job = {"task": "x", "job_id": f"j{number}", "schedule": schedule}
        assert (await _within(port, slices, "POST", "/v1/jobs", job))[0] == 201
        status, found = await _within(port, slices, "POST", f"/v1/jobs/j{number}:backfill", century)
        assert (status, found["code"]) == (422, code), found
        assert found["field"] == "from" and found["hint"]


async def test_the_heat_map_of_many_schedules(port: int, slices: Slices) -> None:
    await _within(port, slices, "PUT", "/v1/calendars/halves", CALENDARS["halves"])
    schedules = [BATCHES[name](n) for name in ("leap days", "jitter", "christmas") for n in range(200)]
    schedules += [{"cron": f"{n} * * * * *", "timezone": zone} for n in range(60) for zone in ZONES]
    schedules += [{"every": 1 + n / 1000} for n in range(1000)]
    schedules += [{"cron": f"*/{n + 2} * * * *", "calendar": "halves", "outside": "next"} for n in range(50)]
    status, _ = await _within(
        port, slices, "POST", "/v1/jobs:batch", [{"task": "x", "schedule": one} for one in schedules]
    )
    assert status == 201
    for span in ("day", "week"):
        began = process_time()
        status, _ = await _within(port, slices, "GET", f"/v1/insights/heatmap?range={span}")
        assert status == 200
        assert process_time() - began < 1.0
    assert (await _within(port, slices, "GET", "/v1/insights/upcoming?limit=1000"))[0] == 200


async def _within(
    port: int, slices: Slices, method: str, path: str, body: object | None = None
) -> tuple[int, dict[str, Any]]:
    data = b"" if body is None else json.dumps(body).encode()
    status, answer = await within_budget(
        slices, lambda: ask(port, request(method, path, data)), f"{method} {path} {data[:80]!r}"
    )
    assert status < 500, answer
    return status, json.loads(answer)
