"""The drill: every route gets its largest bodies 32 times at once, as every role, from a tenant. How late are the
exchanges of a worker of another tenant?

`python -m tests.attack.flood_drill` does it at full size, on a PostgreSQL and a server of its own, in about ten
minutes. A field that several routes take is filled at one of them, and those who may not call a route call it together.
`--every` fills every field at every route, which takes three times as long. `--only TEXT` takes the routes whose path
contains it, `--size BYTES` bounds the bodies, `--shape TEXT` takes the bodies whose name contains it, and `--skip N`
leaves out the first N. It prints how far it is, a line for each flood that made an exchange late by more than 0.3 s,
and a summary, and fails if one was late by more than a second.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import msgspec

from mainspring.api.app import app_without_a_server
from mainspring.bench.protocol_workers import ProtocolWorker
from mainspring.kernel.http_client import HttpServer
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.store import tokens
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.migrate import migrate
from tests.attack.flood import Answers, Order
from tests.attack.largest_bodies import HEAVY, Asked, Make, bodies_of, routes
from tests.conftest import FAST, TOKEN
from tests.processes.cluster import Cluster

TIMES = 32
MOST_DELAY = 1.0  # seconds, on a machine that gives a process the CPU that it asks for
_SHOWN = 0.3
_SPIN = 0.002
_PROGRESS = 15.0  # seconds
_ROLES = ("viewer", "admin", "worker")


class Flood(msgspec.Struct):
    """One request, many times at once. role: or several, with commas. worst: seconds that an exchange of another tenant
    took at most. slowdown: how many times longer than its CPU time a computation took meanwhile, because of all that
    the machine does."""

    name: str
    role: str
    worst: float
    slowdown: float
    answers: Answers

    @property
    def late(self) -> bool:
        return self.worst > MOST_DELAY * max(1.0, self.slowdown)

    def __str__(self) -> str:
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(self.answers.statuses.items()))
        return (
            f"{self.worst:5.2f} s (x{self.slowdown:.1f}) {self.name} as {self.role}; {statuses}; "
            f"{self.answers.seconds:.1f} s"
        )


class Drill:
    """A server with a quiet tenant, whose worker exchanges, and a noisy one."""

    def __init__(
        self,
        cluster: Cluster,
        server: subprocess.Popen[bytes],
        folder: Path,
        flooder: asyncio.subprocess.Process,
    ) -> None:
        self._cluster = cluster
        self._process = server
        self._folder = folder
        self._flooder = flooder
        self.worker = ProtocolWorker(HttpServer(cluster.url), TOKEN, 1)
        self.tokens: dict[str, str] = {"nobody": ""}

    async def set_up(self) -> None:
        http = self._cluster.http
        tenant = (await http.post("/v1/tenants", json={"name": "noisy"})).json()
        self.tokens["admin"] = tenant["admin_token"]["token"]
        headers = {"Authorization": f"Bearer {self.tokens['admin']}"}
        for role in ("viewer", "worker"):
            made = await http.post("/v1/tokens", json={"name": role, "role": role}, headers=headers)
            self.tokens[role] = made.json()["token"]
        # What the paths of the routes name.
        cron = {"job_id": "job_id", "task": "t", "schedule": "0 0 1 1 *"}
        flow = {"workflow_id": "workflow_id", "steps": [{"name": "a", "task": "t"}]}
        calendar = {"dates": ["2027-01-01"]}
        assert (await http.post("/v1/jobs", json=cron, headers=headers)).status_code == 201
        assert (await http.post("/v1/workflows", json=flow, headers=headers)).status_code == 201
        assert (await http.put("/v1/calendars/name", json=calendar, headers=headers)).status_code == 201

    async def flood(self, route: Asked, name: str, body: bytes, role: str, times: int = TIMES) -> Flood:
        """Send it, and exchange meanwhile."""
        self.worker.close()
        self.worker = ProtocolWorker(HttpServer(self._cluster.url), TOKEN, 1)
        await self.worker.register()
        file = self._folder / "body"
        file.write_bytes(body)
        tokens = [self.tokens[one] for one in role.split(", ")]
        order = Order(route.method, route.path, tokens, str(file) if body else "", times)
        assert self._flooder.stdin is not None and self._flooder.stdout is not None
        self._flooder.stdin.write(msgspec.json.encode(order) + b"\n")
        answered = asyncio.create_task(self._flooder.stdout.readline())
        worst, wall, cpu = 0.0, 0.0, 0.0
        while not answered.done():
            spun, used = _spin()
            wall, cpu = wall + spun, cpu + used
            began = time.monotonic()
            await self.worker._exchange(0)
            worst = max(worst, time.monotonic() - began)
            await asyncio.wait([answered], timeout=0.02)
        answers = msgspec.json.decode(await answered, type=Answers)
        assert not self.worker.lost, "the worker of another tenant has lost its lease"
        return Flood(f"{route.method} {route.path} {name}", role, worst, wall / cpu if cpu else 1.0, answers)

    def stalls(self) -> list[str]:
        """What the server says about its event loop."""
        return [line for line in self._cluster.said(self._process).splitlines() if "event loop" in line]

    def memory(self) -> int:
        """MiB that the server has."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        assert found is not None
        return int(found[1]) // 1024


