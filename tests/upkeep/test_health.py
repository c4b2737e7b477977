"""The health of jobs, and runs that start late, run too long or miss their deadline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import SYSTEM_CLOCK
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.roles.assembly import Assembly
from mainspring.store import health
from mainspring.store.queries import load
from mainspring.upkeep.health_keeper import HealthKeeper
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


_TIMES = {
    "runs": ("scheduled_for", "fired_at", "started_at", "claimed_at"),
    "run_history": ("ended_at",),
    "health_watermark": ("ended_until",),
    "watched_runs": ("due_at",),
}


class Scene:
    def __init__(self, api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> None:
        self.api, self.assembly, self.connection = api, assembly, connection
        self.worker = HandWorker(api)
        self.keeper = HealthKeeper(assembly.store, assembly.signals, SYSTEM_CLOCK)
        self.keeper.look_every = 0.0

    async def job(self, job_id: str, **fields: Any) -> None:
        made = await self.api.post(
            "/v1/jobs", json={"job_id": job_id, "task": "noop", "schedule": "manual", "retries": 0, **fields}
        )
        assert made.status_code == 201, made.text

    async def run(self, job_id: str, status: str = "SUCCESS") -> None:
        assert (await self.api.post(f"/v1/jobs/{job_id}:runNow")).status_code == 202
        [order] = await self.worker.claim()
        error = {} if status == "SUCCESS" else {"error": "ValueError: no", "retry": False}
        await self.worker.report(outcome(order, status, **error))

    async def judge(self, seconds: float = 5) -> None:
        """Let so much time pass, and judge."""
        await self.age(seconds)
        await self.keeper.run_once()

    async def age(self, seconds: float) -> None:
        for table, columns in _TIMES.items():
            changes = ", ".join(f"{column} = {column} - $1 * interval '1 second'" for column in columns)
            await self.connection.execute(f"update mainspring.{table} set {changes}", seconds)

    async def due_in(self, seconds: float) -> None:
        change = "update mainspring.jobs set next_fire_at = now() + $1 * interval '1 second' where job_id = 'due'"
        await self.connection.execute(change, seconds)

    async def events(self) -> list[tuple[Any, ...]]:
        rows = await self.connection.fetch(
            "select event, subject, job_id, reason, notify::text, labels::text "
            "from mainspring.notable_events order by event_id"
        )
        return [(*row[:4], *(None if text is None else json.loads(text) for text in row[4:])) for row in rows]

    async def channel(self) -> None:
        channel = {"kind": "webhook", "url": "http://192.0.2.1/", "secret": "s"}
        assert (await self.api.put("/v1/channels/oncall", json=channel)).status_code in (200, 201)

    async def watch_all(self) -> None:
        """A rule wants to know of all delays."""
        await self.channel()
        rule = {"on": ["started_late", "ran_too_long", "deadline_missed"], "to": ["oncall"]}
        assert (await self.api.put("/v1/rules/all", json=rule)).status_code in (200, 201)

    async def told(self) -> set[str]:
        """The titles of the messages that are made in a minute."""
        for _ in range(2):
            await self.assembly.services.alert_keeper.run_once()
            await self.connection.execute("update mainspring.alerts set due_at = now()")
        await self.assembly.services.alert_keeper.run_once()
        return {row[0] for row in await self.connection.fetch("select title from mainspring.notifications")}

    async def health(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.api.get(f"/v1/jobs/{job_id}")).json()["health"]
        return found

    async def listed(self, words: str) -> list[str]:
        answer = await self.api.get("/v1/jobs", params={"health": words})
        assert answer.status_code == 200, answer.text
        return [job["job_id"] for job in answer.json()["jobs"]]


@pytest.fixture
async def scene(api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> Scene:
    return Scene(api, assembly, connection)


async def test_a_job_is_as_healthy_as_its_last_runs(scene: Scene) -> None:
    await scene.job("a")
    await scene.job("b")
    await scene.judge()
    assert (await scene.health("a"))["state"] == "never_ran"
    await scene.run("a", "FAILED")
    await scene.judge()
    first = await scene.health("a")
    assert (first["state"], first["reason"]) == ("failing", "ValueError: no")
    await scene.run("a", "FAILED")
    await scene.judge()
    assert await scene.health("a") == first, "since the first of them"
    assert await scene.listed("failing") == ["a"]
    assert await scene.listed("never_ran") == ["b"]
    assert await scene.listed("FAILING,never_ran") == ["b", "a"]
    await scene.run("a")
    await scene.judge()
    assert (await scene.health("a"))["state"] == "healthy"


async def test_a_late_run_is_told_once_and_cancelled_where_the_job_asks_for_it(scene: Scene) -> None:
    """A job's own rule, and a rule of the tenant with labels."""
    await scene.channel()
    rule = {"on": ["deadline_missed"], "to": ["oncall"], "labels": {"team": "x"}}
    assert (await scene.api.put("/v1/rules/team", json=rule)).status_code == 201
    own = {"on": ["started_late", "ran_too_long"], "to": ["oncall"]}
    limits = {"late_after": "1m", "deadline": "10m", "on_deadline": "cancel", "labels": {"team": "x"}, "notify": [own]}
    await scene.job("slow", **limits)
    await scene.run("slow")
    await scene.judge()
    assert (await scene.health("slow"))["state"] == "healthy", "its run was in time"
    assert (await scene.api.post("/v1/jobs/slow:runNow")).status_code == 202
    await scene.judge(30)
    assert await scene.events() == []
    await scene.judge(40)
    await scene.judge(40)
    [late] = await scene.events()
    assert late[:3] == ("started_late", "job slow", "slow") and "has not started; late_after is 1m" in late[3]
    assert late[4:] == ([own], {"team": "x"})
    found = await scene.health("slow")
    assert found["state"] == "late" and "has not started" in found["reason"]
    [order] = await scene.worker.claim()
    await scene.judge(600)
    events = await scene.events()
    assert [event[0] for event in events] == ["started_late", "deadline_missed"]
    run = (await scene.api.get(f"/v1/runs/{order.run_id}")).json()
    assert run["reason"].startswith("cancel requested")
    await scene.worker.report(outcome(order, "CANCELLED"))
    run = (await scene.api.get(f"/v1/runs/{order.run_id}")).json()
    assert (run["status"], run["reason"]) == ("CANCELLED", "deadline missed")
    await scene.judge()
    assert len(await scene.events()) == 2
    assert await scene.connection.fetchval("select count(*) from mainspring.watched_runs") == 0
    assert (await scene.health("slow"))["state"] == "late", "until a run of it has ended well"
    assert await scene.told() == {"job slow started late", "job slow missed its deadline"}
    await scene.run("slow")
    await scene.judge()
    assert (await scene.health("slow"))["state"] == "healthy"


