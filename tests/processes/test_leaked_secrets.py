"""Runs that print, encode, split and fail with a secret: it is found neither in the database, nor in the logs of the
processes, nor in an answer of a server."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from urllib.parse import quote

import asyncpg
import pytest

from mainspring.operations.secrets.master_keys import new_key
from tests.processes.cluster import Cluster
from tests.processes.leaking_app import TASKS, WAYS
from tests.store.s3_peer import BUCKET, s3_peer
from tests.worker.http_service import a_service, answer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
APP = "tests.processes.leaking_app:app"
VALUE = "tok-7f3a9c/Zr+4=Xw"

COMMANDS = (
    'echo "$TOKEN"; echo "$TOKEN" >&2',
    'echo "$TOKEN"; exit 3',
    'printf %s "$TOKEN" | base64; printf "user:%s" "$TOKEN" | base64; printf "a%s" "$TOKEN" | base64 -w0; false',
    'printf %s "$TOKEN" | fold -w1 | while read -r c; do printf %s "$c"; done',
    'a=$(printf %s "$TOKEN" | cut -c1-6); b=$(printf %s "$TOKEN" | cut -c7-); printf %s "$a"; sleep 0.3; echo "$b"',
    'a=$(printf %s "$TOKEN" | cut -c1-6); printf %s "$a" >&2; printf x; printf %s "$TOKEN" | cut -c7- >&2; false',
    "env; set",
    "set -x; : $TOKEN",
    "cat /proc/self/environ | tr '\\0' '\\n'; false",
    'i=0; while [ $i -lt 400 ]; do echo "line $i of $TOKEN and more"; i=$((i+1)); done; false',
    'head -c 70000 /dev/zero | tr "\\0" x; printf %s "$TOKEN"; head -c 70000 /dev/zero | tr "\\0" y; false',
    'printf %s "$TOKEN" | od -An -tx1 | tr -d " \\n"',
)  # fmt: skip


def forms() -> set[bytes]:
    value = VALUE.encode()
    found = {value, quote(VALUE).encode(), quote(VALUE, safe="").encode(), value.hex().encode()}
    for before in (b"", b"a", b"ab"):
        text = base64.b64encode(before + value).rstrip(b"=")
        found.add(text[4 if before else 0 : -2])
    return found


def found_in(texts: Iterable[tuple[str, bytes]]) -> list[str]:
    return [where for where, text in texts for form in forms() if form in text]


async def dump(url: str) -> list[tuple[str, bytes]]:
    """All rows of all tables, and the bytes of compressed output."""
    connection = await asyncpg.connect(url)
    tables = await connection.fetch(
        "select c.relname from pg_class c where c.relnamespace = 'mainspring'::regnamespace "
        "and c.relkind in ('r', 'p') and not c.relispartition"
    )
    found = []
    for (table,) in tables:
        for row in await connection.fetch(f'select t::text as shown from mainspring."{table}" t'):
            text = row["shown"].encode()
            found.append((table, text))
    for (data,) in await connection.fetch("select data from mainspring.log_chunks"):
        found.append(("log_chunks", _inflated(data)))
    await connection.close()
    assert {"run_history", "secrets", "run_logs"} <= {name for name, _ in found}
    return found


def _inflated(data: bytes) -> bytes:
    try:
        return zlib.decompress(data)
    except zlib.error:
        return data


@pytest.mark.parametrize("times", [1, pytest.param(24, marks=pytest.mark.long)])
async def test_no_run_leaks_its_secret(
    times: int, cluster: Cluster, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each way to leak once, with output in PostgreSQL, and more than 1,000 runs with output in an object store."""
    with s3_peer() as (url, objects):
        for name, value in (("ENDPOINT_URL", url), ("ALLOW_HTTP", "true"), ("REGION", "eu-central-1")):
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
        await leak_many_times(times, cluster, database_url, objects)


async def leak_many_times(times: int, cluster: Cluster, database_url: str, objects: dict[str, bytes]) -> None:
    outside = times > 1
    (cluster.folder / "master-key").write_text(new_key())
    (cluster.folder / "master-key").chmod(0o600)
    server = await cluster.server(options=["--log-store", f"s3://{BUCKET}/logs"] if outside else [])
    stored = await cluster.http.put("/v1/secrets/api-token", json={"value": VALUE})
    assert stored.status_code == 201, stored.text
    echo = answer(200, {"you sent": VALUE, "encoded": quote(VALUE, safe="")})
    async with a_service(echo) as service:
        worker = await cluster.worker("--http-allow", "127.0.0.1", app=APP, slots=8)
        header = {"X-Token": {"$secret": "api-token"}}
        calls = [
            {"http": {"url": service.url("/echo"), "headers": header, "body": {"token": {"$secret": "api-token"}}}},
            {"http": {"url": service.url("/echo"), "headers": header, "body": {"$secret": "api-token"}}},
        ]
        jobs = [{"command": one, "env": {"TOKEN": {"$secret": "api-token"}}, "retries": 0} for one in COMMANDS]
        jobs += [{"task": task, "payload": {"how": how}} for task in TASKS for how in WAYS]
        jobs += [{**one, "retries": 0} for one in calls]
        jobs *= times
        job_ids = await cluster.submit_all(jobs)
        for job_id in job_ids:
            await cluster.ended(job_id, within=180.0 * times)
        heard = service.asked
    answers: list[tuple[str, bytes]] = []
    for job_id, job in zip(job_ids, jobs, strict=True):
        [run] = await cluster.runs(job_id)
        paths = [f"/v1/jobs/{job_id}", f"/v1/runs/{run['run_id']}", f"/v1/runs/{run['run_id']}/logs"]
        paths.append(f"/v1/runs/{run['run_id']}/timeline")
        answers += [(f"{path} {job}", (await cluster.http.get(path)).content) for path in paths]
    for path in ("/v1/secrets", "/v1/secrets/api-token", "/v1/dead-letters?limit=100", "/v1/runs?limit=100",
                 "/v1/runs?view=row&limit=100", "/v1/jobs?view=row", "/v1/audit", "/v1/insights/failures",
                 "/v1/insights/overview", "/v1/logs?text=line", "/metrics"):  # fmt: skip
        answers.append((path, (await cluster.http.get(path)).content))
    logs = [(str(child.pid), cluster.said(child).encode()) for child in (server, worker)]
    files = [(str(path), path.read_bytes()) for path in cluster.folder.rglob("*") if path.is_file()]
    assert len(job_ids) > 1000 or not outside
    assert bool(objects) == outside
    assert [one.headers["x-token"] for one in heard] == [VALUE, VALUE] * times
    assert {one.body for one in heard} == {f'{{"token":"{VALUE}"}}'.encode(), VALUE.encode()}
    assert b"***" in b"".join(text for _, text in answers)
    assert found_in(answers) == []
    assert found_in(await dump(database_url)) == []
    assert found_in((name, data) for name, data in objects.items()) == []
    assert found_in(logs) == [] and found_in(files) == []
