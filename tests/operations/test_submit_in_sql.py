"""`mainspring.submit(jsonb)` writes the same rows as `POST /v1/jobs`, refuses the same jobs, and is part of the
caller's transaction."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.job import spec_from_text
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.store.jobs import schedule_from_text, shard_of
from mainspring.store.submit_fields import fields_elsewhere, known_fields
from mainspring.wire.fields import DURATION, ON_DEADLINE, PLAIN_FIELDS, TEXT, Field
from mainspring.wire.schedules import ScheduleIn

pytestmark = pytest.mark.anyio

few = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
MOMENTS = {"scheduled_for", "ready_at", "expires_at", "created_at", "updated_at", "anchor"}
WITH_LANE = """
select t.*, l.queue, l.priority, l.task, l.labels, t.payload::text as payload, t.spec::text as spec {more}
from mainspring.{table} t join mainspring.lanes l using (tenant_id, lane_id)
"""


async def submit(connection: asyncpg.Connection, job: Any) -> str:
    job_id: str = await connection.fetchval("select mainspring.submit($1)", json.dumps(job))
    return job_id


async def stored(connection: asyncpg.Connection) -> dict[str, Any]:
    """All rows of a submission without generated ids and times. The rows are deleted."""
    for table in ("runs", "jobs"):  # what SQL submits is of no token
        await connection.execute(f"update mainspring.{table} set created_by = null")
    runs = await connection.fetch(WITH_LANE.format(table="runs", more=""))
    jobs = await connection.fetch(WITH_LANE.format(table="jobs", more=", schedule::text as schedule_text"))
    keys = await connection.fetch("select key from mainspring.idempotency_keys")
    taken = await connection.fetch("select job_id from mainspring.taken_ids")
    assert await connection.fetchval("select count(*) from mainspring.submissions") == 0
    await connection.execute(
        "delete from mainspring.runs; delete from mainspring.jobs; delete from mainspring.idempotency_keys;"
        " delete from mainspring.taken_ids"
    )
    return {
        "runs": [plain(row) for row in runs],
        "jobs": [plain(row) for row in jobs],
        "keys": [tuple(row) for row in keys],
        "taken": [tuple(row) for row in taken],
    }


def plain(row: asyncpg.Record) -> dict[str, Any]:
    fields = dict(row)
    for name in ("run_id", "lane_id", *MOMENTS):
        fields.pop(name, None)
    fields["payload"] = None if row["payload"] is None else json.loads(row["payload"])
    fields["spec"] = spec_from_text(row["spec"])
    if "schedule" in fields:
        schedule = schedule_from_text(fields.pop("schedule_text"))
        fields["schedule"] = msgspec.structs.replace(schedule, anchor=None)
        if schedule.anchor is not None:
            fields["next_fire_at"] = row["next_fire_at"] - schedule.anchor
            assert abs(row["created_at"] - schedule.anchor) < timedelta(minutes=1)
        if fields["id_generated"]:
            assert fields.pop("shard") == shard_of(DEFAULT_TENANT, fields.pop("job_id"))
    else:
        assert row["scheduled_for"] == row["ready_at"]
        if row["expires_at"] is not None:
            fields["expires_at"] = row["expires_at"] - row["ready_at"]
    return fields


async def both_ways(api: httpx.AsyncClient, connection: asyncpg.Connection, body: Any) -> tuple[Any, Any]:
    """The rows that the API and the function store for the same body. None for a refusal."""
    answer = await api.post("/v1/jobs", json=body)
    over_http = await stored(connection)
    try:
        job_id = await submit(connection, body)
    except asyncpg.PostgresError as error:
        assert error.sqlstate == "22023" and error.detail and error.hint, error
        in_sql = None
        assert not any((await stored(connection)).values())
    else:
        in_sql = await stored(connection)
        if isinstance(body, dict) and "job_id" in body:
            assert job_id == body["job_id"]
    return (over_http if answer.status_code == 201 else None), in_sql


BODIES: list[dict[str, Any]] = [
    {"task": "noop"},
    {"job_type": "noop", "payload": {"a": [1, 2.5, None, "é"], "b": {"c": True}}},
    {"task": "noop", "job_type": "noop", "payload": None, "name": None, "retry": None, "schedule": None},
    {"name": "A title that is a task"},
    {"job_id": "daily_report"},
    {"job_id": "daily_report", "name": "Daily", "task": "report"},
    {"command": "echo hello"},
    {"command": ["echo", "hello"], "payload": {"x": 1}, "task": "shell"},
    {"task": "shell", "payload": {"command": "echo hello"}},
    {"task": "shell", "payload": {"argv": ["echo", "hello"]}},
    {"task": "noop", "schedule": "now"},
    {"task": "noop", "schedule": " Manual "},
    {"task": "noop", "schedule": {"at": "2036-12-31T23:59:59Z"}},
    {"task": "noop", "schedule": {"at": "2036-12-31 23:59:59.123456789+05:30", "every": None}},
    {"task": "noop", "schedule": {"at": "2036-12-31T23:59-08"}, "job_id": "once"},
    {"task": "noop", "schedule_time": "2099-06-01T00:00:00.5z", "retries": 3},
    {"name": "One shot", "schedule_type": "FUTURE", "schedule_time": "2036-12-25T10:00:00Z", "payload": {}},
    {"name": "Right away", "schedule_type": "IMMEDIATE", "payload": {}},
    {"name": "By hand", "schedule_type": "manual"},
    {"task": "noop", "schedule": {"every": "10m"}, "schedule_type": "INTERVAL"},
    {"task": "noop", "schedule": {"every": 1}, "overlap": "ALLOW"},
    {"task": "noop", "schedule": {"every": "1h30m0.25s"}, "overlap": "skip", "job_id": "often"},
    {"task": "noop", "queue": "heavy", "priority": "High"},
    {"task": "noop", "queue": "heavy", "priority": 3},
    {"task": "noop", "priority": "0", "required_labels": {"zone": "eu", "gpu": 'a"b\\é/\u2028'}},
    {"task": "noop", "required_labels": {"ab": "1", "b": "2", "a": "3", "é": "4"}, "labels": {}},
    {"task": "noop", "timeout": "15m"},
    {"task": "noop", "timeout": "15m", "run_timeout": "1h30m"},
    {"task": "noop", "timeout": 0.5, "owner": "bi", "description": "two\nlines", "labels": {"team": "bi", "x": ""}},
    {"task": "noop", "timeout": "1h", "delivery": "At_Least_Once"},
    {"task": "noop", "delivery": "at_most_once"},
    {"task": "noop", "delivery": "at_most_once", "retries": 0, "schedule": {"every": "1d"}},
    {"task": "noop", "retries": 0},
    {"task": "noop", "max_retries": 999},
    {"task": "noop", "retry": {}},
    {"task": "noop", "retry": {"max_attempts": 4, "backoff": "Linear", "base": "2s", "cap": 600, "jitter": 0.1}},
    {"task": "noop", "retry": {"max_attempts": 1000, "backoff": "fibonacci", "base": "20m", "jitter": 1}},
    {"task": "noop", "retry": {"base": "5s", "cap": "1m", "jitter": 0}, "max_retries": 2},
    {"task": "noop", "misfire": {"policy": "ALL", "grace": "1h", "cap": 7}},
    {"task": "noop", "misfire": {"policy": "once", "cap": 100}},
    {"task": "noop", "idempotency_key": "2026-11-15/report"},
    {"task": "noop", "keep_payload": True},
    {"task": "noop", "keep_payload": False},
    {"task": "noop", "keep_payload": 16384},
    {"task": "noop", "keep_payload": "64KiB"},
    {"task": "noop", "keep_payload": " 1.5 kB "},
    {"task": "noop", "keep_payload": 0, "overlap": "allow"},
    {"task": "noop", "schedule": {"at": "2036-12-31T23:59:59Z"}, "overlap": "allow"},
    {"task": "noop", "schedule": "manual", "overlap": "allow"},
    {"task": "noop", "idempotency_key": "k", "job_id": "keyed", "schedule": "manual"},
]


async def test_the_rows_are_those_of_the_api(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    for body in BODIES:
        over_http, in_sql = await both_ways(api, connection, body)
        assert over_http is not None, body
        assert in_sql == over_http, body


REFUSED: list[tuple[Any, str]] = [
    (None, "$"), (5, "$"), ([], "$"), ({}, "task"), ({"task": ""}, "task"), ({"task": 5}, "task"),
    ({"task": "a\tb"}, "task"), ({"task": "x" * 201}, "task"), ({"task": "a", "job_type": "b"}, "job_type"),
    ({"task": "a", "command": "echo"}, "command"), ({"command": " "}, "command"), ({"command": []}, "command"),
    ({"command": [1]}, "command"), ({"command": "x" * 140_000}, "command"), ({"task": "shell"}, "command"),
    ({"task": "shell", "payload": {"argv": "echo"}}, "payload.argv"), ({"task": "shell", "payload": {}}, "command"),
    ({"command": "true", "payload": {"x": "y" * 130_000}}, "payload"),
    ({"task": "shell", "payload": {"command": "true", "x": "y" * 130_000}}, "payload"),
    ({"task": "a", "payload": [1]}, "payload"), ({"task": "a", "payload": {"x": "y" * 300_000}}, "payload"),
    ({"job_id": "a b"}, "job_id"), ({"job_id": ""}, "job_id"), ({"job_id": "."}, "job_id"),
    ({"job_id": ".."}, "job_id"), ({"task": "a", "queue": ""}, "queue"),
    ({"task": "a", "priority": "urgent"}, "priority"), ({"task": "a", "priority": 4}, "priority"),
    ({"task": "a", "priority": 1.5}, "priority"), ({"task": "a", "priority": True}, "priority"),
    ({"task": "a", "timeout": "soon"}, "timeout"), ({"task": "a", "timeout": 0}, "timeout"),
    ({"task": "a", "timeout": "31d"}, "timeout"), ({"task": "a", "timeout": True}, "timeout"),
    ({"task": "a", "run_timeout": "31d"}, "run_timeout"), ({"task": "a", "run_timeout": "soon"}, "run_timeout"),
    ({"task": "a", "retries": -1}, "retries"), ({"task": "a", "retries": "3"}, "retries"),
    ({"task": "a", "retries": 1, "max_retries": 1}, "retries"), ({"task": "a", "max_retries": 1000}, "max_retries"),
    ({"task": "a", "retry": {"max_attempts": 0}}, "retry.max_attempts"), ({"task": "a", "retry": 3}, "retry"),
    ({"task": "a", "retry": {"backoff": "quick"}}, "retry.backoff"),
    ({"task": "a", "retry": {"base": -1}}, "retry.base"),
    ({"task": "a", "retry": {"jitter": 1.5}}, "retry.jitter"), ({"task": "a", "retry": {"tries": 1}}, "retry.tries"),
    ({"task": "a", "delivery": "at_most_once", "retries": 1}, "retries"), ({"task": "a", "delivery": "x"}, "delivery"),
    ({"task": "a", "misfire": {"policy": "x"}}, "misfire.policy"),
    ({"task": "a", "misfire": {"cap": 0}}, "misfire.cap"),
    ({"task": "a", "keep_payload": "257KiB"}, "keep_payload"), ({"task": "a", "keep_payload": -1}, "keep_payload"),
    ({"task": "a", "keep_payload": "64Kib s"}, "keep_payload"), ({"task": "a", "keep_payload": 1.5}, "keep_payload"),
    ({"task": "a", "keep_payload": []}, "keep_payload"), ({"task": "a", "keep_payload": "5ib"}, "keep_payload"),
    ({"task": "a", "overlap": "wait"}, "overlap"), ({"task": "a", "owner": "a\nb"}, "owner"),
    ({"task": "a", "owner": 1}, "owner"), ({"task": "a", "description": 1}, "description"),
    ({"task": "a", "description": "x" * 10_001}, "description"), ({"task": "a", "labels": {"": "x"}}, "labels"),
    ({"task": "a", "labels": {"x": 1}}, "labels"), ({"task": "a", "labels": []}, "labels"),
    ({"task": "a", "labels": {str(n): "" for n in range(65)}}, "labels"),
    ({"task": "a", "required_labels": {"x": ""}}, "required_labels"),
    ({"task": "a", "idempotency_key": ""}, "idempotency_key"), ({"taks": "a"}, "taks"), ({"task": "a", "x": None}, "x"),
    ({"task": "a", "schedule": {}}, "schedule"), ({"task": "a", "schedule": 5}, "schedule"),
    ({"task": "a", "schedule": {"at": "2036-12-31T23:59:59Z", "every": 5}}, "schedule"),
    ({"task": "a", "schedule": {"at": "2036-12-31T23:59:59"}}, "schedule.at"),
    ({"task": "a", "schedule": {"at": "2026-02-30T00:00:00Z"}}, "schedule.at"),
    ({"task": "a", "schedule": {"at": "2036-12-31T24:00:00Z"}}, "schedule.at"),
    ({"task": "a", "schedule": {"at": "1899-01-01T00:00:00Z"}}, "schedule.at"),
    ({"task": "a", "schedule": {"at": "tomorrow"}}, "schedule.at"),
    ({"task": "a", "schedule": {"at": 5}}, "schedule.at"),
    ({"task": "a", "schedule": {"every": 0.5}}, "schedule.every"),
    ({"task": "a", "schedule": {"on": 1}}, "schedule.on"),
    ({"task": "a", "schedule": "now", "schedule_time": "2036-12-31T23:59:59Z"}, "schedule_time"),
    ({"task": "a", "schedule_type": "FUTURE"}, "schedule_time"),
    ({"task": "a", "schedule_type": "INTERVAL"}, "schedule"),
    ({"task": "a", "schedule_type": "x"}, "schedule_type"),
    ({"task": "a", "schedule": "manual", "schedule_type": "IMMEDIATE"}, "schedule_type"),
    ({"task": "mainspring.workflow"}, "task"), ({"name": "mainspring.workflow"}, "task"),
]  # fmt: skip


async def test_what_the_api_refuses_is_refused_by_field_with_a_hint(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for body, field in REFUSED:
        assert (await api.post("/v1/jobs", json=body)).status_code in (400, 413, 422), body
        with pytest.raises(asyncpg.InvalidParameterValueError) as refused:
            await submit(connection, body)
        assert refused.value.detail == field, body
        assert refused.value.hint, body
        assert not any((await stored(connection)).values()), body


ONLY_OVER_HTTP: list[tuple[dict[str, Any], str]] = [
    ({"schedule": "0 9 * * *"}, "schedule"), ({"schedule": "@daily"}, "schedule"),
    ({"cron_expression": "0 9 * * *"}, "cron_expression"), ({"schedule": {"cron": "0 9 * * *"}}, "schedule.cron"),
    ({"schedule": {"every": "1h", "anchor": "2026-01-01T00:00:00Z"}}, "schedule.anchor"),
    ({"schedule_time": "2036-12-31T23:59:59", "timezone": "UTC"}, "timezone"),
    ({"env": {"A": "b"}}, "env"), ({"limits": {"cpu": 5}}, "limits"), ({"kill_grace": 5}, "kill_grace"),
    ({"retry": {"rules": [{"error": "ValueError", "then": "give_up"}]}}, "retry.rules"),
    ({"concurrency": 1}, "concurrency"), ({"overlap": "queue"}, "overlap"), ({"overlap": "Cancel_Previous"}, "overlap"),
    ({"schedule_type": "RRULE"}, "schedule_type"),
    ({"schedule_type": "CRON"}, "schedule_type"), ({"depends_on": ["a"]}, "depends_on"), ({"notify": []}, "notify"),
]  # fmt: skip


async def test_what_sql_does_not_take_is_refused_by_name_and_sent_to_http(connection: asyncpg.Connection) -> None:
    members = set(ScheduleIn.__struct_fields__) - {"at", "every"}
    of_schedules = [({"schedule": {"every": "1h", name: "x"}}, f"schedule.{name}") for name in sorted(members)]
    for more, field in [*ONLY_OVER_HTTP, *of_schedules]:
        with pytest.raises(asyncpg.InvalidParameterValueError, match="cannot be given in SQL") as refused:
            await submit(connection, {"task": "a", **more})
        assert refused.value.detail == field
        assert "POST /v1/jobs" in refused.value.hint


@pytest.mark.parametrize("more", [{}, {"concurrency": None}])
async def test_a_task_that_declares_concurrency_does_not_run_without_it(
    connection: asyncpg.Connection, more: dict[str, Any]
) -> None:
    schema = {"x-mainspring-options": {"concurrency": [{"limit": 1, "per": "task"}]}}
    await connection.execute(
        "insert into mainspring.task_signatures (tenant_id, task, schema) values (1, 'limited', $1)", json.dumps(schema)
    )
    with pytest.raises(asyncpg.InvalidParameterValueError, match="task limited declares concurrency") as refused:
        await submit(connection, {"task": "limited", **more})
    assert (refused.value.detail, "POST /v1/jobs" in refused.value.hint) == ("task", True)
    assert await submit(connection, {"task": "another"})


async def test_the_routine_knows_the_fields_of_the_table(connection: asyncpg.Connection) -> None:
    """Its text contains both lists: the fields that it takes, and those that need HTTP."""
    text = await connection.fetchval(
        "select string_agg(prosrc, ' ') from pg_proc where pronamespace = 'mainspring'::regnamespace"
    )
    found = {}
    for name in ("known", "elsewhere"):
        [names] = re.findall(rf"\b{name} constant text\[\] := array\[([^\]]*)\]", text)
        found[name] = re.findall(r"'(\w+)'", names)
    assert found == {"known": known_fields(), "elsewhere": fields_elsewhere()}


@pytest.mark.parametrize("field", PLAIN_FIELDS, ids=lambda field: field.name)
async def test_a_plain_field_is_taken_and_refused_as_by_the_api(
    api: httpx.AsyncClient, connection: asyncpg.Connection, field: Field
) -> None:
    texts = ["x" * int(field.least), "x" * int(field.most)]
    for value in {TEXT: texts, ON_DEADLINE: ["tell", "cancel"]}.get(field.kind, [field.least, field.most]):
        over_http, in_sql = await both_ways(api, connection, {"task": "noop", field.name: value})
        assert over_http is not None
        assert in_sql == over_http
        assert getattr(in_sql["runs"][0]["spec"], field.name) == value
    for value in ("x" * (min(int(field.most), 10_000) + 1), "a\nb", field.most + 1, True, [], {}):
        assert await both_ways(api, connection, {"task": "noop", field.name: value}) == (None, None), value


async def test_plain_options_of_a_task_are_laid_under_a_job(connection: asyncpg.Connection) -> None:
    options = {"queue": "q", "priority": "high", "timeout": 5.0, "delivery": "at_most_once"}
    options |= {field.name: 60.0 for field in PLAIN_FIELDS if field.kind is DURATION}
    filled = "select filled from mainspring.intake_options('{}', $1)"
    assert json.loads(await connection.fetchval(filled, json.dumps(options | {"env": {"A": "b"}}))) == options


async def test_http_and_sql_tasks_are_sent_to_http(connection: asyncpg.Connection) -> None:
    call, statement = {"url": "https://example.com"}, {"connection": "warehouse", "statement": "select 1"}
    for body in (
        {"http": call}, {"task": "http", "payload": call}, {"sql": statement}, {"task": "sql", "payload": statement},
    ):  # fmt: skip
        with pytest.raises(asyncpg.InvalidParameterValueError, match="cannot be given in SQL"):
            await submit(connection, body)


lines = st.text(st.characters(categories=["L", "N", "P", "So"]), min_size=1, max_size=8)
counts = st.integers(0, 20) | st.sampled_from([-1, 999, 1000, 1001])
durations = st.sampled_from(
    ["90s", "15m", "1h30m", "0s", "-1s", "1.5h", "250ms", "", 5, 0.5, "99999w", " 2D ", "7", 1.25]
)
choices: dict[str, st.SearchStrategy[Any]] = {
    "name": lines, "task": lines, "command": lines | st.lists(lines, max_size=3),
    "payload": st.dictionaries(lines, st.none() | st.booleans() | st.integers() | lines, max_size=3),
    "schedule": st.sampled_from(["now", "manual"]) | durations.map(lambda every: {"every": every})
    | st.datetimes().map(lambda moment: {"at": moment.isoformat() + "Z"}),
    "schedule_type": st.sampled_from(["INTERVAL", "future", "IMMEDIATE", "manual", "x"]),
    "queue": lines, "priority": st.sampled_from(["high", "LOW", 3, "0", "x", 4, 0]),
    "timeout": durations, "run_timeout": durations,
    "retries": counts, "max_retries": counts, "overlap": st.sampled_from(["skip", "allow", "x"]),
    "retry": st.fixed_dictionaries({}, optional={"max_attempts": counts, "base": durations, "cap": durations,
        "backoff": st.sampled_from(["linear", "Constant", "x"]), "jitter": st.sampled_from([0, 0.1, 0.25, 1, 2])}),
    "misfire": st.fixed_dictionaries({}, optional={"policy": st.sampled_from(["skip", "once", "all", "x"]),
        "grace": durations, "cap": counts}),
    "delivery": st.sampled_from(["at_least_once", "at_most_once", "x"]), "owner": lines, "description": lines,
    "labels": st.dictionaries(lines, lines, max_size=3), "required_labels": st.dictionaries(lines, lines, max_size=3),
    "job_id": st.sampled_from(["a", "b.c", "x y"]), "idempotency_key": lines,
}  # fmt: skip
bodies = st.lists(st.sampled_from(sorted(choices)), max_size=4, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({"name": st.just("noop"), **{name: choices[name] for name in names}})
)


@few
@given(body=bodies)
async def test_both_ways_agree_on_any_job(
    api: httpx.AsyncClient, connection: asyncpg.Connection, body: dict[str, Any]
) -> None:
    over_http, in_sql = await both_ways(api, connection, body)
    assert in_sql == over_http


numbers = st.integers(0, 10**6).map(str) | st.decimals(0, 10**6, places=3).map(str)
spelt = st.lists(numbers.flatmap(lambda n: st.sampled_from(["ms", "s", "m", "h", "d", "w"]).map(lambda u: n + u)))
texts = spelt.map("".join) | numbers | st.text(st.sampled_from("0123456789.smhdwy +-"), max_size=8)


@few
@given(text=texts)
async def test_durations_are_read_alike(connection: asyncpg.Connection, text: str) -> None:
    try:
        ours: float | None = parse_duration(text, "timeout", most=1e9)
    except InvalidInput:
        ours = None
    try:
        theirs = await connection.fetchval("select mainspring.intake_seconds($1, 'timeout', 0, 1e9)", json.dumps(text))
    except asyncpg.InvalidParameterValueError:
        theirs = None
    assert (None if theirs is None else float(theirs)) == ours


async def test_ids_of_ours_rise_and_are_version_7(connection: asyncpg.Connection) -> None:
    made = [await connection.fetchval("select mainspring.new_id()") for _ in range(3)]
    assert {(run_id.version, run_id.variant) for run_id in made} == {(7, "specified in RFC 4122")}
    milliseconds = [run_id.int >> 80 for run_id in made]
    assert milliseconds == sorted(milliseconds)
    now = await connection.fetchval("select extract(epoch from clock_timestamp())")
    assert abs(milliseconds[-1] / 1000 - float(now)) < 60


@few
@given(tenant=st.integers(1, 10**6), job_id=st.text(st.sampled_from("azAZ09._-"), min_size=1, max_size=200))
async def test_shards_are_reckoned_alike(connection: asyncpg.Connection, tenant: int, job_id: str) -> None:
    shard = await connection.fetchval("select mainspring.shard_of($1, $2)", tenant, job_id)
    assert shard == shard_of(tenant, job_id)  # type: ignore[arg-type]


async def test_a_null_is_refused(connection: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="the job is null"):
        await connection.fetchval("select mainspring.submit(null)")


async def test_many_submissions_at_once_agree_on_new_lanes(database_url: str, connection: asyncpg.Connection) -> None:
    async def caller(number: int) -> None:
        own = await asyncpg.connect(database_url)
        for turn in range(10):
            async with own.transaction():
                for task in sorted({f"task-{turn}", f"task-{number % 3}"}):
                    await submit(own, {"task": task})
        await own.close()

    await asyncio.gather(*(caller(number) for number in range(5)))
    lanes = await connection.fetch("select task, count(*) from mainspring.lanes group by task having count(*) > 1")
    assert lanes == []
    assert await connection.fetchval("select count(*) from mainspring.runs") > 50