async def test_what_ended_between_two_looks_is_judged_by_its_end(scene: Scene) -> None:
    await scene.watch_all()
    await scene.job("brief", expected_duration="10ms", deadline="1s")
    assert (await scene.api.post("/v1/jobs/brief:runNow")).status_code == 202
    once = {"task": "noop", "late_after": "1s", "retries": 0}
    assert (await scene.api.post("/v1/jobs", json=once)).status_code == 201
    await scene.age(60)
    for order in await scene.worker.claim(2):
        await scene.worker.report(outcome(order, "SUCCESS", held_ms=1.0, ran_ms=100.0))
    await scene.judge()
    assert {event[0] for event in await scene.events()} == {"started_late", "ran_too_long", "deadline_missed"}
    found = await scene.health("brief")
    assert found["state"] == "late" and "the deadline is 1s" in found["reason"]


async def test_the_expected_duration_is_learned(scene: Scene) -> None:
    await scene.watch_all()
    await scene.job("usual")
    for _ in range(5):
        await scene.run("usual")
    await scene.judge()
    assert (await scene.api.post("/v1/jobs/usual:runNow")).status_code == 202
    [order] = await scene.worker.claim()
    await scene.worker.exchange(started=[(order.run_id, order.fence, 0.0)])
    await scene.judge(50)
    assert await scene.events() == []
    await scene.judge(50)
    await scene.judge(50)
    [event] = await scene.events()
    assert event[0] == "ran_too_long" and "the last ones took" in event[3]
    found = await scene.health("usual")
    assert found["state"] == "late" and found["expected_duration"] < 10
    await scene.worker.report(outcome(order, "SUCCESS"))
    await scene.judge()
    assert (await scene.health("usual"))["state"] == "healthy"


async def test_a_job_of_which_nothing_is_heard_is_silent(scene: Scene) -> None:
    await scene.job("waits")
    await scene.job("due", schedule={"every": "1h"})
    assert (await scene.api.post("/v1/jobs/waits:runNow")).status_code == 202
    await scene.due_in(-360)
    await scene.connection.execute("update mainspring.runs set ready_at = ready_at - interval '61 minutes'")
    await scene.judge()
    assert await scene.listed("silent") == ["due", "waits"]
    assert (await scene.health("due"))["reason"].startswith("it should have fired at ")
    assert "has been ready for an hour" in (await scene.health("waits"))["reason"]
    await scene.due_in(360)
    [order] = await scene.worker.claim()
    await scene.worker.report(outcome(order, "SUCCESS"))
    await scene.judge()
    assert [(await scene.health(name))["state"] for name in ("due", "waits")] == ["never_ran", "healthy"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"deadline": "0s"}, "deadline"), ({"on_deadline": "stop"}, "on_deadline"), ({"late_after": "soon"}, "late_after"),
     ({"expected_duration": "99y"}, "expected_duration")],
)  # fmt: skip
async def test_limits_of_time_that_mean_nothing_are_refused(scene: Scene, fields: dict[str, Any], field: str) -> None:
    refused = await scene.api.post("/v1/jobs", json={"task": "noop", **fields})
    assert (refused.status_code, refused.json()["field"]) == (422, field)


async def test_an_unknown_health_is_refused(scene: Scene) -> None:
    refused = await scene.api.get("/v1/jobs", params={"health": "fine"})
    assert (refused.status_code, refused.json()["field"]) == (422, "health")


