"""Secrets in stores outside: a small server that speaks Vault's KV API, and a command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.clock import ManualClock
from mainspring.kernel.config import Timing
from mainspring.operations.secrets import external
from mainspring.roles.assembly import assemble
from mainspring.roles.secret_stores import VARIABLE, read_secret_stores
from mainspring.store.database import Database
from tests.conftest import TOKEN
from tests.operations.hand_worker import HandWorker
from tests.operations.test_secrets import Keys, Server

pytestmark = pytest.mark.anyio

VALUE = "from the vault, not from us"
PLACE = {"store": "vault", "path": "billing/db", "key": "password"}
ENV = {"DB_PASSWORD": {"$secret": "db-password"}}


class Vault:
    """GET /v1/{mount}/data/{path}, as Vault answers it."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Any]] = {"secret/data/mainspring/default/billing/db": {"password": VALUE}}
        self.token, self.asked, self.open = "s.token", 0, asyncio.Event()
        self.open.set()
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked += 1
        await self.open.wait()
        path = head.split(" ")[1].removeprefix("/v1/")
        status, body = "200 OK", {"data": {"data": self.values.get(path), "metadata": {"version": 1}}}
        if f"x-vault-token: {self.token}\r\n" not in head.lower():
            status, body = "403 Forbidden", {"errors": ["permission denied"]}  # type: ignore[dict-item]
        elif path not in self.values:
            status, body = "404 Not Found", {"errors": []}  # type: ignore[dict-item]
        text = json.dumps(body).encode()
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode() + text)
        await writer.drain()
        writer.close()


@pytest.fixture
async def vault() -> AsyncIterator[Vault]:
    made = Vault()
    serving = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.port = serving.sockets[0].getsockname()[1]
    yield made
    made.open.set()
    serving.close()


@pytest.fixture
async def server(
    where: Database, vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Server]:
    monkeypatch.setattr(external, "WAIT", 60.0)  # the machine may be busy
    (tmp_path / "token").write_text("s.token\n")
    command = tmp_path / "command"
    command.write_text('#!/bin/sh\n[ "$1" = missing ] && exit 1\nprintf "value of %s %s" "$1" "$2"\n')
    command.chmod(0o755)
    (tmp_path / "stores.toml").write_text(
        f"""[vault]
kind = "vault"
address = "http://127.0.0.1:{vault.port}"
token_file = "{tmp_path / "token"}"
prefix = "mainspring/{{tenant}}/"
cache = "30s"
[pass]
kind = "command"
command = ["{command}"]
"""
    )
    readers = read_secret_stores({VARIABLE: str(tmp_path / "stores.toml")})
    keys, clock = Keys(), ManualClock()
    assembly = await assemble(
        where, clock, chance=lambda: 0.5, timing=Timing(lease_ttl=600.0), read_keys=keys.read, secret_readers=readers
    )
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as client:
        yield Server(assembly, client, keys, clock)
    await assembly.close()


async def handed(server: Server, worker: HandWorker, job_id: str, **fields: Any) -> str | None:
    """The value that the worker gets with a run."""
    made = await server.submit(**{"job_id": job_id, "command": "true", "env": ENV, **fields})
    assert made.status_code == 201, made.text
    orders = (await worker.exchange(free=1, hello=None if worker.seq else worker.card)).runs
    return orders[0].secrets.values["db-password"] if orders and orders[0].secrets else None


async def test_a_value_of_vault_goes_to_the_worker_is_kept_for_a_while_and_stored_nowhere(
    server: Server, vault: Vault, connection: asyncpg.Connection
) -> None:
    made = await server.put(value=None, external=PLACE)
    assert (made.status_code, made.json()["external"], made.json()["version"]) == (201, PLACE, 1), made.text
    worker = server.worker()
    assert await handed(server, worker, "one") == VALUE
    assert await handed(server, worker, "two") == VALUE
    assert vault.asked == 1
    vault.values["secret/data/mainspring/default/billing/db"] = {"password": "a newer password"}
    server.clock.advance(31)
    assert await handed(server, worker, "three") == "a newer password"
    rows = [str(dict(row)) for row in await connection.fetch("select * from mainspring.secrets")]
    rows += [str(dict(row)) for row in await connection.fetch("select * from mainspring.runs")]
    assert VALUE not in "".join(rows)
    own = await server.put(value="stored by us now")
    assert (own.json()["version"], own.json().get("external")) == (2, None)
    assert await handed(server, worker, "four") == "stored by us now"


async def test_a_command_gets_the_path_and_the_key(server: Server) -> None:
    assert (await server.put(value=None, external={"store": "pass", "path": "a/b", "key": "c"})).status_code == 201
    assert await handed(server, server.worker(), "one") == "value of a/b c"
    assert (await server.put(value=None, external={"store": "pass", "path": "missing"})).status_code == 200
    assert await handed(server, server.worker(), "two") is None
    status, error = await server.error_of("two")
    assert status == "FAILED" and "the secret 'db-password' is not there" in (error or "")


