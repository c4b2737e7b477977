"""One run for each nominal time, whatever becomes of the schedule: the same one again, another jitter, another
calendar, pauses. Time is set by the test."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import mainspring.testing
from mainspring import Mainspring
from mainspring.operations.calendars.recompute import Recomputer
from mainspring.sdk.client.core import Call, encode
from tests.conftest import TEMPLATE, Databases
from tests.operations.faked_time import START, TimedServer, timed_server

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
GRID = 10 * MINUTE
RULES: list[dict[str, Any]] = [
    {"cron": "*/10 * * * *"},
    {"every": "10m", "anchor": START.isoformat()},
    {"rrule": "FREQ=HOURLY;BYMINUTE=0,10,20,30,40,50"},
    {"cron": "*/10 * * * *", "timezone": "Asia/Kolkata", "max_runs": 999},
]
JITTERS = [None, "1m", "5m", "10m"]
# What is closed, in minutes from the beginning on. All of it begins and ends with a time of the rules.
CLOSED: list[list[tuple[int, int]]] = [[], [(20, 50)], [(60, 120)], [(10, 40), (70, 200)], [(0, 30), (50, 60)]]
Closed = list[tuple[datetime, datetime]]


def nominal_of(fire: datetime) -> datetime:
    """All rules have the same times, and no jitter is longer than the distance between them."""
    return fire - (fire - START) % GRID


def is_open(moment: datetime, closed: Closed) -> bool:
    return not any(begin <= moment < end for begin, end in closed)


def calendar_of(closed: Closed) -> dict[str, Any]:
    spans = [{"from": f"{begin:%Y-%m-%dT%H:%M}", "to": f"{end:%Y-%m-%dT%H:%M}"} for begin, end in closed]
    return {"timezone": "UTC", "dates": ["2099-01-01"], "blackouts": spans}


@dataclass(frozen=True)
class Definition:
    """Since when which times are closed, and whether what is closed waits for the next opening."""

    since: datetime
    closed: Closed
    waits: bool


class Books:
    """A job, and what is known of each of its nominal times."""

    def __init__(self, server: TimedServer, job_id: str, rule: dict[str, Any]) -> None:
        self.server, self.job_id = server, job_id
        self.schedule, self.begin = dict(rule), server.now
        self.closed: Closed = []  # by the calendar, if the job has one
        self.definitions = [Definition(server.now, [], waits=False)]
        self.missed: list[datetime] = []
        self.missed_ranges: list[tuple[datetime, datetime, int]] = []
        self.done: list[tuple[str, str, Any] | timedelta] = []  # calls, and time that passed
        self._dealt_with = START

    async def call(self, method: str, path: str, body: Any = None) -> None:
        answer = await self.server.api.request(method, path, json=body)
        assert answer.status_code in (200, 201, 202), answer.text
        self.done.append((method, path, body))

    async def step(self, verb: str, value: Any) -> None:
        job, before = f"/v1/jobs/{self.job_id}", self.definitions[-1]
        match verb:
            case "pass":
                await self.server.pass_by(value * MINUTE)
                self.done.append(value * MINUTE)
            case "sleep":
                await self.server.sleep_until(self.server.now + value * MINUTE)
            case "fire":
                await self.server.fire()
                self.done.append(timedelta(0))
            case "pause" | "resume" | "runNow":
                await self.call("POST", f"{job}:{verb}")
            case "deleted":  # and revived after a while
                await self.call("DELETE", job)
                await self.step("pass", value)
                before = self.definitions[-1]
                await self.call("POST", f"{job}:resume")
            case "same":
                await self.call(value, job, {"schedule": self.schedule})
            case "jitter":
                self.schedule = _with(self.schedule, jitter=value)
                await self.call("PATCH", job, {"schedule": {"jitter": value}})
            case "outside":
                named = {} if value is None else {"calendar": self.job_id, "outside": value}
                self.schedule = _with(_with(self.schedule, calendar=None, outside=None), **named)
                await self.call("PUT", job, {"schedule": named or {"calendar": None}})
            case "closed":
                self.closed = [(self.begin + first * MINUTE, self.begin + last * MINUTE) for first, last in value]
                await self.call("PUT", f"/v1/calendars/{self.job_id}", calendar_of(self.closed))
                for _ in range(2):  # what is due fires by the old rules
                    await Recomputer(self.server.assembly.store, self.server.assembly.lanes).calendar(1, self.job_id)
                    await self.server.fire()
                self.done.append(timedelta(0))
        await self._note(before)

    async def _note(self, before: Definition) -> None:
        closed, waits = self.closed if "calendar" in self.schedule else [], self.schedule.get("outside") == "next"
        self.definitions.append(Definition(self.server.now, closed, waits))
        rows = await self.server.connection.fetch(
            "select first_at, last_at, count from mainspring.missed_fires where job_id = $1"
            " order by missed_id offset $2",
            self.job_id, len(self.missed_ranges),
        )  # fmt: skip
        for row in rows:
            self.missed_ranges.append((row["first_at"], row["last_at"], row["count"]))
            first, last = nominal_of(row["first_at"]), nominal_of(row["last_at"])
            found = [moment for moment in _grid(first, last) if is_open(moment, before.closed)]
            assert len(found) == row["count"], (row, before)
            self.missed += found
        dealt_with = await self.server.connection.fetchval(
            "select last_nominal_for from mainspring.jobs where job_id = $1", self.job_id
        )
        if dealt_with is not None:
            assert dealt_with >= self._dealt_with
            self._dealt_with = dealt_with

    async def runs(self) -> list[datetime]:
        rows = await self.server.connection.fetch(
            "select scheduled_for, nominal_for from mainspring.runs where job_id = $1 and trigger is null"
            " union all"
            " select scheduled_for, nominal_for from mainspring.run_history where job_id = $1 and trigger is null",
            self.job_id,
        )
        assert all(row["nominal_for"] in (None, nominal_of(row["scheduled_for"])) for row in rows)
        return sorted(row["scheduled_for"] for row in rows)

    async def check(self) -> None:
        """Each time is dealt with once: it runs, or it is recorded as missed. For a time that was opened or closed when
        it had come and its jitter was not over, it is only promised that it runs once at most. So it is for a closed
        time that waits for the next opening: it is one with that, unless the calendar opens before."""
        dealt_with = Counter([*map(nominal_of, await self.runs()), *self.missed])
        assert set(dealt_with.values()) <= {1}, [moment for moment, times in dealt_with.items() if times > 1]
        for moment in _grid(self.begin + GRID, self.server.now - 2 * GRID):
            opened, waits = zip(*self._in_force(moment), strict=True)
            if all(opened):
                assert moment in dealt_with, moment
            elif not any(opened) and not any(waits):
                assert moment not in dealt_with, moment

    def _in_force(self, moment: datetime) -> list[tuple[bool, bool]]:
        """Whether the time is open, and waits if it is not, by the definitions while it is due. A change at the moment
        itself comes after what is due then."""
        before = [one for one in self.definitions if one.since < moment]
        during = [one for one in self.definitions if moment <= one.since <= moment + GRID]
        return [(is_open(moment, one.closed), one.waits) for one in [before[-1], *during]]


def _with(schedule: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {name: value for name, value in (schedule | members).items() if value is not None}


def _grid(first: datetime, last: datetime) -> list[datetime]:
    return [first + number * GRID for number in range((last - first) // GRID + 1)]


minutes = st.integers(1, 25) | st.floats(0.1, 12.0)
steps = st.one_of(
    st.tuples(st.just("pass"), minutes),
    st.tuples(st.sampled_from(["pause", "resume", "runNow", "fire"]), st.none()),
    st.tuples(st.just("deleted"), minutes),
    st.tuples(st.just("same"), st.sampled_from(["PUT", "PATCH"])),
    st.tuples(st.just("jitter"), st.sampled_from(JITTERS)),
    st.tuples(st.just("outside"), st.sampled_from([None, "skip", "next"])),
    st.tuples(st.just("closed"), st.sampled_from(CLOSED)),
)
with_downtime = steps | st.tuples(st.just("sleep"), minutes)
few = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@asynccontextmanager
async def told(databases: Databases, rule: dict[str, Any], story: list[tuple[str, Any]]) -> AsyncIterator[Books]:
    """Each story has a server of its own and begins at the same time: jitter depends on the id of the job and on the
    date, and a story that fails must fail again."""
    async with databases.a_database(TEMPLATE) as url, timed_server(url) as server:
        books = Books(server, "target", rule)
        await _tell(books, rule, story)
        yield books


async def _tell(books: Books, rule: dict[str, Any], story: list[tuple[str, Any]]) -> None:
    job_id = books.job_id
    await books.call("PUT", f"/v1/calendars/{job_id}", calendar_of([]))
    job = {"task": "noop", "overlap": "allow", "misfire": {"policy": "all", "cap": 1000}}
    await books.call("POST", "/v1/jobs", {**job, "job_id": job_id, "schedule": rule})
    for verb, value in [*story, ("resume", None), ("pass", 31)]:
        await books.step(verb, value)


@pytest.mark.slow
@given(st.sampled_from(RULES), st.lists(with_downtime, min_size=3, max_size=14))
@example(
    RULES[0], [("jitter", "10m"), ("pass", 12), ("same", "PUT"), ("jitter", "5m"), ("pass", 25), ("same", "PATCH")]
)
@example(RULES[1], [("jitter", "10m"), ("pass", 11), ("pause", None), ("jitter", "1m"), ("pass", 1), ("jitter", "10m")])
@settings(few, max_examples=8)
async def test_each_nominal_time_is_dealt_with_once(
    databases: Databases, rule: dict[str, Any], story: list[tuple[str, Any]]
) -> None:
    async with told(databases, rule, story) as books:
        await books.check()


@pytest.mark.slow
@given(st.sampled_from(RULES), st.lists(steps, min_size=3, max_size=14))
@example(RULES[0], [("jitter", "5m"), ("pass", 10.15), ("jitter", None), ("jitter", "1m")])
@example(RULES[0], [("jitter", "1m"), ("pass", 10.0), ("jitter", None), ("pause", None)])
@example(
    RULES[0], [("jitter", "1m"), ("pass", 10.0), ("jitter", None), ("pause", None), ("pass", 11), ("jitter", "5m")]
)
@example(RULES[0], [("outside", "next"), ("closed", [(10, 40)]), ("pass", 15), ("closed", []), ("pause", None)])
@example(RULES[0], [("jitter", "1m"), ("pass", 10.0), ("jitter", None), ("deleted", 12)])
@few
async def test_the_box_does_the_same(databases: Databases, rule: dict[str, Any], story: list[tuple[str, Any]]) -> None:
    async with told(databases, rule, story) as books:
        expected = await books.runs(), books.missed_ranges
    assert in_the_box(books) == expected


def in_the_box(books: Books) -> tuple[list[datetime], list[tuple[datetime, datetime, int]]]:
    """The fires and the missed ranges of the same story, told to the test box."""
    app = Mainspring()

    @app.task("noop")
    def noop() -> None: ...

    with mainspring.testing.run(app, start=books.begin) as box:
        for one in books.done:
            if isinstance(one, timedelta):
                box.advance(one)
                continue
            method, path, body = one
            if path.startswith("/v1/jobs/") and method == "PUT":
                method = "PATCH"  # the client has one of them
            box.client.send(Call(method, path, lambda _: None, body=None if body is None else encode(body)))
        runs = [run.scheduled_for for run in box.runs_of(books.job_id) if run.trigger == "schedule"]
        missed = [(one.first, one.last, one.count) for one in reversed(box.client.missed(books.job_id))]
    return sorted(runs), missed