def _spin() -> tuple[float, float]:
    """Seconds, and seconds of CPU time, of a short computation."""
    began, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < _SPIN:
        pass
    return time.monotonic() - began, time.thread_time() - used


@asynccontextmanager
async def a_drill(database_url: str, folder: Path) -> AsyncIterator[Drill]:
    cluster = Cluster(database_url, TOKEN, folder)
    flooder: asyncio.subprocess.Process | None = None
    drill: Drill | None = None
    try:
        server = await cluster.server()
        flooder = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.attack.flood", str(cluster.port)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        drill = Drill(cluster, server, folder, flooder)
        await drill.set_up()
        yield drill
    finally:
        if drill is not None:
            drill.worker.close()
        if flooder is not None:
            flooder.kill()
            await flooder.wait()
        await cluster.close()


def role_for(route: Asked) -> str:
    """The weakest role that may call it."""
    return next((role for role in _ROLES if role in route.roles), "nobody")


def floods(size: int, only: str = "", shape: str = "", every: bool = False) -> Iterator[tuple[Asked, str, Make, str]]:
    """Route, name, body and role, or the roles with commas. Those that may not call a route send it one body."""
    seen, filled = set(), set[str]()
    for route in routes(app_without_a_server()):
        if only not in route.path:
            continue
        role = role_for(route)
        others = [other for other in ("nobody", *_ROLES) if other != role]
        if route.most is None:
            yield route, "", bytes, role
            continue
        shapes = bodies_of(route, size) if every else _unlike(route, size, filled)
        if (route.operation, route.method) in seen:  # the same handler at another path
            shapes = iter([next(shapes)])
        seen.add((route.operation, route.method))
        for number, (name, make) in enumerate(shapes):
            if shape not in name:
                continue
            yield route, name, make, role
            if not number and not shape:
                for roles in others if every else [", ".join(others)]:
                    yield route, name, make, roles


def _unlike(route: Asked, size: int, filled: set[str]) -> Iterator[tuple[str, Make]]:
    """The bodies of a route without those of fields that another one got. Every route gets one of its own, at least."""
    heavy, first = ("deep", *HEAVY.get(route.operation, ())), True
    for name, make in bodies_of(route, size):
        field = ".".join(name.split(".")[-2:])
        if name in heavy or first or field not in filled:
            yield name, make
        if name not in heavy:
            filled.add(field)
            first = False


async def _full(size: int, only: str, shape: str, every: bool, skip: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix="ms-drill-", dir="/tmp"))
    postgres = EmbeddedPostgres(folder / "pg", settings=FAST)
    postgres.start()
    try:
        url = await _database(postgres)
        async with a_drill(url, folder) as drill:
            before, found = drill.memory(), list[Flood]()
            chosen = list(floods(size, only, shape, every))[skip:]
            began = told = time.monotonic()
            for number, (route, name, make, role) in enumerate(chosen):
                if (now := time.monotonic()) - told > _PROGRESS:
                    told = now
                    print(f"{number} of {len(chosen)} floods in {now - began:.0f} s", flush=True)  # noqa: T201
                done = await drill.flood(route, name, make(), role)
                found.append(done)
                if done.worst > _SHOWN or done.late:
                    print(done, flush=True)  # noqa: T201
            await asyncio.sleep(2)
            after, stalls = drill.memory(), drill.stalls()
    finally:
        postgres.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)
    for line in stalls:
        print(line)  # noqa: T201
    late = [one for one in found if one.late]
    worst = max(found, key=lambda one: one.worst)
    print(f"{len(found)} floods; worst: {worst}")  # noqa: T201
    print(f"late: {len(late)}; memory of the server: {before} MiB before, {after} MiB after")  # noqa: T201
    return 1 if late else 0


async def _database(postgres: EmbeddedPostgres) -> str:
    admin = await asyncpg.connect(postgres.url("postgres"))
    await admin.execute("create database drill")
    await admin.close()
    url = postgres.url("drill")
    await migrate(url)
    connection = await asyncpg.connect(url)
    await tokens.insert(connection, DEFAULT_TENANT, TOKEN, "admin", "test")
    await connection.close()
    return url


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1 << 30, help="the most bytes of a body")
    parser.add_argument("--only", default="", help="a part of the path")
    parser.add_argument("--shape", default="", help="a part of the name of a body")
    parser.add_argument("--every", action="store_true", help="fill every field at every route")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first floods, those of an earlier drill")
    chosen = parser.parse_args()
    sys.exit(asyncio.run(_full(chosen.size, chosen.only, chosen.shape, chosen.every, chosen.skip)))
