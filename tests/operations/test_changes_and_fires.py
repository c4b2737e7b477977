"""Changes swallow no fire: what was due before a change is run by the old definition or recorded as missed.

Runs + skipped + missed = fires, for every order of changes, fires and the passing of time.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.roles.assembly import Assembly
from tests.operations.firing import fire_due
from tests.store.rows import ended, live, until_blocking

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
HOURLY = {"every": "1h"}
EARLY = datetime(2000, 1, 1, tzinfo=UTC)


async def make(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def due_since(connection: asyncpg.Connection, job_id: str, seconds: float) -> datetime:
    """Let the job be due since that many seconds: all its times move into the past."""
    schedule = """jsonb_set(schedule::jsonb, array[k.name],
                            to_jsonb((schedule ->> k.name)::timestamptz + (t.due - next_fire_at)))"""
    moment: datetime = await connection.fetchval(
        f"""update mainspring.jobs
            set next_fire_at = t.due, schedule = {schedule}
            from (select clock_timestamp() - $2 * interval '1 second' as due) as t,
                 unnest(array['anchor', 'at']) as k (name)
            where job_id = $1 and schedule ->> k.name is not null returning next_fire_at""",
        job_id,
        seconds,
    )
    assert moment is not None
    return moment


async def missed(api: httpx.AsyncClient, job_id: str) -> list[tuple[datetime, int, str]]:
    rows = (await api.get(f"/v1/jobs/{job_id}/missed?limit=100")).json()
    return [(datetime.fromisoformat(row["first"]), row["count"], row["reason"]) for row in reversed(rows)]


async def runs_of(connection: asyncpg.Connection, job_id: str) -> list[tuple[datetime, Any]]:
    return [(row["scheduled_for"], row["payload"]) for row in await live(connection, job_id)]


@pytest.mark.parametrize("seconds", [0.001, 0.021, 3.0])
@pytest.mark.parametrize(
    "change",
    [{"schedule": {"every": "2h"}}, {"schedule": "manual"}, {"payload": {"n": 2}}, {"overlap": "allow"}],
    ids=str,
)
async def test_a_fire_that_is_due_when_a_job_is_changed_runs_by_the_old_definition(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, change: Any, seconds: float
) -> None:
    job_id = await make(api, schedule=HOURLY, payload={"n": 1})
    due = await due_since(connection, job_id, seconds)
    changed = await api.patch(f"/v1/jobs/{job_id}", json=change)
    assert changed.status_code == 200, changed.text
    assert await runs_of(connection, job_id) == [(due, '{"n":1}')]
    assert await fire_due(assembly, connection) == 0
    following = changed.json()["next_fire_at"]
    if "schedule" not in change:
        assert datetime.fromisoformat(following) == due + timedelta(hours=1)
    elif change["schedule"] == "manual":
        assert following is None
    else:
        assert datetime.fromisoformat(following) > datetime.now(UTC)


@pytest.mark.parametrize(
    ("policy", "ran", "lost"), [("skip", 1, 10), ("once", 1, 10), ("all", 11, 0)], ids=["skip", "once", "all"]
)
async def test_what_is_late_when_a_job_is_changed_follows_the_old_policy(
    api: httpx.AsyncClient, connection: asyncpg.Connection, policy: str, ran: int, lost: int
) -> None:
    job_id = await make(api, schedule={"every": "1m"}, overlap="allow", misfire={"policy": policy})
    due = await due_since(connection, job_id, 600.5)
    other = "all" if policy == "skip" else "skip"
    await api.patch(f"/v1/jobs/{job_id}", json={"misfire": {"policy": other}, "schedule": {"every": "2h"}})
    runs = await runs_of(connection, job_id)
    assert len(runs) == ran
    assert runs[-1][0] == due + timedelta(minutes=10)
    assert sum(count for _, count, _ in await missed(api, job_id)) == lost


async def test_the_overlap_rule_holds_for_a_fire_that_a_change_makes(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule=HOURLY)
    await api.post(f"/v1/jobs/{job_id}:runNow")
    due = await due_since(connection, job_id, 1)
    await api.patch(f"/v1/jobs/{job_id}", json={"overlap": "allow", "schedule": {"every": "2h"}})
    [skip] = await ended(connection, job_id)
    assert (skip["scheduled_for"], skip["reason"]) == (due, "overlap: an earlier run of this job was still alive")


async def test_a_change_that_is_refused_fires_nothing(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule=HOURLY)
    due = await due_since(connection, job_id, 1)
    for headers, body in (({"If-Match": '"7"'}, {"payload": {}}), ({}, {"schedule": "61 * * * *"})):
        refused = await api.patch(f"/v1/jobs/{job_id}", json=body, headers=headers)
        assert refused.status_code in (412, 422), refused.text
    assert await runs_of(connection, job_id) == []
    assert await fire_due(assembly, connection) == 1
    assert [moment for moment, _ in await runs_of(connection, job_id)] == [due]


async def test_a_fire_that_was_prepared_before_the_change_is_not_made_twice(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    node = assembly.node
    assert node is not None
    job_id = await make(api, schedule=HOURLY, overlap="allow")
    due = await due_since(connection, job_id, 1)
    await node.leaser.run_once(connection)
    await node.loader.run_once()
    prepared = node._wheel.advance(node._clock.timestamp())
    await api.patch(f"/v1/jobs/{job_id}", json={"payload": {"n": 2}})
    assert await node.firer.fire(prepared) == 0
    assert [moment for moment, _ in await runs_of(connection, job_id)] == [due]


async def test_the_time_of_a_change_is_read_when_the_lock_is_held(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """A fire that becomes due while the change waits for the row belongs to the old definition."""
    job_id = await make(api, schedule=HOURLY)
    due = await due_since(connection, job_id, -0.5)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("select from mainspring.jobs for no key update")
    change = asyncio.create_task(api.patch(f"/v1/jobs/{job_id}", json={"schedule": {"every": "2h"}}))
    await until_blocking(connection, connection.get_server_pid())
    while not await connection.fetchval("select clock_timestamp() >= $1", due):
        pass
    await transaction.commit()
    assert (await change).status_code == 200
    assert [moment for moment, _ in await runs_of(connection, job_id)] == [due]


async def test_a_one_time_job_that_is_due_cannot_be_changed_any_more_and_the_scheduler_fires_it(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    """A change that is refused changes nothing. So it does not fire the job either."""
    for fields in ({}, {"job_id": "launch"}):
        job_id = await make(api, schedule={"at": "2099-01-01T00:00:00Z"}, payload={"n": 1}, **fields)
        due = await due_since(connection, job_id, 0.01)
        before = await connection.fetch("select * from mainspring.jobs")
        for fired in (False, True):
            refused = await api.patch(f"/v1/jobs/{job_id}", json={"schedule": {"at": "2099-01-01T00:00:00Z"}})
            assert (refused.status_code, refused.json()["code"]) == (409, "already_fired")
            if not fired:
                assert await connection.fetch("select * from mainspring.jobs") == before
                assert await live(connection, job_id) == []
                assert await fire_due(assembly, connection) == 1
        [run] = await live(connection, job_id)
        assert (run["scheduled_for"], run["trigger"], run["payload"]) == (due, "at", '{"n":1}')
        assert (run["job_id"], str(run["run_id"]) == job_id) == (fields.get("job_id"), not fields)


async def test_a_one_time_job_that_cannot_be_fired_can_be_changed(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule={"at": "2099-01-01T00:00:00Z"}, job_id="launch")
    due = await due_since(connection, job_id, 1)
    await connection.execute("alter table mainspring.runs add constraint no check (job_id is null) not valid")
    changed = await api.patch(f"/v1/jobs/{job_id}", json={"schedule": {"at": "2099-01-01T00:00:00Z"}})
    assert changed.status_code == 200, changed.text
    assert await missed(api, job_id) == [(due, 1, "it could not be fired")]


async def test_a_one_time_job_that_is_later_than_its_policy_allows_is_missed_and_changed(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule={"at": "2099-01-01T00:00:00Z"}, misfire={"policy": "skip"})
    due = await due_since(connection, job_id, 60)
    changed = (await api.patch(f"/v1/jobs/{job_id}", json={"schedule": {"at": "2099-01-01T00:00:00Z"}})).json()
    assert (changed["status"], changed["next_fire_at"]) == ("SCHEDULED", "2099-01-01T00:00:00Z")
    assert await missed(api, job_id) == [(due, 1, "late: misfire policy skip")]
    assert await live(connection, job_id) == []


async def test_a_job_that_cannot_be_fired_can_be_changed(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule=HOURLY, overlap="allow")
    due = await due_since(connection, job_id, 1)
    await connection.execute("alter table mainspring.runs add constraint no check (job_id is null) not valid")
    changed = await api.patch(f"/v1/jobs/{job_id}", json={"payload": {"n": 2}})
    assert changed.status_code == 200, changed.text
    assert await missed(api, job_id) == [(due, 1, "it could not be fired")]
    assert datetime.fromisoformat(changed.json()["next_fire_at"]) == due + timedelta(hours=1)


async def test_a_pause_records_what_was_due_before_it_and_nothing_fires_after_it(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    job_id = await make(api, schedule=HOURLY)
    due = await due_since(connection, job_id, 0.01)
    await api.post(f"/v1/jobs/{job_id}:pause")
    assert await missed(api, job_id) == [(due, 1, "paused")]
    resumed = (await api.post(f"/v1/jobs/{job_id}:resume")).json()
    assert datetime.fromisoformat(resumed["next_fire_at"]) == due + timedelta(hours=1)
    assert await missed(api, job_id) == [(due, 1, "paused")]
    assert await fire_due(assembly, connection) == 0


@pytest.mark.parametrize("schedule", [{"every": "10m"}, {"at": "2099-01-01T00:00:00Z"}], ids=str)
async def test_a_new_schedule_in_a_pause_records_what_the_pause_held_back(
    api: httpx.AsyncClient, connection: asyncpg.Connection, schedule: Any
) -> None:
    job_id = await make(api, schedule=schedule)
    due = await due_since(connection, job_id, 3599)
    await connection.execute(
        "update mainspring.jobs set status = 2, paused_from = next_fire_at, next_fire_at = null where job_id = $1",
        job_id,
    )
    changed = (await api.patch(f"/v1/jobs/{job_id}", json={"schedule": {"every": "7h"}})).json()
    assert (changed["status"], changed["next_fire_at"]) == ("PAUSED", None)
    assert await missed(api, job_id) == [(due, 6 if "every" in schedule else 1, "paused")]
    await api.post(f"/v1/jobs/{job_id}:resume")
    assert len(await missed(api, job_id)) == 1


@pytest.mark.parametrize("schedule", [{"every": "10m"}, {"at": "2099-01-01T00:00:00Z"}], ids=str)
@pytest.mark.parametrize("paused", [False, True])
async def test_a_delete_records_what_was_due(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, schedule: Any, paused: bool
) -> None:
    job_id = await make(api, schedule=schedule)
    due = await due_since(connection, job_id, 1)
    if paused:
        await connection.execute(
            "update mainspring.jobs set status = 2, paused_from = next_fire_at, next_fire_at = null where job_id = $1",
            job_id,
        )
    for _ in range(2):
        assert (await api.delete(f"/v1/jobs/{job_id}")).status_code == 200
    assert await missed(api, job_id) == [(due, 1, "paused" if paused else "deleted")]
    assert await fire_due(assembly, connection) == 0


# -- every order of events

_STEPS = st.one_of(
    st.tuples(st.just("pass"), st.integers(1, 25)),
    st.tuples(st.sampled_from(["fire", "prepare", "pause", "resume", "runNow"]), st.none()),
    st.tuples(st.just("every"), st.integers(2, 9)),
    st.tuples(st.just("policy"), st.sampled_from(["skip", "once", "all"])),
    st.tuples(st.just("overlap"), st.sampled_from(["skip", "allow"])),
)
few = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@given(st.integers(2, 9), st.lists(_STEPS, min_size=2, max_size=12))
@few
async def test_runs_and_skipped_and_missed_are_all_fires_whatever_happens(
    api: httpx.AsyncClient,
    assembly: Assembly,
    connection: asyncpg.Connection,
    seconds: int,
    steps: list[tuple[str, Any]],
) -> None:
    job_id = await make(api, schedule={"every": seconds})
    books = Books(api, assembly, connection, job_id)
    await books.note()
    for verb, value in steps:
        await books.step(verb, value)
    assert (await api.delete(f"/v1/jobs/{job_id}")).status_code == 200
    await books.note()
    assert await books.found() == books.expected, steps


class Books:
    """A job and the fires that it must have had. Time passes by moving what is stored about the job into the past;
    `shift` is how far it was moved, and all times here are of the moved clock."""

    def __init__(self, api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, job_id: str) -> None:
        assert assembly.node is not None
        self._api, self._node, self._connection, self._job_id = api, assembly.node, connection, job_id
        self._shift = timedelta()
        self._anchor, self._interval, self._since = datetime.max.replace(tzinfo=UTC), SECOND, EARLY
        self._prepared: list[Any] = []
        self.expected: list[datetime] = []

    async def note(self) -> None:
        """After a change: the fires until `updated_at` are those of the definition before it."""
        row = await self._connection.fetchrow(
            """select updated_at, (schedule ->> 'anchor')::timestamptz as anchor,
                      (schedule ->> 'every')::float8 as every
               from mainspring.jobs where job_id = $1""",
            self._job_id,
        )
        until = row["updated_at"] + self._shift
        moment = self._anchor
        while moment <= until:
            if moment > self._since:
                self.expected.append(moment)
            moment += self._interval
        self._anchor, self._interval = row["anchor"] + self._shift, row["every"] * SECOND
        self._since = until

    async def step(self, verb: str, value: Any) -> None:
        match verb:
            case "pass":
                await self._pass(value * SECOND)
            case "prepare":
                await self._prepare()
            case "fire":
                await self._node.firer.fire(self._prepared)
                await self._prepare()
                await self._node.firer.fire(self._prepared)
            case "pause" | "resume" | "runNow":
                assert (await self._api.post(f"/v1/jobs/{self._job_id}:{verb}")).status_code in (200, 202)
            case _:
                body = {"every": {"schedule": {"every": value}}, "policy": {"misfire": {"policy": value}}}
                changed = await self._api.patch(f"/v1/jobs/{self._job_id}", json=body.get(verb, {"overlap": value}))
                assert changed.status_code == 200, changed.text
                await self.note()

    async def _prepare(self) -> None:
        await self._node.leaser.run_once(self._connection)
        await self._node.loader.run_once()
        self._prepared = self._node._wheel.advance(self._node._clock.timestamp())

    async def _pass(self, time: timedelta) -> None:
        self._shift += time
        for table, columns in (
            ("jobs", ("next_fire_at", "last_fired_for", "last_nominal_for", "paused_from")),
            ("runs", ("scheduled_for",)),
            ("run_history", ("scheduled_for",)),
            ("missed_fires", ("first_at", "last_at")),
        ):
            moves = ", ".join(f"{column} = {column} - $2::interval" for column in columns)
            await self._connection.execute(
                f"update mainspring.{table} set {moves} where job_id = $1", self._job_id, time
            )
        await self._connection.execute(
            """update mainspring.jobs
               set schedule = jsonb_set(schedule::jsonb, '{anchor}',
                                        to_jsonb((schedule ->> 'anchor')::timestamptz - $2::interval))
               where job_id = $1""",
            self._job_id,
            time,
        )

    async def found(self) -> list[datetime]:
        """The fires that were run, skipped or missed. A missed range stands for the expected fires in it."""
        rows = [*await live(self._connection, self._job_id), *await ended(self._connection, self._job_id)]
        moments = [row["scheduled_for"] + self._shift for row in rows if row["trigger"] is None]
        for row in await self._connection.fetch(
            "select first_at, last_at, count from mainspring.missed_fires where job_id = $1", self._job_id
        ):
            first, last = row["first_at"] + self._shift, row["last_at"] + self._shift
            inside = [moment for moment in self.expected if first <= moment <= last]
            assert len(inside) == row["count"], (first, last, row["count"])
            moments += inside
        return sorted(moments)