async def test_what_is_missing_fails_the_attempt_and_a_store_that_is_away_delays_it(
    server: Server, vault: Vault, connection: asyncpg.Connection
) -> None:
    assert (await server.put(value=None, external={**PLACE, "key": "no"})).status_code == 201
    worker = server.worker()
    assert await handed(server, worker, "one", retries=3) is None
    status, error = await server.error_of("one")
    assert status == "FAILED" and "has no text with the key 'no'" in (error or "")
    assert (await server.put(value=None, external={**PLACE, "path": "billing/other"})).status_code == 200
    assert await handed(server, worker, "two") is None
    assert "the store 'vault' has no 'billing/other'" in ((await server.error_of("two"))[1] or "")
    assert (await server.put(value=None, external=PLACE)).status_code == 200
    vault.token = "s.another"
    assert await handed(server, worker, "three", retries=0) is None
    assert (await server.error_of("three"))[0] == "SCHEDULED"
    assert VALUE not in str([dict(row) for row in await connection.fetch("select * from mainspring.runs")])
    vault.token = "s.token"
    server.clock.advance(external.AFTER_FAILURE + 1)
    await connection.execute("update mainspring.runs set ready_at = clock_timestamp()")
    [order] = await worker.claim()
    assert order.secrets is not None and order.secrets.values["db-password"] == VALUE and order.attempt == 1


async def test_a_store_that_hangs_makes_one_exchange_wait_and_later_ones_not(
    server: Server, vault: Vault, monkeypatch: pytest.MonkeyPatch, connection: asyncpg.Connection
) -> None:
    monkeypatch.setattr(external, "WAIT", 0.01)
    assert (await server.put(value=None, external=PLACE)).status_code == 201
    vault.open.clear()
    worker = server.worker()
    assert await handed(server, worker, "one") is None
    server.clock.advance(1)
    assert (await server.put("other", value="another value")).status_code == 201
    ready = {"env": {"DB_PASSWORD": {"$secret": "other"}}}
    assert (await server.submit(job_id="ready", command="true", **ready)).status_code == 201
    [order] = await worker.claim()  # a run without the slow store
    assert order.job_id == "ready"
    monkeypatch.setattr(external, "WAIT", 60.0)  # until the value is there, however busy the machine is
    vault.open.set()
    await connection.execute("update mainspring.runs set ready_at = clock_timestamp() where worker_id is null")
    [order] = await worker.claim()
    assert order.secrets is not None and order.secrets.values["db-password"] == VALUE
    assert vault.asked == 1


@pytest.mark.parametrize(
    ("place", "field"),
    [
        ({"store": "valt", "path": "a"}, "external.store"),
        ({"store": "vault", "path": "../other/db"}, "external.path"),
        ({"store": "vault", "path": "a/../../b"}, "external.path"),
        ({"store": "pass", "path": "--help"}, "external.path"),
        ({"store": "pass", "path": "a", "key": "-rf"}, "external.key"),
        ({"store": "vault", "path": "a?version=1"}, "external.path"),
        ({"store": "vault", "path": "a/%2e%2e/b"}, "external.path"),
        ({"store": "vault", "path": "/a"}, "external.path"),
    ],
)
async def test_a_place_that_leaves_the_store_of_the_tenant_is_refused(
    server: Server, place: dict[str, str], field: str
) -> None:
    refused = await server.put(value=None, external=place)
    assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
    both = await server.put(value="some value", external=PLACE)
    assert (both.status_code, both.json()["field"]) == (422, "external")


async def test_another_tenant_does_not_reach_the_store(server: Server) -> None:
    assert (await server.api.post("/v1/tenants", json={"name": "acme"})).status_code == 201
    asked = {"name": "theirs", "role": "admin", "tenant": "acme"}
    token = (await server.api.post("/v1/tokens", json=asked)).json()["token"]
    refused = await server.api.put(
        "/v1/secrets/x", json={"external": PLACE}, headers={"Authorization": f"Bearer {token}"}
    )
    assert (refused.status_code, refused.json()["field"]) == (422, "external.store")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('[a]\nkind = "vautl"', "a.kind"),
        ('[a]\nkind = "vault"\naddress = "http://vault.example.com"\ntoken_file = "t"', "a.address"),
        ('[a]\nkind = "vault"\naddress = "https://vault.example.com"', "a.token_file"),
        ('[a]\nkind = "command"', "a.command"),
        ('[a]\nkind = "command"\ncommand = ["x"]\ncache = "1s"', "a.cache"),
        ('[a]\nkind = "command"\ncommand = ["x"]\ntenants = ["x", "y"]', "a.prefix"),
        ('[a]\nkind = "command"\ncomand = ["x"]', VARIABLE),
        ("[a", VARIABLE),
    ],
)
async def test_a_file_with_a_mistake_is_refused_at_the_start(tmp_path: Path, text: str, field: str) -> None:
    (tmp_path / "stores.toml").write_text(text)
    with pytest.raises(InvalidInput) as refused:
        read_secret_stores({VARIABLE: str(tmp_path / "stores.toml")})
    assert refused.value.field == field
