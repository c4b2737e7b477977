"""The three nodes together: start, roles, health, and their end."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import asyncpg
import httpx

from mainspring.bench.arena import free_port, until
from mainspring.bench.patroni.node import PatroniNode
from mainspring.bench.patroni.programs import PatroniPrograms, patroni_programs
from mainspring.bench.patroni.settings import Passwords, Ports
from mainspring.domain.errors import Unavailable

NAMES = ("one", "two", "three")
ROLE = DATABASE = "mainspring"
_PATIENCE = 180.0
_LEADERS = frozenset(("leader", "master", "primary"))
_STREAMING = frozenset(("streaming", "running"))


class PatroniNodes:
    """`url` names all of them, so that clients find the primary."""

    def __init__(self, folder: Path, programs: PatroniPrograms) -> None:
        members = {name: Ports(*(free_port() for _ in Ports._fields)) for name in NAMES}
        self._passwords = Passwords(*(secrets.token_urlsafe(18) for _ in Passwords._fields))
        self._password = secrets.token_urlsafe(18)
        self.folder = folder
        self.nodes = {name: PatroniNode(name, folder, programs, members, self._passwords) for name in NAMES}
        self._client = httpx.AsyncClient(timeout=5, auth=("patroni", self._passwords.rest))

    @property
    def url(self) -> str:
        return self._url(ROLE, self._password, DATABASE, ",".join(node.address for node in self.nodes.values()))

    def url_of(self, node: PatroniNode) -> str:
        """Of one node, whatever its role is."""
        return self._url(ROLE, self._password, DATABASE, node.address)

    async def start(self) -> None:
        """Start all, and return when the primary has a synchronous standby and a database for Mainspring."""
        for node in self.nodes.values():
            node.start()
        leader = await self.until_led()
        await self.until_healthy()
        connection = await asyncpg.connect(
            self._url("postgres", self._passwords.superuser, "postgres", leader.address), timeout=30
        )
        try:
            await connection.execute(f"create role {ROLE} login password '{self._password}'")
            await connection.execute(f"create database {DATABASE} owner {ROLE}")
            await connection.execute(f"grant pg_monitor to {ROLE}")  # for `mainspring doctor`
        finally:
            await connection.close()

    async def members(self) -> dict[str, dict[str, object]]:
        """As any living Patroni sees them, by name. Empty if none answers."""
        for node in self.nodes.values():
            try:
                answer = await self._client.get(f"{node.rest_url}/cluster")
            except httpx.HTTPError:
                continue
            if answer.status_code == 200:
                return {member["name"]: member for member in answer.json().get("members", [])}
        return {}

    async def leader(self) -> PatroniNode | None:
        for name, member in (await self.members()).items():
            if member["role"] in _LEADERS and member["state"] in _STREAMING:
                return self.nodes[name]
        return None

    async def until_led(self) -> PatroniNode:
        """The primary, as soon as there is one. Raises an error if a process has ended by itself."""

        async def found() -> list[PatroniNode]:
            for node in self.nodes.values():
                node.check_alive()
            leader = await self.leader()
            return [] if leader is None else [leader]

        return (await until(found, "Patroni has chosen a primary", within=_PATIENCE, every=0.2))[0]

    async def healthy(self) -> bool:
        """Whether there is a primary, both others stream from it, and one of them is synchronous."""
        members = (await self.members()).values()
        states = [member["role"] in _LEADERS or member["state"] == "streaming" for member in members]
        roles = [member["role"] for member in members]
        return len(states) == len(NAMES) and all(states) and "sync_standby" in roles and not _LEADERS.isdisjoint(roles)

    async def until_healthy(self) -> None:
        try:
            await until(self.healthy, "all nodes follow the primary", within=_PATIENCE, every=0.2)
        except Unavailable as error:
            raise Unavailable(f"{error}; the nodes: {await self.members()}") from None

    async def switch_over(self, leader: PatroniNode) -> None:
        """Ask Patroni for another primary, as `patronictl switchover` does."""
        answer = await self._client.post(f"{leader.rest_url}/switchover", json={"leader": leader.name}, timeout=60)
        if answer.status_code != 200:
            raise Unavailable(f"Patroni refused the switchover: {answer.text}")

    async def stop(self) -> None:
        """The standbys first, so that none is promoted. The data stays."""
        await self._client.aclose()
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        for node in self.nodes.values():
            node.freeze(False)
        for node in self.nodes.values():
            node.ask_patroni_to_end()
        for node in self.nodes.values():
            node.wait_for_patroni()
        for node in self.nodes.values():
            node.stop_etcd()
            node.kill()

    @staticmethod
    def _url(role: str, password: str, database: str, hosts: str) -> str:
        return f"postgresql://{role}:{quote(password, safe='')}@{hosts}/{database}"


@asynccontextmanager
async def patroni_nodes() -> AsyncIterator[PatroniNodes]:
    """Fresh nodes in a folder under /tmp, which is removed afterwards."""
    programs = patroni_programs()
    await asyncio.to_thread(programs.require)
    nodes = PatroniNodes(_new_folder(), programs)
    try:
        await nodes.start()
        yield nodes
    finally:
        await nodes.stop()
        shutil.rmtree(nodes.folder, ignore_errors=True)


def _new_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="mainspring-patroni-", dir="/tmp"))
    folder.chmod(0o711)  # the account of PostgreSQL passes through
    return folder
