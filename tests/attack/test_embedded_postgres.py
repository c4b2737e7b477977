"""The way from a job to the embedded PostgreSQL, and from there to the machine: `COPY ... FROM PROGRAM` as superuser.

Needs: nothing. As root it also shows that another account cannot reach the socket.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import asyncpg
import httpx
import psycopg
import pytest

from mainspring.roles.up import MAINSPRING
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.embedded.access import ROLE
from tests.processes.cluster import SLOW, START, eventually, free_port, worker_process
from tests.store.old_folders import SETTINGS

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
NO_FILE = quote("/nonexistent/password")


@pytest.fixture(scope="module")
def parent() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ms-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def embedded(parent: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(parent / "embedded", settings=SETTINGS) as postgres:
        yield postgres


@pytest.fixture
async def role(embedded: EmbeddedPostgres) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(embedded.url())
    yield connection
    await connection.close()


FORBIDDEN = (
    "copy (select 'x') to program 'cat > /tmp/owned'",
    "create temp table t (line text); copy t from program 'id'",
    "create temp table t (line text); copy t from '/etc/passwd'",
    "copy (select 'x') to '/tmp/owned'",
    "select pg_read_file('/etc/passwd')",
    "select pg_read_file('postmaster.pid')",
    "select pg_read_binary_file('pg_hba.conf')",
    "select pg_ls_dir('/')",
    "select lo_import('/etc/passwd')",
    "select lo_export(lo_create(0), '/tmp/owned')",
    "create role another superuser",
    "create role another",
    f"alter role {ROLE} superuser",
    f"alter role {ROLE} createrole",
    f"grant pg_execute_server_program to {ROLE}",
    f"grant pg_read_server_files to {ROLE}",
    f"grant postgres to {ROLE}",
    "set role postgres",
    "set session authorization postgres",
    "alter role postgres password 'known'",
    "alter system set archive_command = 'id'",
    "load '/tmp/evil.so'",
    "create function evil() returns int language c as '/tmp/evil.so', 'evil'",
    "create function evil() returns int language internal as 'pg_read_file'",
    "set session_preload_libraries = '/tmp/evil'",
    "select * from pg_authid",
    "select pg_reload_conf()",
)


async def test_the_role_of_the_product_reaches_neither_programs_nor_files(role: asyncpg.Connection) -> None:
    for statement in FORBIDDEN:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await role.execute(statement)
    rights = await role.fetchrow(
        "select rolsuper, rolcreaterole, rolreplication, rolbypassrls from pg_roles where rolname = current_user"
    )
    assert tuple(rights) == (False, False, False, False)
    assert await role.fetchval("select count(*) from pg_auth_members where member = current_user::regrole") == 0


async def test_nobody_connects_without_the_password(embedded: EmbeddedPostgres, role: asyncpg.Connection) -> None:
    where = embedded.url().partition("&passfile=")[0]
    for user in (ROLE, "postgres", "root", "pgserver", pwd.getpwuid(os.geteuid()).pw_name):
        for database in ("mainspring", "postgres", "template1"):
            url = where.replace(f"{ROLE}@/mainspring", f"{user}@/{database}")
            for password in ("", "&password=", "&password=postgres"):
                with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)) as refused:
                    await asyncpg.connect(f"{url}{password}&passfile={NO_FILE}")
                assert getattr(refused.value, "sqlstate", "28").startswith("28"), refused.value
    with pytest.raises(psycopg.OperationalError, match=r"rejects|no password"):
        psycopg.connect(where.replace(ROLE, "postgres") + "&passfile=" + NO_FILE)
    assert "://mainspring_owner@/" in embedded.url() and embedded.access.password_file.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
async def test_another_account_reaches_neither_socket_nor_password(
    embedded: EmbeddedPostgres, role: asyncpg.Connection
) -> None:
    def attempt() -> None:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.connect(str(embedded.socket_folder / ".s.PGSQL.5432"))

    attempt()
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        for reach in (attempt, embedded.access.password_file.read_text, lambda: list(embedded.folder.iterdir())):
            with pytest.raises(PermissionError):
                reach()
    finally:
        os.seteuid(0)


@pytest.mark.slow
async def test_the_worker_of_up_has_a_workers_token_and_knows_no_way_to_the_database(parent: Path) -> None:
    """One `mainspring up` for all: tokens, environment, arguments, and an application that submits jobs as before."""
    data, port = parent / "up", free_port()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    log = (parent / "up.log").open("wb")
    up = subprocess.Popen(
        [*MAINSPRING, "up", "--data", str(data), "--port", str(port), "--app", "tests.attack.up_app:app"],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT, env=clean,
    )  # fmt: skip
    try:
        await _attack(up, data, f"http://127.0.0.1:{port}", parent / "up.log")
    finally:
        up.send_signal(signal.SIGINT)
        up.wait()
        log.close()


async def _attack(up: subprocess.Popen[bytes], data: Path, url: str, log: Path) -> None:
    async def is_up() -> bool:
        assert up.poll() is None, log.read_text()
        return "Ctrl-C stops everything" in log.read_text()

    await eventually(is_up, START, "it is up")
    admin, worker = ((data / name).read_text().strip() for name in ("admin-token", "worker-token"))
    password = (data / "postgres-password").read_text().strip().rpartition(":")[2]
    assert admin != worker and len(password) == 64
    for name in ("admin-token", "worker-token", "postgres-password"):
        assert (data / name).stat().st_mode & 0o777 == 0o600
    assert password not in log.read_text() and admin not in log.read_text(), "the welcome names files only"
    assert "code=" not in log.read_text() and "mainspring open" in log.read_text(), (
        "a link that signs in is no log line"
    )

    def client(token: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60)

    async with client(worker) as attacker, client(admin) as operator:
        for path in ("/v1/jobs", "/v1/runs", "/v1/tokens", "/v1/tenants", "/v1/dead-letters"):
            assert (await attacker.get(path)).status_code == 403
        assert (await attacker.post("/v1/jobs", json={"command": "id"})).status_code == 403
        assert (await attacker.post("/v1/tokens", json={"name": "x", "role": "admin"})).status_code == 403
        listed = (await operator.get("/v1/tokens")).json()["tokens"]
        assert {(token["role"], token["tenant"]) for token in listed} == {("admin", "default"), ("worker", "default")}

        async def submit(**job: object) -> str:
            answer = await operator.post("/v1/jobs", json=job)
            assert answer.status_code == 201, answer.text
            return str(answer.json()["job_id"])

        async def result(job_id: str) -> object:
            async def ended() -> dict[str, object]:
                run = (await operator.get(f"/v1/jobs/{job_id}/status")).json()["latest_run"] or {}
                return run if run.get("end_time") else {}

            run = await eventually(ended, SLOW, f"{job_id} ends")
            assert run["status"] == "SUCCESS", run
            return run["result"]

        # The application submits jobs from its tasks, and its schedules are there.
        for task in ("parent", "parent_in_a_process"):
            assert await result(str(await result(await submit(task=task)))) == "submitted by a task"

        async def scheduled() -> bool:
            return (await operator.get("/v1/jobs/yearly")).status_code == 200

        await eventually(scheduled, SLOW, "the application's schedules are ensured")

        shown = await result(await submit(command="env; cat /proc/self/environ"))
        assert isinstance(shown, dict)
        launcher = _child_of(up.pid, "worker")
        for secret in (admin, worker, password, "postgres-password", "postgresql://"):
            assert secret not in shown["output"]
            for pid in (launcher, worker_process(launcher)):
                for file in ("environ", "cmdline"):
                    assert secret.encode() not in _seen(pid, file)
        server = _child_of(up.pid, "server")
        for secret in (admin, password):
            for file in ("environ", "cmdline"):
                assert secret.encode() not in _seen(server, file)


def _seen(pid: int, file: str) -> bytes:
    """What other processes of the user can read."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except PermissionError:
        return b""


def _child_of(pid: int, verb: str) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(child) for child in children if f"\0{verb}\0" in Path(f"/proc/{child}/cmdline").read_text())