_AT_MOST_30_SECONDS = """
create function mainspring.too_much() returns trigger language plpgsql as $$
begin
    if new.ended_until > old.ended_until + interval '30 seconds' then raise exception 'too much'; end if;
    return new;
end $$;
create trigger too_much before update on mainspring.health_watermark
    for each row execute function mainspring.too_much()
"""


async def test_a_round_that_fails_reads_less_until_it_has_caught_up(scene: Scene) -> None:
    """Here PostgreSQL refuses every round of more than 30 seconds."""
    await scene.job("a")
    await scene.run("a", "FAILED")
    await scene.judge()
    await scene.job("b")
    await scene.run("b", "FAILED")
    await scene.age(5)
    await scene.connection.execute("update mainspring.health_watermark set ended_until = now() - interval '4 minutes'")
    await scene.connection.execute(_AT_MOST_30_SECONDS)
    try:
        for _ in range(40):
            with suppress(asyncpg.RaiseError):
                await scene.keeper.run_once()
                break
    finally:
        await scene.connection.execute("drop function mainspring.too_much() cascade")
    assert await scene.listed("failing") == ["b", "a"]


async def test_plain_runs_that_ended_are_joined_with_nothing(scene: Scene) -> None:
    for _ in range(3):
        assert (await scene.api.post("/v1/jobs", json={"task": "noop"})).status_code == 201
    for order in await scene.worker.claim(3):
        await scene.worker.report(outcome(order, "SUCCESS"))
    until = await scene.connection.fetchval("select max(ended_at) + interval '1 second' from mainspring.run_history")
    for name in ("ended_watched", "ended_jobs"):
        statement = f"explain (analyze, format json) {load('health')[name]}"
        found = json.loads(await scene.connection.fetchval(statement, until - timedelta(minutes=1), until))
        read = [node for node in _nodes(found[0]["Plan"]) if node.get("Relation Name", "").startswith("run_history")]
        assert read and all(node["Actual Rows"] == 0 for node in read), name


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


async def test_what_was_told_of_a_run_is_kept_until_its_end_is_judged(scene: Scene) -> None:
    await scene.watch_all()
    await scene.job("slow", deadline="10m")
    assert (await scene.api.post("/v1/jobs/slow:runNow")).status_code == 202
    [order] = await scene.worker.claim()
    await scene.judge(700)
    await scene.judge(5)
    assert [event[0] for event in await scene.events()] == ["deadline_missed"]
    await scene.connection.execute("update mainspring.health_watermark set ended_until = now() - interval '10 seconds'")
    await scene.worker.report(outcome(order, "SUCCESS"))
    await scene.connection.execute("update mainspring.run_history set ended_at = ended_at + interval '20 seconds'")
    again = HealthKeeper(scene.assembly.store, scene.assembly.signals, SYSTEM_CLOCK)  # prunes in its first round
    await again.run_once()
    await scene.judge(30)
    assert [event[0] for event in await scene.events()] == ["deadline_missed"]
    assert await scene.connection.fetchval("select count(*) from mainspring.watched_runs") == 0


async def test_a_deleted_job_says_nothing_of_its_successor(scene: Scene) -> None:
    await scene.job("slow", deadline="10m")
    await scene.run("slow")
    await scene.judge()
    await scene.connection.execute("update mainspring.job_health set usual = 5, learned_at = now()")
    assert (await scene.api.delete("/v1/jobs/slow")).status_code in (200, 204)
    await scene.job("slow", deadline="10m")
    await scene.run("slow")
    await scene.judge()
    assert (await scene.health("slow"))["state"] == "healthy"
    learned = await scene.connection.fetchrow("select usual, learned_at from mainspring.job_health")
    assert tuple(learned) == (None, None), "of the new job nothing is learned yet"
    assert (await scene.api.post("/v1/jobs/slow:runNow")).status_code == 202
    await scene.judge()
    await scene.connection.execute("update mainspring.jobs set generation = generation + 1")
    await scene.judge(700)
    assert await scene.connection.fetchval("select told from mainspring.watched_runs") != 0
    assert (await scene.health("slow"))["state"] == "never_ran"


async def test_only_the_newest_runs_of_a_job_are_read_to_learn(scene: Scene) -> None:
    await scene.job("often")
    for _ in range(5):
        await scene.run("often")
    await scene.judge()
    job = DEFAULT_TENANT, "often", 1
    [[_, usual]] = (await health.learn(scene.connection, [job])).items()
    assert usual is not None
    failed = """
        insert into mainspring.run_history (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence,
                                            scheduled_for, ended_at, job_id)
        select overlay(gen_random_uuid()::text placing 'ffffffff' from 1 for 8)::uuid, tenant_id, lane_id, 11, 1, 1, 1,
               now(), now(), job_id
        from (select * from mainspring.run_history limit 1) as h, generate_series(1, 1000)
    """
    await scene.connection.execute(failed)
    [[_, usual]] = (await health.learn(scene.connection, [job])).items()
    assert usual is None
