"""Rules: what they take, and what they tell of failures, recoveries, missed fires and all the rest."""

from __future__ import annotations

import re
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.backfills import BackfillState
from mainspring.kernel.clock import SystemClock
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.operations.lifecycle.dispatch import BACKFILLS_ENDED, BREAKERS_CLOSED, BREAKERS_OPENED, WORKERS_LOST
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import BackfillEnded, BreakerClosed, BreakerOpened, LostWorker
from mainspring.roles.assembly import Assembly
from mainspring.store import leases
from mainspring.upkeep.health_keeper import HealthKeeper
from tests.operations.workflows.scene import Scene as FlowScene
from tests.worker.http_service import a_service, answer

from .aging import age
from .scene import Scene, items

pytestmark = pytest.mark.anyio

FAILURES = {"on": ["failure", "recovered"], "to": ["oncall"], "group_wait": 0}


@pytest.fixture
async def scene(api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> Any:
    async with a_service(answer(200)) as receiver:
        made = Scene(api, assembly, connection, receiver)
        await made.channel()
        yield made


async def test_a_failure_is_told_once_then_reminded_of_and_its_recovery_is_told(scene: Scene) -> None:
    await scene.job("nightly")
    await scene.rule("fails", **FAILURES)
    await scene.run("nightly")
    [message] = await scene.told()
    assert message["title"] == "job nightly failed"
    assert message["rule"] == "fails"
    [item] = message["items"]
    assert (item["reason"], item["job_id"], item["task"]) == ("ValueError: no Traceback", "nightly", "noop")
    assert item["url"] == "https://jobs.example.com/ui/jobs/nightly"
    assert "since: 20" in message["text"]
    await scene.run("nightly")
    assert await scene.told(120) == []  # it is known
    [reminder] = await scene.told(4 * 3600)
    assert reminder["title"] == "job nightly still failed (2 times)"
    await scene.run("nightly", "SUCCESS")
    [recovered] = await scene.told(120)
    assert (recovered["title"], recovered["good"]) == ("job nightly recovered", True)
    await scene.run("nightly", "SUCCESS")
    assert await scene.told(8 * 3600) == []
    await scene.run("nightly")
    assert items(await scene.told()) == [("failure", "job nightly", 1)]


async def test_rules_are_about_a_job_a_task_a_queue_labels_or_the_tenant(scene: Scene) -> None:
    scopes: dict[str, dict[str, Any]] = {
        "of-job": {"job": "a"}, "of-task": {"task": "noop"}, "of-queue": {"queue": "default"},
        "of-labels": {"labels": {"team": "bi"}}, "of-all": {}, "other-job": {"job": "b"}, "other-task": {"task": "x"},
        "other-queue": {"queue": "x"}, "other-labels": {"labels": {"team": "x"}},
    }  # fmt: skip
    for name, scope in scopes.items():
        await scene.rule(name, **{**FAILURES, **scope})
    await scene.job("a", labels={"team": "bi", "env": "p"})
    await scene.run("a")
    assert sorted(one["rule"] for one in await scene.told()) == ["of-all", "of-job", "of-labels", "of-queue", "of-task"]


async def test_a_job_has_rules_of_its_own(scene: Scene) -> None:
    await scene.job("a", notify=[{"on": ["failure", "recovered"], "to": ["oncall"]}])
    await scene.job("b")
    assert (await scene.api.get("/v1/jobs/a")).json()["notify"] == [{"on": ["failure", "recovered"], "to": ["oncall"]}]
    await scene.run("a")
    await scene.run("b")
    assert items(await scene.told()) == []  # it waits for more, 5 seconds
    assert items(await scene.told()) == [("failure", "job a", 1)]
    await scene.run("a", "SUCCESS")
    assert items(await scene.told(120)) == [("recovered", "job a", 1)]
    changed = await scene.api.patch("/v1/jobs/a", json={"notify": [{"on": ["SUCCESS"], "to": ["oncall"]}]})
    assert changed.json()["notify"] == [{"on": ["success"], "to": ["oncall"]}]
    await scene.run("a", "SUCCESS")
    await scene.run(None, "SUCCESS", notify=[{"on": ["success"], "to": ["oncall"]}])
    assert items(await scene.told(120)) + items(await scene.told(120)) == [
        ("success", "job a", 1), ("success", "task noop in queue default", 1),
    ]  # fmt: skip
    assert (await scene.api.patch("/v1/jobs/a", json={"notify": None})).json()["notify"] == []


async def test_a_rule_of_a_job_that_cannot_be_is_refused(scene: Scene) -> None:
    for notify, field in (
        ([{"on": ["failure"], "to": ["nobody"]}], "notify[0].to"),
        ([{"on": ["explosion"], "to": ["oncall"]}], "notify[0].on"),
        ([{"on": [], "to": ["oncall"]}], "notify[0].on"),
        ([{"on": ["failure"], "to": []}], "notify[0].to"),
        ([{"on": ["failure"], "url": "mailto://x"}], "notify[0].url"),
        ([{"on": ["worker_lost"], "to": ["oncall"]}], "notify[0].on"),
    ):
        for sent in (
            await scene.api.post("/v1/jobs", json={"task": "noop", "notify": notify}),
            await scene.api.post("/v1/jobs:batch", json={"jobs": [{"task": "noop", "notify": notify}]}),
        ):
            assert sent.status_code == 422, (notify, sent.text)
            assert sent.json()["field"].removeprefix("jobs[0].") == field, sent.text
    await scene.job("a")
    refused = await scene.api.patch("/v1/jobs/a", json={"notify": [{"on": ["failure"], "to": ["nobody"]}]})
    assert (refused.status_code, refused.json()["code"]) == (422, "unknown_channel")


async def test_first_every_and_exhausted_failures(scene: Scene) -> None:
    for event in ("first_failure", "every_failure", "tries_exhausted"):
        await scene.rule(event, on=[event], to=["oncall"], group_wait=0)
    await scene.job("a")
    await scene.run("a")
    assert sorted(items(await scene.told())) == [
        ("every_failure", "job a", 1), ("first_failure", "job a", 1), ("tries_exhausted", "job a", 1),
    ]  # fmt: skip
    await scene.run("a")
    assert items(await scene.told(120)) == [("every_failure", "job a", 1)]
    assert items(await scene.told(4 * 3600)) == [("tries_exhausted", "job a", 2)]  # a reminder
    await scene.job("retried", retries=3)
    await scene.run("retried")  # it failed without a further attempt, although tries were left
    assert sorted(items(await scene.told(120))) == [
        ("every_failure", "job retried", 1), ("first_failure", "job retried", 1),
    ]  # fmt: skip


async def test_failures_without_a_job_are_one_thing_and_over_when_nothing_fails(scene: Scene) -> None:
    await scene.rule("fails", **FAILURES)
    for _ in range(3):
        await scene.run()
    [message] = await scene.told()
    assert message["title"] == "task noop in queue default failed (3 times)"
    assert message["items"][0]["path"].startswith("/ui/runs/")
    assert items(await scene.told(400)) == [("recovered", "task noop in queue default", 1)]


@pytest.mark.slow
async def test_ten_thousand_failures_are_a_handful_of_messages(scene: Scene) -> None:
    """Of as many jobs, in one minute, to a rule of the tenant and to rules of the jobs."""
    await scene.rule("fails", **FAILURES)
    await scene.run()
    notify = '{"notify": [{"on": ["failure"], "to": ["oncall"]}]}'
    for second in range(0, 60, 6):
        await scene.connection.execute(
            """insert into mainspring.run_history
                   (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, ended_at, job_id,
                    error, spec)
               select gen_random_uuid(), h.tenant_id, h.lane_id, h.state, 1, 1, 1, h.scheduled_for,
                      h.ended_at + $1 * interval '1 second', 'job-' || $1 || '-' || n, 'boom', $2::json
               from mainspring.run_history h, generate_series(1, 1000) as n
               where h.job_id is null limit 1000""",
            second, notify,
        )  # fmt: skip
    messages = []
    for _ in range(12):
        messages += await scene.told(6)
    messages += await scene.told(60)
    assert 2 <= len(messages) <= 10
    told = sum(len(one["items"]) + one["more"] for one in messages if one["rule"] == "fails")
    assert told == 10_001  # each job once, and the task


async def test_grouping_waits_for_more_and_then_for_its_interval(scene: Scene) -> None:
    await scene.rule("fails", on=["every_failure"], to=["oncall"], group_wait="30s", group_interval="5m")
    await scene.job("a")
    await scene.job("b")
    await scene.run("a")
    assert await scene.told(10) == []
    await scene.run("b")
    assert items(await scene.told(31)) == [("every_failure", "job a", 1), ("every_failure", "job b", 1)]
    await scene.run("a")
    await scene.run("a")
    assert await scene.told(60) == []
    assert items(await scene.told(300)) == [("every_failure", "job a", 2)]


async def test_quiet_hours_hold_messages_and_a_mute_too(scene: Scene) -> None:
    always = {"from": "00:00", "to": "24:00"}
    await scene.rule("fails", **FAILURES, quiet=always)
    await scene.job("a")
    await scene.run("a")
    assert await scene.told() == []
    await scene.rule("fails", **FAILURES)
    assert items(await scene.told(60)) == [("failure", "job a", 1)]
    await scene.run("a", "SUCCESS")
    await scene.told(120)
    muted = await scene.api.post("/v1/rules/fails:mute", json={"for": "2h"})
    assert (muted.status_code, "muted_until" in muted.json()) == (200, True)
    await scene.run("a")
    assert await scene.told(120) == []
    unmuted = await scene.api.post("/v1/rules/fails:unmute")
    assert "muted_until" not in unmuted.json()
    assert items(await scene.told(1)) == [("failure", "job a", 1)]


async def test_what_nobody_acknowledges_is_escalated_and_what_somebody_does_is_not_told_again(scene: Scene) -> None:
    await scene.channel("boss")
    await scene.rule("fails", **FAILURES, escalate={"after": "30m", "to": ["boss"]})
    await scene.job("a")
    await scene.run("a")
    [first] = await scene.told()
    assert await scene.told(600) == []
    [second] = await scene.told(1800)
    assert (second["escalated"], scene.receiver.asked[-1].target) == (True, "/boss")
    assert second["title"] == "not acknowledged: job a still failed"
    seen = await scene.api.post(f"/v1/notifications/{first['id']}:acknowledge")
    assert seen.json()["acknowledged_by"] == "test"
    assert await scene.told(24 * 3600) == []
    await scene.run("a", "SUCCESS")
    assert items(await scene.told(120)) == [("recovered", "job a", 1)]
    await scene.run("a")
    assert items(await scene.told(120)) == [("failure", "job a", 1)]


async def test_missed_fires_and_lost_workers_are_told(scene: Scene) -> None:
    events = ["fire_missed", "worker_lost"]
    await scene.rule("all", on=events, to=["oncall"], group_wait=0)
    await scene.job("a")
    await scene.connection.execute(
        "insert into mainspring.missed_fires (tenant_id, job_id, first_at, last_at, count, reason) "
        "select 1, 'a', (select clock_timestamp()), (select clock_timestamp()), 7, 'too late'"
    )
    await scene.worker.hello()
    async with scene.assembly.store.change() as connection:
        await WORKERS_LOST.happened(connection, [LostWorker(scene.worker.worker_id, 15.0)], Effects())
    told = items(await scene.told())
    assert sorted(told) == [("fire_missed", "job a", 7), ("worker_lost", "worker by-hand", 1)]
    assert await scene.connection.fetchval("select count(*) from mainspring.notable_events") == 0


async def test_a_step_that_waits_for_an_approval_is_told_with_a_link_that_decides_nothing(scene: Scene) -> None:
    await scene.rule("asks", on=["approval_waits"], to=["oncall"], group_wait=0)
    steps: list[dict[str, Any]] = [{"name": "gate", "task": None, "wait": {"approval": "release", "timeout": "2d"}}]
    flows = FlowScene(scene.assembly, scene.api, scene.connection)
    await flows.begin(await flows.create(steps, workflow_id="ship"))
    [approval] = (await scene.api.get("/v1/approvals")).json()["approvals"]
    told = await scene.told()
    assert items(told) == [("approval_waits", "step gate@ship", 1)]
    [item] = told[0]["items"]
    assert item["path"] == f"/ui/runs/{approval['run_id']}" and item["reason"].startswith("release, until 2")
    assert (await scene.api.get(item["path"])).status_code in (200, 404)  # the page may not be built
    assert (await scene.api.get(f"/v1/runs/{approval['run_id']}")).json()["status"] == "WAITING"
    assert (await scene.api.post(f"/v1/approvals/{approval['run_id']}:approve", json={})).status_code == 200


async def test_an_event_that_no_rule_wants_writes_nothing(scene: Scene) -> None:
    await scene.rule("fails", **FAILURES)
    async with scene.assembly.store.change() as connection:
        await WORKERS_LOST.happened(connection, [LostWorker(uuid7())], Effects())
    await scene.worker.hello()
    async with scene.assembly.store.change() as connection:
        await WORKERS_LOST.happened(connection, [LostWorker(scene.worker.worker_id)], Effects())
    assert await scene.connection.fetchval("select count(*) from mainspring.notable_events") == 0


async def test_what_ended_before_the_first_channel_is_not_told(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    async with a_service(answer(200)) as receiver:
        scene = Scene(api, assembly, connection, receiver)
        await scene.run()
        await scene.channel()
        await scene.rule("fails", **FAILURES)
        assert await scene.told() == []


REFUSED = [
    ({"on": [], "to": ["oncall"]}, "on"),
    ({"on": ["failure"], "to": []}, "to"),
    ({"on": ["failur"], "to": ["oncall"]}, "on"),
    ({"on": ["failure"], "to": ["nobody"]}, "to"),
    ({"on": ["failure"], "to": ["oncall"], "escalate": {"after": "1h", "to": ["nobody"]}}, "escalate.to"),
    ({"on": ["failure"], "to": ["oncall"], "group_interval": "1s"}, "group_interval"),
    ({"on": ["failure"], "to": ["oncall"], "quiet": {"from": "25:00", "to": "07:00"}}, "quiet.from"),
    ({"on": ["failure"], "to": ["oncall"], "quiet": {"from": "22:00", "to": "22:00"}}, "quiet.to"),
    ({"on": ["failure"], "to": ["oncall"], "quiet": {"from": "22:00", "to": "07:00", "timezone": "X"}},
     "quiet.timezone"),
    ({"on": ["failure"], "to": ["oncall"], "above": 3}, "above"),
    ({"on": ["success_rate_below", "retries_above"], "to": ["oncall"]}, "on"),
    ({"on": ["success_rate_below"], "to": ["oncall"], "job": "a"}, "job"),
]  # fmt: skip


async def test_a_rule_is_created_read_listed_deleted_and_what_cannot_be_one_is_refused(scene: Scene) -> None:
    for body, field in REFUSED:
        refused = await scene.api.put("/v1/rules/x", json=body)
        assert (refused.status_code, refused.json()["field"]) == (422, field), (body, refused.text)
    assert (await scene.api.get("/v1/rules")).json()["rules"] == []
    made = await scene.api.put("/v1/rules/fails", json=FAILURES)
    assert (made.status_code, made.headers["etag"]) == (201, '"1"')
    again = await scene.api.put("/v1/rules/fails", json=FAILURES, headers={"If-Match": '"7"'})
    assert again.json()["code"] == "version_mismatch"
    assert (await scene.api.get("/v1/rules/fails")).json() == made.json()
    in_use = await scene.api.delete("/v1/channels/oncall")
    assert (in_use.status_code, in_use.json()["code"]) == (409, "channel_in_use")
    assert (await scene.api.delete("/v1/rules/fails")).status_code == 200
    assert (await scene.api.delete("/v1/channels/oncall")).status_code == 200
    assert (await scene.api.get("/v1/rules/fails")).status_code == 404


async def test_conditions_are_told_while_they_hold_and_when_they_are_over(scene: Scene) -> None:
    scene.assembly.services.alert_keeper.evaluate_every = 0.0
    await scene.connection.execute(
        "insert into mainspring.rollups (span, tenant_id, task, queue, at, succeeded, failed, cancelled, skipped, "
        "retried, lost, missed, ran_us) select 1, 1, '', '', date_trunc('minute', clock_timestamp()), 80, 20, 0, 0, "
        "10, 0, 0, 0"
    )
    await scene.run()  # a dead letter
    assert (await scene.api.post("/v1/jobs", json={"task": "unknown", "queue": "q"})).status_code == 201
    await scene.connection.execute("update mainspring.runs set ready_at = ready_at - interval '1 hour'")
    for condition in ("success_rate_below", "retries_above", "dead_letters_above", "queue_behind", "no_worker"):
        await scene.rule(condition, on=[condition, "recovered"], to=["oncall"], group_wait=0)
    await scene.rule("fine", on=["success_rate_below"], below=70, to=["oncall"], group_wait=0)
    told = {one["items"][0]["event"]: one["items"][0]["reason"] for one in await scene.told()}
    seconds = {int(found[1]) for found in re.finditer(r"waited for 3,(\d+) s", " ".join(told.values()))}
    assert seconds and min(seconds) >= 600
    told = {event: re.sub(r"3,\d+ s", "3,600 s", reason) for event, reason in told.items()}
    assert told == {
        "success_rate_below": "80.0 % of 100 runs succeeded, fewer than 95 %",
        "retries_above": "9.1 % of the attempts were retried, more than 5 %",
        "dead_letters_above": "there are more than 0 dead letters",
        "queue_behind": "a run of task unknown in queue q has waited for 3,600 s",
        "no_worker": "a run of task unknown in queue q has waited for 3,600 s, and no worker takes it",
    }
    assert await scene.told(120) == []
    await scene.connection.execute("delete from mainspring.rollups")
    await scene.connection.execute("delete from mainspring.dead_letters")
    await scene.connection.execute("update mainspring.runs set ready_at = clock_timestamp() + interval '1 hour'")
    assert [item[0] for item in items(await scene.told(120))] == ["recovered"] * 5


async def test_what_goes_wrong_slowly_is_told_and_shown_until_it_is_over(scene: Scene) -> None:
    """Forgotten pauses, jobs that never ran or always fail, late starts, wrong clocks, and a scheduler that died."""
    scene.assembly.services.alert_keeper.evaluate_every = 0.0
    for job_id in ("resting", "untouched", "broken"):
        await scene.job(job_id, schedule={"every": "1h"})
    assert (await scene.api.post("/v1/jobs/resting:pause")).status_code == 200
    for _ in range(3):
        await scene.run("broken")
    keeper = HealthKeeper(scene.assembly.store, scene.assembly.signals, SystemClock())
    await age(scene.connection, 60)
    await scene.connection.execute("update mainspring.run_history set ended_at = ended_at - interval '1 minute'")
    await keeper.run_once()
    await scene.connection.execute(
        "update mainspring.jobs set created_at = created_at - interval '8 days', "
        "updated_at = updated_at - interval '8 days', last_nominal_for = clock_timestamp() - interval '1 day'"
    )
    assert (await scene.api.post("/v1/queues/mails:pause", json={"reason": "x"})).status_code == 200
    await scene.connection.execute("update mainspring.gates set paused_at = paused_at - interval '30 days'")
    dead, alive = uuid7(), uuid7()
    await leases.node_seen(scene.connection, dead, "first", 0.1)
    await leases.node_seen(scene.connection, alive, "second", -75.0)
    await leases.take(scene.connection, dead, [1, 2, 3], 60)
    for event in ("pause_forgotten", "never_ran", "always_fails", "clocks_differ", "scheduler_failover"):
        await scene.rule(event, on=[event, "recovered"], to=["oncall"], group_wait=0)
    await scene.rule("quick", on=["pause_forgotten"], over="60d", to=["oncall"], group_wait=0)
    await leases.release(scene.connection, dead, {3: 1})
    await scene.connection.execute(
        "update mainspring.shard_leases set expires_at = clock_timestamp() - interval '1 s' where owner = $1", dead
    )
    await leases.take(scene.connection, alive, [1, 2, 3], 60)  # the third one was given back
    told = {one["rule"]: one["items"][0]["reason"] for one in await scene.told()}
    told = {rule: re.sub(r"\(\w+ [^)]*Z\)", "(then)", reason) for rule, reason in told.items()}
    assert told == {
        "pause_forgotten": "2 paused for more than 1w: queue mails (then), job resting (then)",
        "never_ran": "1 should have run and never did: job untouched (then)",
        "always_fails": "1 failed at least 3 times in a row and never succeeded: job broken (then)",
        "clocks_differ": "the clock of second is 75.0 s behind the clock of the database; start NTP there",
        "scheduler_failover": "it stopped renewing its leases, and another one has taken 2 of its shards",
    }
    overview = (await scene.api.get("/v1/insights/overview")).json()
    shown = {re.sub(r"\(\w+ [^)]*Z\)", "(then)", warning) for warning in overview["warnings"]}
    assert shown >= {told[name] for name in ("pause_forgotten", "never_ran", "always_fails", "clocks_differ")}
    assert (await scene.api.post("/v1/jobs/resting:resume")).status_code == 200
    assert (await scene.api.post("/v1/queues/mails:resume")).status_code == 200
    await leases.node_seen(scene.connection, alive, "second", 0.3)
    over = await scene.told(120)
    assert sorted(one["rule"] for one in over) == ["clocks_differ", "pause_forgotten"]
    assert {event for event, _, _ in items(over)} == {"recovered"}


async def test_a_database_near_its_limits_and_late_starts_are_told(scene: Scene) -> None:
    scene.assembly.services.alert_keeper.evaluate_every = 0.0
    await scene.rule("near", on=["database_near_limit"], above=0.1, to=["oncall"], group_wait=0)
    await scene.rule("late", on=["lag_above"], to=["oncall"], group_wait=0)
    await scene.connection.execute(
        "insert into mainspring.rollups (span, tenant_id, task, queue, at, succeeded, failed, cancelled, skipped, "
        "retried, lost, missed, ran_us, lag_first, lag) select 1, 1, '', '', date_trunc('minute', clock_timestamp()), "
        "100, 0, 0, 0, 0, 0, 0, 0, 130, '{100}'"
    )
    told = {one["rule"]: one["items"][0]["reason"] for one in await scene.told()}
    assert re.fullmatch(r"\d+ of \d+ connections of PostgreSQL are used; raise .*", told["near"])
    assert told["late"] == "1 of 100 runs started 41 s late or more, of 100; the bound is 10 s"


async def test_rules_about_the_installation_are_for_its_administrators(scene: Scene) -> None:
    wrong = await scene.api.put("/v1/rules/x", json={"on": ["clocks_differ"], "to": ["oncall"], "queue": "q"})
    assert (wrong.status_code, wrong.json()["field"]) == (422, "queue")
    long = await scene.api.put("/v1/rules/x", json={"on": ["lag_above"], "to": ["oncall"], "over": "8d"})
    assert (long.status_code, long.json()["field"]) == (422, "over")
    assert (await scene.api.post("/v1/tenants", json={"name": "acme"})).status_code == 201
    body = {"name": "theirs", "role": "admin", "tenant": "acme"}
    token = (await scene.api.post("/v1/tokens", json=body)).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    channel = {"kind": "webhook", "url": scene.receiver.url("/acme"), "secret": "s"}
    assert (await scene.api.put("/v1/channels/oncall", json=channel, headers=headers)).status_code == 201
    rule = {"on": ["database_near_limit"], "to": ["oncall"]}
    refused = await scene.api.put("/v1/rules/x", json=rule, headers=headers)
    assert (refused.status_code, refused.json()["field"]) == (422, "on"), refused.text


async def test_a_quota_that_is_nearly_used_up_is_told_until_there_is_room(scene: Scene) -> None:
    scene.assembly.services.alert_keeper.evaluate_every = 0.0
    wrong = await scene.api.put("/v1/rules/x", json={"on": ["quota_near"], "to": ["oncall"], "queue": "q"})
    assert (wrong.status_code, wrong.json()["field"]) == (422, "queue")
    await scene.rule("quotas", on=["quota_near", "recovered"], to=["oncall"], group_wait=0)
    assert await scene.told() == []
    quotas = "/v1/tenants/default/quotas"
    assert (await scene.api.put(quotas, json={"tokens": 1, "stored_jobs": 100})).status_code == 200
    [message] = await scene.told()
    assert message["items"][0]["event"] == "quota_near"
    assert "of 1 are used of the quota tokens" in message["items"][0]["reason"]
    assert (await scene.api.put(quotas, json={"tokens": None})).status_code == 200
    assert [item[0] for item in items(await scene.told(120))] == ["recovered"]


async def test_breakers_and_backfills_are_told(scene: Scene) -> None:
    events = ["breaker_opened", "breaker_closed", "backfill_ended"]
    await scene.rule("all", on=events, to=["oncall"], group_wait=0)
    await scene.connection.execute(
        "with made as (insert into mainspring.limits (tenant_id, name) values (1, 'task:noop') returning limit_id) "
        "insert into mainspring.limit_keys (key_id, limit_id, key, failed) select 7, limit_id, '', 5 from made"
    )
    async with scene.assembly.store.change() as connection:
        await BREAKERS_OPENED.happened(connection, [BreakerOpened(7)], Effects())
        await BREAKERS_CLOSED.happened(connection, [BreakerClosed(7)], Effects())
        ended = BackfillEnded(DEFAULT_TENANT, uuid7(), "nightly", int(BackfillState.COMPLETED))
        await BACKFILLS_ENDED.happened(connection, [ended], Effects())
    [message] = await scene.told()
    assert {item["event"]: (item["subject"], item.get("reason")) for item in message["items"]} == {
        "breaker_opened": ("task:noop", "5 failures in a row"),
        "breaker_closed": ("task:noop", None),
        "backfill_ended": ("backfill of job nightly", "it is completed"),
    }
